"""Graph attention on a GPU in one pass over the edges, in Triton, without memory per edge.

The backward pass computes edge weights again from the normaliser of each target. One program processes all
neighbours of a node; nodes with most neighbours come first. All sums have a fixed order.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

GATHERED = 16  # neighbours per step
SLOPE = tl.constexpr(0.2)  # of the leaky ReLU


def forward(
    offsets: Tensor,
    columns: Tensor,
    order: Tensor,
    visible: Tensor,
    mapped: Tensor,
    source: Tensor,
    target: Tensor,
) -> tuple[Tensor, Tensor]:
    """Return the attention output (nodes, pack, width) and the normalisers (nodes, pack, heads).

    The score of an edge is the sum of ``source`` and ``target`` (nodes, pack, heads) at its two ends.
    ``order`` is the order in which nodes are processed.
    """
    out, normaliser = torch.zeros_like(mapped), torch.zeros_like(target)
    arguments = (offsets, columns, order, visible, mapped, source, target, out, normaliser)
    _attend[_grid(mapped)](*arguments, **_sizes(mapped, target))
    return out, normaliser


def backward(
    offsets: Tensor, columns: Tensor, order: Tensor, visible: Tensor, known: Sequence[Tensor], grad: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of ``mapped``, ``source`` and ``target``.

    ``known`` are these three and the two results of ``forward``.
    """
    mapped, source, target, out, normaliser = known
    heads = target.shape[-1]
    inner = (grad * out).unflatten(-1, (heads, -1)).sum(-1)
    to_mapped, to_source, to_target = map(torch.zeros_like, (mapped, source, target))
    given = (offsets, columns, order, visible, mapped, source, target, normaliser, grad, inner)
    sizes = _sizes(mapped, target)
    _to_targets[_grid(mapped)](*given, to_target, **sizes)
    _to_sources[_grid(mapped)](*given, to_mapped, to_source, **sizes)
    return to_mapped, to_source, to_target


def fits(width: int, heads: int) -> bool:
    """Return whether the kernels support this shape: both numbers must be powers of two."""
    return all(number & (number - 1) == 0 for number in (width, heads))


def _grid(mapped: Tensor) -> tuple[int, int]:
    return mapped.shape[0], mapped.shape[1]


def _sizes(mapped: Tensor, target: Tensor) -> dict[str, int]:
    nodes, pack, width = mapped.shape
    heads = target.shape[-1]
    return {
        "nodes": nodes,
        "pack": pack,
        "heads": heads,
        "width": width // heads,
        "gathered": GATHERED,
        "num_warps": 2,
    }


@triton.jit
def _place(offsets, order, visible, nodes, heads: tl.constexpr, width: tl.constexpr):
    """Return the row and the entries that a program processes. Invisible nodes have no entries."""
    row, seed = tl.load(order + tl.program_id(0)).to(tl.int64), tl.program_id(1)
    head = tl.arange(0, heads)
    column = head[:, None] * width + tl.arange(0, width)[None, :]
    start, end = tl.load(offsets + row), tl.load(offsets + row + 1)
    end = tl.where(tl.load(visible + seed * nodes + row) == 0.0, start, end)
    return row, seed, head, column, start, end


@triton.jit
def _neighbours(
    columns, visible, nodes, pack, seed, head, column, first, end,
    heads: tl.constexpr, width: tl.constexpr, gathered: tl.constexpr,
):  # fmt: skip
    """Return a mask of the visible next neighbours, and the addresses of their scores and values."""
    entry = first + tl.arange(0, gathered)
    other = tl.load(columns + entry, entry < end, 0).to(tl.int64)
    seen = tl.load(visible + seed * nodes + other, entry < end, 0.0) != 0.0
    place = other * pack + seed
    there = place[:, None] * heads + head[None, :]
    return seen, there, place[:, None, None] * (heads * width) + column[None, :, :]


@triton.jit
def _weights(score, shift, seen):
    """Return, for the backward pass, the slopes (gathered, heads) of the leaky ReLU and the edge weights."""
    slope = tl.where(score > 0, 1.0, SLOPE)
    return slope, tl.where(seen[:, None], tl.exp(score * slope - shift), 0.0)


