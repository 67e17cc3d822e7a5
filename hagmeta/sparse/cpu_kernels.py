"""Sparse products on a CPU, compiled by Numba.

Values are laid out seed by seed, so that the rows which a seed gathers stay in the cache. A compiled function
gets an array as one axis of numbers and two strides, because the parameters of a pack are laid out otherwise.
Every number is summed in the order of the entries of its row. No bit depends on the pack or on the threads.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from numba import njit
from torch import Tensor

from hagmeta.packs import randomness

GOLDEN = np.uint64(randomness.GOLDEN % 2**64)
MIX_1 = np.uint64(randomness.MIX_1 % 2**64)
MIX_2 = np.uint64(randomness.MIX_2 % 2**64)
LEAST_SHARE = 100_000  # multiplications; below, starting a thread takes longer than it saves

compiled = njit(nogil=True, cache=True, error_model="numpy")


class Rows(NamedTuple):
    """The entries of a sparse matrix by row."""

    offsets: np.ndarray  # (rows + 1,)
    columns: np.ndarray  # (entries,)
    values: np.ndarray  # (entries,); empty if all are 1
    longest: int  # entries of a row


def rows_of(offsets: Tensor, columns: Tensor, values: Tensor | None) -> Rows:
    """Return the rows of a matrix. Without ``values``, all entries are 1."""
    lengths = offsets[1:] - offsets[:-1]
    values = torch.empty(0) if values is None else values
    longest = int(lengths.max()) if len(lengths) else 0
    # One more, because the last column found may have the weight 0.
    return Rows(offsets.numpy(), columns.numpy(), values.numpy(), longest + 1)


class Finish(NamedTuple):
    """The operations of a hidden layer after the sum: bias, ReLU and dropout."""

    bias: Tensor  # (pack, width)
    key: Tensor  # (pack,)
    threshold: Tensor  # (pack,) from 0 to 256; values with smaller random bytes are dropped
    everywhere: bool  # also for rows of weight 0, whose sum is 0


def product(
    rows: Rows,
    dense: Tensor,
    left: Tensor | None = None,
    right: Tensor | None = None,
    finish: Finish | None = None,
) -> Tensor:
    """Return diag(left) @ matrix @ diag(right) @ dense for each seed: (pack, rows, width).

    Args:
        rows: The matrix, which all seeds share.
        dense: Values (pack, columns, width).
        left: Weights (pack, rows). Rows of weight 0 are 0.
        right: Weights (pack, columns). Columns of weight 0 are not read.
        finish: What a hidden layer does after the product.
    """
    count, (pack, columns, width) = len(rows.offsets) - 1, dense.shape
    out = dense.new_zeros(pack, count, width)
    _in_parts(
        _multiply,
        _bounds(rows.offsets, pack * width),
        (
            *rows,
            *_strided(dense),
            *_strided(out),
            _weights(left, count, dense),
            _weights(right, columns, dense),
            *_finishing(finish, dense),
            pack,
            width,
        ),
    )
    return out


def at_rows(rows: Rows, scale: Tensor, dense: Tensor, chosen: Tensor) -> Tensor:
    """Compute the ``chosen`` rows of each seed's product: (pack, nodes, width) to (pack, rows, width).

    ``scale`` (pack, nodes) weights columns and rows.
    """
    pack, count = chosen.shape
    out = dense.new_zeros(pack, count, dense.shape[-1])
    _gather(
        rows.offsets,
        rows.columns,
        *_strided(dense),
        out.numpy(),
        as_array(scale.to(dense.dtype)),
        as_array(chosen),
    )
    return out


def from_rows(rows: Rows, scale: Tensor, part: Tensor, chosen: Tensor) -> Tensor:
    """Compute the transposed of ``at_rows``: ``part`` (pack, rows, width) to (pack, nodes, width)."""
    out = part.new_zeros(len(part), scale.shape[1], part.shape[-1])
    _scatter(
        rows.offsets,
        rows.columns,
        *_strided(part),
        out.numpy(),
        as_array(scale.to(part.dtype)),
        as_array(chosen),
    )
    return out


def relu_backward(grad: Tensor, output: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return ``grad`` (pack, rows, width) where ``output`` is positive, its live rows, and their sum.

    Live rows have a number other than 0. The other rows are not even set: products skip them.
    """
    output = output.contiguous()
    back, live = torch.empty_like(output), output.new_empty(output.shape[:2])
    summed = output.new_empty(output.shape[0], output.shape[2])
    _mask(*_strided(grad), as_array(output), back.numpy(), live.numpy(), summed.numpy())
    return back, live, summed


