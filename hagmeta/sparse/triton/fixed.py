"""Dense products with propagated inputs on a GPU, in Triton.

A product reads the inputs once and does the other work of a hidden layer in the same pass. Numbers are split
into three parts (``tf32x3``), so that tensor cores multiply them with 32-bit precision.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from hagmeta.sparse.backend import Finish
from hagmeta.sparse.triton.kernels import random_bytes

INNER = 32  # inputs, or rows, that a block multiplies at a time; inputs are padded to a multiple of it
ROWS = 128  # rows, or inputs, of a block
CHUNK = 2048  # rows per partial sum. If another seed has more chunks, only zeros are added.
WIDEST_SLAB = 64  # columns of a block


class Inputs(NamedTuple):
    """The propagated inputs of a pack."""

    matrix: Tensor  # (seeds, rows, inputs), padded with zeros
    rows: Tensor  # (seeds, rows) nodes; -1 for padding
    places: Tensor  # (pack,) the seed of each member, as an index of `matrix`
    inputs: int  # without padding
    nodes: int  # of the whole graph


class Chosen(NamedTuple):
    """Some rows of each member of a pack."""

    rows: Tensor  # (pack, rows) the chosen ones first
    number: Tensor  # (pack,) how many are chosen


def _slabs(width: int) -> tuple[int, int]:
    """Return the columns of a block, and how many blocks cover `width` columns."""
    slab = min(WIDEST_SLAB, max(16, triton.next_power_of_2(width)))
    return slab, triton.cdiv(width, slab)


def spread(
    fixed: Inputs, weights: Tensor, finish: Finish | None = None, chosen: Chosen | None = None
) -> Tensor:
    """Multiply: (pack, inputs, width) to (nodes, pack, width), and finish a hidden layer, if asked.

    Nodes without a row, or without a chosen one, get zeros.
    """
    pack, _, width = weights.shape
    _, count, inputs = fixed.matrix.shape
    out = weights.new_zeros(fixed.nodes, pack, width)
    weights = torch.nn.functional.pad(weights, (0, 0, 0, inputs - weights.shape[1])).contiguous()
    slab, slabs = _slabs(width)
    key = None if finish is None else finish.key
    _spread[(pack * slabs, triton.cdiv(count, ROWS))](
        fixed.matrix, fixed.rows, fixed.places, weights, out,
        out if finish is None else finish.bias, fixed.rows if key is None else key,
        fixed.rows if finish is None else finish.threshold, *(chosen or (fixed.rows, fixed.rows)),
        count, pack, inputs,
        width=width, slab=slab, slabs=slabs, block=ROWS, inner=INNER, finished=finish is not None,
        dropped=key is not None, listed=chosen is not None, num_warps=8, num_stages=3,
    )  # fmt: skip
    return out


def collect(
    fixed: Inputs, dense: Tensor, output: Tensor | None = None, chosen: Chosen | None = None
) -> tuple[Tensor, Tensor]:
    """Multiply by the transposed inputs: (nodes, pack, width) to (pack, inputs, width).

    Also return the sums (pack, width) over all rows. Values count as 0 where ``output`` (nodes, pack, width)
    is 0, and in rows that are not chosen.
    """
    _, pack, width = dense.shape
    _, count, inputs = fixed.matrix.shape
    chunks = triton.cdiv(count, CHUNK)
    parts = dense.new_empty(chunks, pack, inputs, width)
    sums = dense.new_empty(chunks, pack, width)
    slab, slabs = _slabs(width)
    inner = 2 * INNER if slab <= 32 else INNER
    dense = dense.contiguous()
    block = min(ROWS, triton.next_power_of_2(inputs))
    _collect[(pack * slabs, triton.cdiv(inputs, block), chunks)](
        fixed.matrix, fixed.rows, fixed.places, dense, dense if output is None else output, parts, sums,
        *(chosen or (fixed.rows, fixed.rows)), count, pack, inputs,
        width=width, slab=slab, slabs=slabs, block=block, inner=inner, chunk=CHUNK,
        masked=output is not None, listed=chosen is not None, num_warps=4, num_stages=3,
    )  # fmt: skip
    return parts.sum(0)[:, : fixed.inputs], sums.sum(0)


@triton.jit(do_not_specialize=["count", "pack"])
def _spread(
    matrix, rows, places, weights, out, bias, key, threshold, chosen, chosen_count, count, pack, inputs,
    width: tl.constexpr, slab: tl.constexpr, slabs: tl.constexpr, block: tl.constexpr,
    inner: tl.constexpr, finished: tl.constexpr, dropped: tl.constexpr, listed: tl.constexpr,
):  # fmt: skip
    member, column = tl.program_id(0) // slabs, tl.program_id(0) % slabs * slab + tl.arange(0, slab)
    start, end = tl.program_id(1) * block, count
    if listed:
        end = tl.load(chosen_count + member).to(tl.int32)
        if start >= end:
            return
    number = start + tl.arange(0, block)
    there = number < end
    if listed:
        number = tl.load(chosen + member * count + number, there, 0).to(tl.int32)
    row = tl.load(places + member).to(tl.int64) * count + number
    node = tl.load(rows + row, there, -1)
    one = tl.arange(0, inner)
    values = matrix + row[:, None] * inputs + one[None, :]
    factors = weights + (member * inputs + one)[:, None] * width + column[None, :]
    total = tl.zeros((block, slab), tl.float32)
    for first in range(0, inputs, inner):
        value = tl.load(values + first, there[:, None], 0.0)
        factor = tl.load(factors + first * width, (column < width)[None, :], 0.0)
        total = tl.dot(value, factor, total, input_precision="tf32x3")
    if finished:
        total = tl.maximum(total + tl.load(bias + member * width + column, column < width, 0.0)[None, :], 0.0)
    if dropped:
        random_byte = random_bytes(tl.load(key + member), node[:, None], column[None, :], width)
        least = tl.load(threshold + member).to(tl.int64)
        total = tl.where(random_byte >= least, total, 0.0)
    inside = (node >= 0)[:, None] & (column < width)[None, :]
    tl.store(out + ((node * pack + member) * width)[:, None] + column[None, :], total, inside)


@triton.jit(do_not_specialize=["count", "pack"])
def _collect(
    matrix, rows, places, dense, output, parts, sums, chosen, chosen_count, count, pack, inputs,
    width: tl.constexpr, slab: tl.constexpr, slabs: tl.constexpr, block: tl.constexpr,
    inner: tl.constexpr, chunk: tl.constexpr, masked: tl.constexpr, listed: tl.constexpr,
):  # fmt: skip
    member, column = tl.program_id(0) // slabs, tl.program_id(0) % slabs * slab + tl.arange(0, slab)
    which = tl.program_id(1) * block + tl.arange(0, block)
    place = tl.load(places + member).to(tl.int64) * count
    total = tl.zeros((block, slab), tl.float32)
    whole = tl.zeros((slab,), tl.float32)
    start, last = tl.program_id(2) * chunk, count
    if listed:
        last = tl.load(chosen_count + member).to(tl.int32)
    for first in range(start, tl.minimum(start + chunk, last), inner):
        number = first + tl.arange(0, inner)
        there = number < last
        if listed:
            number = tl.load(chosen + member * count + number, there, 0).to(tl.int32)
        node = tl.load(rows + place + number, there, -1)
        inside = (node >= 0)[:, None] & (column < width)[None, :]
        address = ((node * pack + member) * width)[:, None] + column[None, :]
        given = tl.load(dense + address, inside, 0.0)
        if masked:
            given = tl.where(tl.load(output + address, inside, 0.0) > 0.0, given, 0.0)
        known = (which < inputs)[:, None] & there[None, :]
        value = tl.load(matrix + (place + number)[None, :] * inputs + which[:, None], known, 0.0)
        total = tl.dot(value, given, total, input_precision="tf32x3")
        whole += tl.sum(given, 0)
    part = (tl.program_id(2).to(tl.int64) * pack + member) * inputs
    inside = (which < inputs)[:, None] & (column < width)[None, :]
    tl.store(parts + (part + which)[:, None] * width + column[None, :], total, inside)
    if tl.program_id(1) == 0:
        tl.store(sums + (tl.program_id(2) * pack + member) * width + column, whole, column < width)
