"""Sparse products on a GPU in Triton, which comes with PyTorch's CUDA builds.

Columns are processed in slabs, usually of two seeds, so that gathered values stay in the cache. Rows are cut
into segments, so that one very long row does not delay the others. Sums are added in a fixed order, so that
results are reproducible bit for bit.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from hagmeta.packs import randomness
from hagmeta.sparse.backend import Finish

LONGEST_SEGMENT = 512  # entries
WIDEST_SLAB = 64  # columns, of as many seeds as they hold
GATHERED = 8  # entries at a time
LONG_ROW = 16  # entries; for longer rows, two warps are faster than one

# Triton kernels can only read constants of this type.
GOLDEN = tl.constexpr(randomness.GOLDEN)
MIX_1 = tl.constexpr(randomness.MIX_1)
MIX_2 = tl.constexpr(randomness.MIX_2)


class Segments(NamedTuple):
    """The segments into which the rows of a sparse matrix are cut."""

    row: Tensor  # (segments,)
    start: Tensor  # (segments + 1,) entries
    slot: Tensor  # (segments,) slot for the partial sum of a cut row; -1 for whole rows
    cut_row: Tensor  # (cut rows,)
    cut_start: Tensor  # (cut rows + 1,) slots
    slots: int
    warps: int  # depends on the length of rows


def cut(offsets: np.ndarray, device: torch.device) -> Segments:
    """Cut rows that begin at ``offsets`` (rows + 1,) into segments."""
    length = np.diff(offsets)
    pieces = np.maximum(1, -(-length // LONGEST_SEGMENT))
    row = np.repeat(np.arange(len(length)), pieces)
    first = np.cumsum(pieces) - pieces
    start = offsets[row] + (np.arange(len(row)) - first[row]) * LONGEST_SEGMENT
    in_parts = pieces[row] > 1
    slot = np.where(in_parts, np.cumsum(in_parts) - 1, -1)
    cut_row = np.flatnonzero(pieces > 1)
    cut_start = np.concatenate([[0], np.cumsum(pieces[cut_row])])
    mean = length.sum() / max(1, len(length))

    def upload(array: np.ndarray) -> Tensor:
        return torch.from_numpy(array.astype(np.int32)).to(device)

    return Segments(
        upload(row),
        upload(np.append(start, offsets[-1])),
        upload(slot),
        upload(cut_row),
        upload(cut_start),
        int(in_parts.sum()),
        2 if mean > LONG_ROW else 1,
    )


def product(
    segments: Segments,
    columns: Tensor,
    values: Tensor | None,
    dense: Tensor,
    rows: int,
    scale: Tensor | None = None,
    finish: Finish | None = None,
) -> Tensor:
    """Multiply a sparse matrix by ``dense`` (columns, pack, width); return (rows, pack, width).

    ``scale`` (pack, nodes) weights the columns and rows of a square matrix, separately for each seed.
    """
    dense = dense.contiguous()
    _, pack, width = dense.shape
    out = dense.new_empty(rows, pack, width)
    parts = dense.new_empty(segments.slots, pack, width)
    slab = min(WIDEST_SLAB, triton.next_power_of_2(width))
    seeds = min(triton.next_power_of_2(pack), max(1, WIDEST_SLAB // slab))
    slabs = triton.cdiv(width, slab)
    blocks = triton.cdiv(pack, seeds) * slabs
    # Triton needs a pointer for every argument; pointers of absent arguments are never read.
    tail = (
        dense if scale is None else scale,
        dense if finish is None else finish.bias,
        columns if finish is None or finish.key is None else finish.key,
        columns if finish is None else finish.threshold,
        pack,
        rows,
    )
    constants = {
        "width": width,
        "slabs": slabs,
        "slab": slab,
        "seeds": seeds,
        "scaled": scale is not None,
        "finished": finish is not None,
        "dropped": finish is not None and finish.key is not None,
        "num_warps": segments.warps,
    }
    if len(segments.row):
        _sum_segments[(len(segments.row), blocks)](
            segments.row, segments.start, segments.slot, columns, dense if values is None else values,
            dense, out, parts, *tail, weighted=values is not None, gathered=GATHERED, **constants,
        )  # fmt: skip
    if len(segments.cut_row):
        _sum_parts[(len(segments.cut_row), blocks)](
            segments.cut_row, segments.cut_start, parts, out, *tail, **constants
        )
    return out


@triton.jit
def _slab(
    block, pack,
    width: tl.constexpr, slabs: tl.constexpr, slab: tl.constexpr, seeds: tl.constexpr,
):  # fmt: skip
    """Return the seeds and columns of a block, a mask of the existing ones, and their positions in a row."""
    seed = (block // slabs) * seeds + tl.arange(0, seeds)
    column = (block % slabs) * slab + tl.arange(0, slab)
    inside = (seed < pack)[:, None] & (column < width)[None, :]
    return seed, column, inside, seed[:, None] * width + column[None, :]


@triton.jit(do_not_specialize=["pack", "nodes"])
def _sum_segments(
    segment_row, segment_start, segment_slot, columns, values, dense, out, parts,
    scale, bias, key, threshold, pack, nodes,
    weighted: tl.constexpr, gathered: tl.constexpr, width: tl.constexpr, slabs: tl.constexpr,
    slab: tl.constexpr, seeds: tl.constexpr, scaled: tl.constexpr, finished: tl.constexpr,
    dropped: tl.constexpr,
):  # fmt: skip
    segment = tl.program_id(0)
    seed, column, inside, within = _slab(tl.program_id(1), pack, width, slabs, slab, seeds)
    row = tl.load(segment_row + segment)
    start, end = tl.load(segment_start + segment), tl.load(segment_start + segment + 1)
    slot = tl.load(segment_slot + segment)
    if scaled:
        # Skip nodes that no seed of this block can see.
        seen = tl.load(scale + seed * nodes + row, seed < pack, 0.0)
        end = tl.where(tl.max(seen, 0) == 0.0, start, end)
    total = tl.zeros((gathered, seeds, slab), tl.float32)
    for first in range(start, end, gathered):
        entry = first + tl.arange(0, gathered)
        there = entry < end
        source = tl.load(columns + entry, there, 0)
        place = source.to(tl.int64)[:, None, None] * (pack * width) + within[None, :, :]
        if scaled:
            known = there[:, None] & (seed < pack)[None, :]
            factor = tl.load(scale + seed[None, :] * nodes + source[:, None], known, 0.0)
            taken = tl.load(dense + place, (factor != 0.0)[:, :, None] & inside[None, :, :], 0.0)
            total += taken * factor[:, :, None]
        else:
            taken = tl.load(dense + place, there[:, None, None] & inside[None, :, :], 0.0)
            if weighted:
                taken = taken * tl.load(values + entry, there, 0.0)[:, None, None]
            total += taken
    summed = tl.sum(total, 0)
    if slot >= 0:
        tl.store(parts + slot.to(tl.int64) * (pack * width) + within, summed, inside)
    else:
        _put(
            summed, row, seed, column, inside, within, out, scale, bias, key, threshold, pack, nodes,
            width, scaled, finished, dropped,
        )  # fmt: skip


@triton.jit(do_not_specialize=["pack", "nodes"])
def _sum_parts(
    cut_row, cut_start, parts, out, scale, bias, key, threshold, pack, nodes,
    width: tl.constexpr, slabs: tl.constexpr, slab: tl.constexpr, seeds: tl.constexpr,
    scaled: tl.constexpr, finished: tl.constexpr, dropped: tl.constexpr,
):  # fmt: skip
    number = tl.program_id(0)
    seed, column, inside, within = _slab(tl.program_id(1), pack, width, slabs, slab, seeds)
    row = tl.load(cut_row + number)
    summed = tl.zeros((seeds, slab), tl.float32)
    start, end = tl.load(cut_start + number), tl.load(cut_start + number + 1)
    place = start.to(tl.int64) * (pack * width) + within
    for _ in range(start, end):
        summed += tl.load(parts + place, inside, 0.0)
        place += pack * width
    _put(
        summed, row, seed, column, inside, within, out, scale, bias, key, threshold, pack, nodes,
        width, scaled, finished, dropped,
    )  # fmt: skip


@triton.jit
def random_bytes(key, row, column, width: tl.constexpr):  # noqa: ANN201
    """Return the draws of ``packs.randomness`` for rows and columns that broadcast with each other."""
    words: tl.constexpr = (width + 7) // 8
    word = key + (row * words + column // 8 + 1) * GOLDEN
    word = (word ^ ((word >> 30) & 0x3FFFFFFFF)) * MIX_1
    word = (word ^ ((word >> 27) & 0x1FFFFFFFFF)) * MIX_2
    word = word ^ ((word >> 31) & 0x1FFFFFFFF)
    return (word >> (8 * (column % 8)).to(tl.int64)) & 255


@triton.jit
def _put(
    summed, row, seed, column, inside, within, out, scale, bias, key, threshold, pack, nodes,
    width: tl.constexpr, scaled: tl.constexpr, finished: tl.constexpr, dropped: tl.constexpr,
):  # fmt: skip
    """Scale, finish and write a row of sums (seeds, slab)."""
    if scaled:
        summed = summed * tl.load(scale + seed * nodes + row, seed < pack, 0.0)[:, None]
    if finished:
        summed = tl.maximum(summed + tl.load(bias + within, inside, 0.0), 0.0)
    if dropped:
        keys = tl.load(key + seed, seed < pack, 0)[:, None]
        random_byte = random_bytes(keys, row.to(tl.int64), column[None, :], width)
        least = tl.load(threshold + seed, seed < pack, 0).to(tl.int64)
        summed = tl.where(random_byte >= least[:, None], summed, 0.0)
    tl.store(out + row.to(tl.int64) * (pack * width) + within, summed, inside)


def largest(offsets: Tensor, columns: Tensor, values: Tensor) -> Tensor:
    """Return the maximum of ``values`` (columns, width) over each row; -inf for empty rows."""
    rows, width = len(offsets) - 1, values.shape[1]
    out = values.new_empty(rows, width)
    slab = triton.next_power_of_2(width)
    _largest[(rows,)](
        offsets, columns, values.contiguous(), out,
        width=width, slab=slab, gathered=GATHERED, num_warps=1,
    )  # fmt: skip
    return out


@triton.jit
def _largest(
    offsets, columns, values, out,
    width: tl.constexpr, slab: tl.constexpr, gathered: tl.constexpr,
):  # fmt: skip
    row, column = tl.program_id(0), tl.arange(0, slab)
    start, end = tl.load(offsets + row), tl.load(offsets + row + 1)
    found = tl.full((gathered, slab), float("-inf"), tl.float32)
    for first in range(start, end, gathered):
        entry = first + tl.arange(0, gathered)
        source = tl.load(columns + entry, entry < end, 0)
        place = source.to(tl.int64)[:, None] * width + column[None, :]
        inside = (entry < end)[:, None] & (column < width)[None, :]
        found = tl.maximum(found, tl.load(values + place, inside, float("-inf")))
    tl.store(out + row.to(tl.int64) * width + column, tl.max(found, 0), column < width)


def at_rows(offsets: Tensor, columns: Tensor, scale: Tensor, dense: Tensor, chosen: Tensor) -> Tensor:
    """Compute the ``chosen`` rows of each seed's product: (nodes, pack, width) to (pack, rows, width).

    ``scale`` (pack, nodes) weights columns but not rows.
    """
    pack, rows = chosen.shape
    width = dense.shape[-1]
    out = dense.new_empty(pack, rows, width)
    _at_rows[(rows, pack)](
        offsets, columns, scale, dense.contiguous(), chosen.contiguous(), out,
        rows, pack, scale.shape[1], width=width,
        slab=triton.next_power_of_2(width), gathered=32, num_warps=1,
    )  # fmt: skip
    return out


def from_rows(offsets: Tensor, columns: Tensor, scale: Tensor, part: Tensor, chosen: Tensor) -> Tensor:
    """Compute the transposed of ``at_rows``: ``part`` (pack, rows, width) to (nodes, pack, width)."""
    pack, rows = chosen.shape
    width, nodes = part.shape[-1], scale.shape[1]
    out = part.new_zeros(nodes, pack, width)
    _from_rows[(rows, pack)](
        offsets, columns, scale, part.contiguous(), chosen.contiguous(), out,
        rows, pack, nodes, width=width,
        slab=triton.next_power_of_2(width), gathered=32, num_warps=1,
    )  # fmt: skip
    return out


@triton.jit
def _chosen_row(offsets, chosen, rows, width: tl.constexpr, slab: tl.constexpr):
    """Return the seed and columns of a program, the entries of its row, and its place among chosen rows."""
    number, seed, column = tl.program_id(0), tl.program_id(1), tl.arange(0, slab)
    row = tl.load(chosen + seed * rows + number)
    start, end = tl.load(offsets + row), tl.load(offsets + row + 1)
    return seed, column, start, end, (seed * rows + number) * width + column


@triton.jit
def _neighbours(
    columns, scale, pack, nodes, seed, column, first, end, width: tl.constexpr, gathered: tl.constexpr
):  # fmt: skip
    """Return the addresses of the next neighbours, a mask of the visible ones, and their weights."""
    entry = first + tl.arange(0, gathered)
    source = tl.load(columns + entry, entry < end, 0)
    factor = tl.load(scale + seed * nodes + source, entry < end, 0.0)
    place = source.to(tl.int64)[:, None] * (pack * width) + seed * width + column[None, :]
    return place, (factor != 0.0)[:, None] & (column < width)[None, :], factor


@triton.jit(do_not_specialize=["rows", "pack", "nodes"])
def _at_rows(
    offsets, columns, scale, dense, chosen, out, rows, pack, nodes,
    width: tl.constexpr, slab: tl.constexpr, gathered: tl.constexpr,
):  # fmt: skip
    seed, column, start, end, chosen_place = _chosen_row(offsets, chosen, rows, width, slab)
    total = tl.zeros((gathered, slab), tl.float32)
    for first in range(start, end, gathered):
        place, inside, factor = _neighbours(
            columns, scale, pack, nodes, seed, column, first, end, width, gathered
        )
        total += tl.load(dense + place, inside, 0.0) * factor[:, None]
    tl.store(out + chosen_place, tl.sum(total, 0), column < width)


@triton.jit(do_not_specialize=["rows", "pack", "nodes"])
def _from_rows(
    offsets, columns, scale, part, chosen, out, rows, pack, nodes,
    width: tl.constexpr, slab: tl.constexpr, gathered: tl.constexpr,
):  # fmt: skip
    seed, column, start, end, chosen_place = _chosen_row(offsets, chosen, rows, width, slab)
    given = tl.load(part + chosen_place, column < width, 0.0)
    for first in range(start, end, gathered):
        place, inside, factor = _neighbours(
            columns, scale, pack, nodes, seed, column, first, end, width, gathered
        )
        tl.atomic_add(out + place, factor[:, None] * given[None, :], inside)