def live_rows(values: Tensor, needed: Tensor | None) -> Tensor:
    """Return 1 for the ``needed`` rows of ``values`` (pack, rows, width) with a number other than 0."""
    live = values.new_ones(values.shape[:2]) if needed is None else needed.to(values.dtype, copy=True)
    live = live.contiguous()
    _keep_live(*_strided(values), values.shape[-1], live.numpy())
    return live


def neighbourhood(rows: Rows, scale: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor]:
    """Mark the visible neighbours of the ``chosen`` rows (pack, rows), and in turn their neighbours."""
    near, far = scale.new_zeros(scale.shape), scale.new_zeros(scale.shape)
    _mark(rows.offsets, rows.columns, as_array(scale), as_array(chosen), near.numpy(), far.numpy())
    return near, far


def as_array(values: Tensor) -> np.ndarray:
    """Return a contiguous array."""
    array: np.ndarray = values.detach().contiguous().numpy()
    return array


def _strided(values: Tensor) -> tuple[np.ndarray, int, int]:
    """Return all numbers of (pack, rows, width) on one axis, and the strides of seeds and rows."""
    values = values.detach()
    if values.stride(-1) != 1:
        values = values.contiguous()
    seed, row, _ = values.stride()
    pack, rows, width = values.shape
    span = (pack - 1) * seed + (rows - 1) * row + width if values.numel() else 0
    return values.as_strided((span,), (1,)).numpy(), seed, row


def _weights(weights: Tensor | None, count: int, like: Tensor) -> np.ndarray:
    """Return weights (pack, count), or one row of ones for all seeds."""
    if weights is None:
        return np.ones((1, count), as_array(like[:0]).dtype)
    return as_array(weights.to(like.dtype))


def _finishing(finish: Finish | None, like: Tensor) -> tuple[np.ndarray, np.ndarray, np.ndarray, bool]:
    """Return the parts of ``finish``; empty arrays if nothing follows the product."""
    if finish is None:
        nothing = np.empty(0, np.uint64)
        return np.empty((0, 0), as_array(like[:0]).dtype), nothing, nothing, False
    drawn = as_array(finish.key).view(np.uint64), as_array(finish.threshold).view(np.uint64)
    return as_array(finish.bias), *drawn, finish.everywhere


