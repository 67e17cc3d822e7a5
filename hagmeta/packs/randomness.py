"""Random numbers that depend only on the seed and their purpose.

Every purpose has a named stream, so a method, an option or a phase never changes the draws of another.
Dropout uses a counter-based generator (SplitMix64), so a mask is the same on every device and in every pack.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hagmeta.packs.function import Function
from hagmeta.packs.sums import sum_rows
from hagmeta.packs.values import hold

Built = TypeVar("Built")

GOLDEN = -7046029254386353131  # 0x9E3779B97F4A7C15 as a signed 64-bit integer
_FOLD = 0x5851F42D4C957F2D  # any odd number but GOLDEN
MIX_1 = -4658895280553007687  # 0xBF58476D1CE4E5B9
MIX_2 = -7723592293110705685  # 0x94D049BB133111EB


def stream(seed: int, purpose: str) -> np.random.Generator:
    """Return the generator of ``seed`` for one purpose, such as split, stream or episodes."""
    return np.random.default_rng([seed, zlib.crc32(purpose.encode())])


def seeded(seed: int, purpose: str, build: Callable[[], Built]) -> Built:
    """Return ``build()`` with initial parameters drawn for this seed and purpose."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(stream(seed, purpose).integers(2**62)))
        return build()


def keys(seeds: list[int], purpose: str) -> Tensor:
    """Return one 64-bit key per seed: (seeds,)."""
    drawn = [int(stream(seed, purpose).integers(2**62)) for seed in seeds]
    return torch.tensor(drawn, device="cpu")  # also where tensors have no memory


def fold(key: Tensor, number: int) -> Tensor:
    """Return another key for the ``number``-th use of ``key``. Keys may be folded repeatedly."""
    return _mix(key + (number + 1) * _FOLD % 2**63)


def part(key: Tensor | None, number: int) -> Tensor | None:
    """Return ``fold(key, number)``, or None without a key, as in evaluation mode."""
    return None if key is None else fold(key, number)


def uniform(key: Tensor, count: int) -> Tensor:
    """Return numbers (count,) between 0 and 1, in double precision."""
    return uniform_at(key, torch.arange(count, device=key.device))


def uniform_at(key: Tensor, places: Tensor) -> Tensor:
    """Return the numbers at some ``places`` of `uniform`, which may be any integers from 0."""
    words = _mix(key + (places + 1) * GOLDEN)
    return ((words >> 11) & (2**53 - 1)).double() / 2**53


class Rate(nn.Module):
    """A dropout rate, rounded to 1/256. It may differ within a pack, unless it is 0."""

    threshold: Tensor  # values with a random byte below it are dropped
    scale: Tensor  # the factor for kept values, which preserves their mean
    root: Tensor  # its square root

    def __init__(self, rate: float, device: torch.device | None = None) -> None:
        super().__init__()
        self.drops = rate > 0
        threshold = dropout_threshold(rate)
        scale = 256 / (256 - threshold)
        hold(self, {"threshold": threshold}, torch.uint8, device)
        hold(self, {"scale": scale, "root": math.sqrt(scale)}, torch.float32, device)


def rate_of(rate: float | Rate, device: torch.device) -> Rate:
    """Return ``rate`` as a module."""
    return rate if isinstance(rate, Rate) else Rate(rate, device)


def dropout(values: Tensor, rate: float | Rate, key: Tensor | None) -> Tensor:
    """Drop a share ``rate`` of ``values`` (rows, width) and scale the others; without a key, do nothing.

    The rate is rounded to 1/256.
    """
    rate = rate_of(rate, values.device)
    if key is None or not rate.drops:
        return values
    dropped: Tensor = _Dropout.apply(values, key, rate.threshold, rate.scale)
    return dropped


def relu_dropout(values: Tensor, bias: Tensor, rate: float | Rate, key: Tensor | None) -> Tensor:
    """Return ``dropout(relu(values + bias))`` without scaling, with few passes over ``values`` (rows, width).

    ReLU commutes with a positive factor, so the caller can apply ``dropout_scale`` where it costs nothing.
    """
    rate = rate_of(rate, values.device)
    if key is None or not rate.drops:
        return F.relu(values + bias)
    activated: Tensor = _ReluDropout.apply(values, bias, key, rate.threshold)
    return activated


def dropout_scale(rate: float | Rate, key: Tensor | None) -> Tensor | float:
    """Return the factor for kept values, which preserves their mean."""
    return 1.0 if key is None else rate_of(rate, key.device).scale


def dropout_threshold(rate: float) -> int:
    """Return the threshold: values with a random byte below it are dropped. At least 1/256 is kept."""
    return min(round(rate * 256), 255)


def _mix(word: Tensor) -> Tensor:
    word = (word ^ ((word >> 30) & 0x3FFFFFFFF)) * MIX_1
    word = (word ^ ((word >> 27) & 0x1FFFFFFFFF)) * MIX_2
    return word ^ ((word >> 31) & 0x1FFFFFFFF)


def _kept(values: Tensor, key: Tensor, threshold: Tensor) -> Tensor:
    """Return 1 to keep and 0 to drop, for ``values`` (rows, [pack,] width). Each word gives eight draws."""
    rows, width = values.shape[0], values.shape[-1]
    words = -(-width // 8)
    counter = torch.arange(1, rows * words + 1, device=key.device).view(rows, 1, words)
    random_bytes = _mix(key.view(1, -1, 1) + counter * GOLDEN).view(torch.uint8)[..., :width]
    kept = torch.empty_like(values)
    # Floats, because they multiply at full speed.
    torch.ge(random_bytes.view_as(kept), threshold.view(-1, 1), out=kept)
    return kept


class _Dropout(Function):
    """Dropout with rows first and the pack axis second, the layout of the sparse products."""

    @staticmethod
    def forward(values: Tensor, key: Tensor, threshold: Tensor, scale: Tensor) -> Tensor:
        return _kept(values, key, threshold).mul_(values).mul_(scale.view(-1, 1))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[1:])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        return _Dropout.apply(grad, *ctx.saved_tensors), None, None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], values: Tensor, *drawn: Tensor) -> Any:
        return _Dropout.apply(values.movedim(in_dims[0], 1).contiguous(), *drawn), 1


class _ReluDropout(Function):
    @staticmethod
    def forward(values: Tensor, bias: Tensor, key: Tensor, threshold: Tensor) -> Tensor:
        return (values + bias).relu_().mul_(_kept(values, key, threshold))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None, None]:
        (output,) = ctx.saved_tensors
        grad = torch.ops.aten.threshold_backward(grad, output, 0)
        return grad, sum_rows(grad), None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], values: Tensor, bias: Tensor, *drawn: Tensor) -> Any:
        values, bias = values.movedim(in_dims[0], 1), bias.movedim(in_dims[1], 0)
        return _ReluDropout.apply(values, bias, *drawn), 1
