"""A step of Adam on a GPU in Triton, with a learning rate and a weight decay per member of a pack."""

from __future__ import annotations

import math

import triton
import triton.language as tl
from torch import Tensor

BLOCK = 1024
FIRST = tl.constexpr(0.9)  # the defaults of torch.optim.Adam
SECOND = tl.constexpr(0.999)
LOG_FIRST = tl.constexpr(math.log(0.9))
LOG_SECOND = tl.constexpr(math.log(0.999))
EPSILON = tl.constexpr(1e-8)


def step(
    value: Tensor, gradient: Tensor, count: Tensor, mean: Tensor, square: Tensor, rate: Tensor, decay: Tensor
) -> None:
    """Update ``value`` (..., pack, width), its running ``mean`` and mean ``square`` in place.

    ``count`` is the number of steps including this one. ``rate`` and ``decay`` are (pack,).
    """
    pack, width = value.shape[-2:]
    _step[(triton.cdiv(value.numel(), BLOCK),)](
        value, gradient, count, mean, square, rate, decay, value.numel(), pack, width, block=BLOCK
    )


@triton.jit(do_not_specialize=["size", "pack", "width"])
def _step(
    value, gradient, count, mean, square, rate, decay, size, pack, width, block: tl.constexpr
):  # fmt: skip
    place = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    inside = place < size
    member = (place // width) % pack
    # Powers need double precision: 1 - 0.999 would lose four digits.
    steps = tl.load(count).to(tl.float64)
    correction = (1.0 - tl.exp(steps * LOG_FIRST)).to(tl.float32)
    spread = tl.sqrt(1.0 - tl.exp(steps * LOG_SECOND)).to(tl.float32)
    own = tl.load(value + place, inside, 0.0)
    slope = tl.load(gradient + place, inside, 0.0) + tl.load(decay + member, inside, 0.0) * own
    first = tl.load(mean + place, inside, 0.0)
    first += (1.0 - FIRST) * (slope - first)
    second = SECOND * tl.load(square + place, inside, 0.0) + (1.0 - SECOND) * slope * slope
    change = first / (tl.sqrt(second) / spread + EPSILON)
    tl.store(value + place, own - tl.load(rate + member, inside, 0.0) / correction * change, inside)
    tl.store(mean + place, first, inside)
    tl.store(square + place, second, inside)