@triton.jit(do_not_specialize=["nodes", "pack"])
def _attend(
    offsets, columns, order, visible, mapped, source, target, out, normaliser, nodes, pack,
    heads: tl.constexpr, width: tl.constexpr, gathered: tl.constexpr,
):  # fmt: skip
    row, seed, head, column, start, end = _place(offsets, order, visible, nodes, heads, width)
    own = tl.load(target + (row * pack + seed) * heads + head)
    largest = tl.full((heads,), float("-inf"), tl.float32)
    total = tl.zeros((heads,), tl.float32)
    summed = tl.zeros((heads, width), tl.float32)
    for first in range(start, end, gathered):
        seen, there, places = _neighbours(
            columns, visible, nodes, pack, seed, head, column, first, end, heads, width, gathered
        )
        score = tl.load(source + there, seen[:, None], 0.0) + own[None, :]
        score = tl.where(score > 0, score, SLOPE * score)
        score = tl.where(seen[:, None], score, float("-inf"))
        raised = tl.maximum(largest, tl.max(score, 0))
        shift = tl.where(raised == float("-inf"), 0.0, raised)  # no visible neighbour so far
        weight = tl.exp(score - shift[None, :])
        before = tl.exp(largest - shift)
        taken = tl.load(mapped + places, seen[:, None, None], 0.0)
        total = total * before + tl.sum(weight, 0)
        summed = summed * before[:, None] + tl.sum(weight[:, :, None] * taken, 0)
        largest = raised
    if end > start:  # the output is initialised with zeros
        tl.store(out + (row * pack + seed) * (heads * width) + column, summed / total[:, None])
        tl.store(normaliser + (row * pack + seed) * heads + head, largest + tl.log(total))


@triton.jit(do_not_specialize=["nodes", "pack"])
def _to_targets(
    offsets, columns, order, visible, mapped, source, target, normaliser, grad, inner, to_target, nodes, pack,
    heads: tl.constexpr, width: tl.constexpr, gathered: tl.constexpr,
):  # fmt: skip
    row, seed, head, column, start, end = _place(offsets, order, visible, nodes, heads, width)
    here = (row * pack + seed) * heads + head
    own, shift, less = tl.load(target + here), tl.load(normaliser + here), tl.load(inner + here)
    given = tl.load(grad + (row * pack + seed) * (heads * width) + column)
    summed = tl.zeros((heads,), tl.float32)
    for first in range(start, end, gathered):
        seen, there, places = _neighbours(
            columns, visible, nodes, pack, seed, head, column, first, end, heads, width, gathered
        )
        score = tl.load(source + there, seen[:, None], 0.0) + own[None, :]
        slope, weight = _weights(score, shift[None, :], seen)
        taken = tl.load(mapped + places, seen[:, None, None], 0.0)
        along = tl.sum(taken * given[None, :, :], 2)
        summed += tl.sum(weight * (along - less[None, :]) * slope, 0)
    tl.store(to_target + here, summed)


@triton.jit(do_not_specialize=["nodes", "pack"])
def _to_sources(
    offsets, columns, order, visible, mapped, source, target, normaliser, grad, inner, to_mapped, to_source,
    nodes, pack,
    heads: tl.constexpr, width: tl.constexpr, gathered: tl.constexpr,
):  # fmt: skip
    """Compute gradients at sources. The adjacency matrix is symmetric, so targets are the neighbours."""
    row, seed, head, column, start, end = _place(offsets, order, visible, nodes, heads, width)
    here = (row * pack + seed) * heads
    own = tl.load(source + here + head)
    given = tl.load(mapped + here * width + column)
    summed = tl.zeros((heads,), tl.float32)
    total = tl.zeros((heads, width), tl.float32)
    for first in range(start, end, gathered):
        seen, there, places = _neighbours(
            columns, visible, nodes, pack, seed, head, column, first, end, heads, width, gathered
        )
        score = tl.load(target + there, seen[:, None], 0.0) + own[None, :]
        shift = tl.load(normaliser + there, seen[:, None], 0.0)
        slope, weight = _weights(score, shift, seen)
        taken = tl.load(grad + places, seen[:, None, None], 0.0)
        along = tl.sum(taken * given[None, :, :], 2)
        less = tl.load(inner + there, seen[:, None], 0.0)
        summed += tl.sum(weight * (along - less) * slope, 0)
        total += tl.sum(weight[:, :, None] * taken, 0)
    tl.store(to_source + here + head, summed)
    tl.store(to_mapped + here * width + column, total)