def _bounds(offsets: np.ndarray, columns: int) -> np.ndarray:
    """Return where to cut the rows into parts with equally many entries, one for each of torch's threads."""
    parts = max(1, min(torch.get_num_threads(), int(offsets[-1]) * columns // LEAST_SHARE))
    if parts == 1:
        return np.array([0, len(offsets) - 1])
    cuts = np.searchsorted(offsets, np.linspace(0, offsets[-1], parts + 1)[1:-1])
    return np.array([0, *cuts, len(offsets) - 1])


def _in_parts(kernel: Callable[..., None], bounds: np.ndarray, arguments: tuple[object, ...]) -> None:
    """Call ``kernel`` for each part of the rows, in as many threads."""
    parts = [(int(first), int(last)) for first, last in pairwise(bounds)]
    _in_threads([partial(kernel, *part, *arguments) for part in parts])


def for_each_seed(kernel: Callable[..., None], rows: Rows, arrays: Sequence[np.ndarray]) -> None:
    """Call ``kernel`` for each seed of ``arrays`` (pack, ...), in torch's number of threads."""
    calls = [
        partial(kernel, seed, rows.offsets, rows.columns, rows.longest, *arrays)
        for seed in range(len(arrays[0]))
    ]
    _in_threads(calls)


def _in_threads(calls: Sequence[Callable[[], None]]) -> None:
    threads = min(torch.get_num_threads(), len(calls))
    if threads == 1:
        for call in calls:
            call()
        return
    for done in _pool(os.getpid(), threads).map(lambda call: call(), calls):
        assert done is None


@cache
def _pool(process: int, threads: int) -> ThreadPoolExecutor:
    """Return the threads of a process. A forked process has none of its parent's."""
    return ThreadPoolExecutor(threads)


# One long function: a call for every row would count references to its arrays, longer than most rows take.
@compiled
def _multiply(
    first, last, offsets, columns, values, longest, dense, dense_seed, dense_row, out, out_seed, out_row,
    left, right, bias, key, threshold, everywhere, pack, width,
):  # fmt: skip
    found, weights = np.empty(longest, np.int64), np.empty(longest, dense.dtype)
    zero = dense.dtype.type(0)  # a plain 0 would make results float64
    words = (width + 7) // 8
    for seed in range(pack):
        own_seed, other_seed = min(seed, len(left) - 1), min(seed, len(right) - 1)
        for row in range(first, last):
            own = left[own_seed, row]
            if own == 0 and not everywhere:
                continue
            # List what to add without a branch, which would often be mispredicted.
            count = 0
            for entry in range(offsets[row], offsets[row + 1] if own != 0 else offsets[row]):
                weight = right[other_seed, columns[entry]]
                if len(values):
                    weight *= values[entry]
                found[count] = seed * dense_seed + columns[entry] * dense_row
                weights[count] = weight
                count += weight != 0
            place = seed * out_seed + row * out_row
            total = out[place : place + width]
            for number in range(count):
                weight, place = weights[number], found[number]
                taken = dense[place : place + width]
                for j in range(width):
                    total[j] += weight * taken[j]
            for j in range(width):
                total[j] *= own
            if len(bias):
                for j in range(width):
                    summed = total[j] + bias[seed, j]
                    total[j] = summed if summed > zero else zero
                if threshold[seed] > 0:
                    for word in range(words):
                        bits = key[seed] + np.uint64(row * words + word + 1) * GOLDEN
                        bits = (bits ^ (bits >> np.uint64(30))) * MIX_1
                        bits = (bits ^ (bits >> np.uint64(27))) * MIX_2
                        bits = bits ^ (bits >> np.uint64(31))
                        _drop(total[8 * word : 8 * word + 8], bits, threshold[seed])


@compiled
def _drop(values, bits, threshold):
    """Drop up to eight numbers, those whose byte is below ``threshold``."""
    zero = values.dtype.type(0)
    if len(values) == 8:
        for j in range(8):  # a constant, so that the compiler makes it one vector
            value = values[j]  # read it before the choice, which then needs no branch
            values[j] = value if (bits >> np.uint64(8 * j)) & np.uint64(255) >= threshold else zero
    else:
        for j in range(len(values)):
            value = values[j]
            values[j] = value if (bits >> np.uint64(8 * j)) & np.uint64(255) >= threshold else zero


@compiled
def _gather(offsets, columns, dense, dense_seed, dense_row, out, scale, chosen):
    pack, count, width = out.shape
    for seed in range(pack):
        for number in range(count):
            row = chosen[seed, number]
            total = out[seed, number]
            for entry in range(offsets[row], offsets[row + 1]):
                column = columns[entry]
                weight = scale[seed, column]
                if weight != 0:
                    place = seed * dense_seed + column * dense_row
                    taken = dense[place : place + width]
                    for j in range(width):
                        total[j] += weight * taken[j]
            for j in range(width):
                total[j] *= scale[seed, row]


@compiled
def _scatter(offsets, columns, part, part_seed, part_row, out, scale, chosen):
    pack, count = chosen.shape
    width = out.shape[2]
    for seed in range(pack):
        for number in range(count):
            row = chosen[seed, number]
            place = seed * part_seed + number * part_row
            given = part[place : place + width]
            for entry in range(offsets[row], offsets[row + 1]):
                column = columns[entry]
                weight = scale[seed, column] * scale[seed, row]
                if weight != 0:
                    total = out[seed, column]
                    for j in range(width):
                        total[j] += weight * given[j]


@compiled
def _mask(grad, grad_seed, grad_row, output, back, live, summed):
    pack, rows, width = output.shape
    zero = output.dtype.type(0)
    total = np.empty(width, np.float64)  # a sum over all nodes would lose digits in single precision
    for seed in range(pack):
        total[:] = 0
        for row in range(rows):
            place = seed * grad_seed + row * grad_row
            given = grad[place : place + width]
            live[seed, row] = _is_live(given)
            if live[seed, row]:
                kept, there = back[seed, row], output[seed, row]
                for j in range(width):
                    value = given[j]  # read it before the choice, which then needs no branch
                    kept[j] = value if there[j] > zero else zero
                for j in range(width):
                    total[j] += kept[j]
        for j in range(width):
            summed[seed, j] = total[j]


@compiled
def _keep_live(values, values_seed, values_row, width, live):
    pack, rows = live.shape
    for seed in range(pack):
        for row in range(rows):
            if live[seed, row]:
                place = seed * values_seed + row * values_row
                live[seed, row] = _is_live(values[place : place + width])


@compiled
def _is_live(values):
    if values[0] != 0:
        return True
    live = False
    for j in range(len(values)):  # without an early exit, so that it runs in vectors
        live |= values[j] != 0
    return live


@compiled
def _mark(offsets, columns, scale, chosen, near, far):
    pack, count = chosen.shape
    for seed in range(pack):
        for number in range(count):
            _mark_row(offsets, columns, scale[seed], chosen[seed, number], near[seed])
        for row in range(near.shape[1]):
            if near[seed, row]:
                _mark_row(offsets, columns, scale[seed], row, far[seed])


@compiled
def _mark_row(offsets, columns, scale, row, marks):
    for entry in range(offsets[row], offsets[row + 1]):
        if scale[columns[entry]] != 0:
            marks[columns[entry]] = 1
