"""Random numbers that depend on the seed and on what they are for, and on nothing else.

Every purpose has its own named stream, so that a method, an option or a phase never shifts another's
draws. Dropout is drawn from a counter (SplitMix64), so that a mask is the same on every device and in
every pack of seeds.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

Built = TypeVar("Built")

_GOLDEN = -7046029254386353131  # 0x9E3779B97F4A7C15 as a signed 64-bit integer
_MIX_1 = -4658895280553007687  # 0xBF58476D1CE4E5B9
_MIX_2 = -7723592293110705685  # 0x94D049BB133111EB


def stream(seed: int, purpose: str) -> np.random.Generator:
    """The seed's generator for one purpose: split, stream, episodes, ..."""
    return np.random.default_rng([seed, zlib.crc32(purpose.encode())])


def seeded(seed: int, purpose: str, build: Callable[[], Built]) -> Built:
    """``build()``, its initial parameters drawn for this seed and purpose."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(stream(seed, purpose).integers(2**62)))
        return build()


def keys(seeds: list[int], purpose: str, device: torch.device) -> Tensor:
    """One 64-bit key a seed: (seeds,)."""
    drawn = [int(stream(seed, purpose).integers(2**62)) for seed in seeds]
    return torch.tensor(drawn, dtype=torch.int64, device=device)


def fold(key: Tensor, number: int) -> Tensor:
    """Another key, for the ``number``-th use of this one."""
    return _mix(key + (number + 1) * _GOLDEN % 2**63)


def dropout(values: Tensor, rate: float, key: Tensor | None) -> Tensor:
    """Drop a share ``rate`` of ``values`` (rows, width) and scale the rest; without a key, do nothing.

    The rate is rounded to 1/256.
    """
    threshold = round(rate * 256)
    if key is None or threshold == 0:
        return values
    return _Dropout.apply(values, key, threshold)[0]


def _mix(word: Tensor) -> Tensor:
    word = (word ^ ((word >> 30) & 0x3FFFFFFFF)) * _MIX_1
    word = (word ^ ((word >> 27) & 0x1FFFFFFFFF)) * _MIX_2
    return word ^ ((word >> 31) & 0x1FFFFFFFF)


def _random_bytes(key: Tensor, rows: int, width: int) -> Tensor:
    """(rows, pack, width) bytes, eight from each 64-bit counter."""
    words = -(-width // 8)
    counter = torch.arange(1, rows * words + 1, device=key.device).view(rows, 1, words)
    return _mix(key.view(1, -1, 1) + counter * _GOLDEN).view(torch.uint8)[..., :width]


class _Dropout(torch.autograd.Function):
    """Rows stay in front and the pack axis beside them, which is how the sparse products want them."""

    @staticmethod
    def forward(values: Tensor, key: Tensor, threshold: int) -> tuple[Tensor, Tensor]:
        rows, width = values.shape[0], values.shape[-1]
        keep = (_random_bytes(key, rows, width) >= threshold).view(values.shape)
        return values * keep * (256 / (256 - threshold)), keep

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.save_for_backward(output[1])
        ctx.mark_non_differentiable(output[1])
        ctx.scale = 256 / (256 - inputs[2])

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: Any) -> tuple[Tensor, None, None]:
        (keep,) = ctx.saved_tensors
        return grad * keep * ctx.scale, None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], values: Tensor, key: Tensor, threshold: int) -> Any:
        packed = values.movedim(in_dims[0], 1)  # (rows, pack, width)
        dropped, keep = _Dropout.apply(packed, key, threshold)
        return (dropped, keep), (1, 1)
