"""The compiled functions of sparse products on a CPU, in Numba; ``backend`` calls them.

Values are laid out seed by seed, so that the rows which a seed gathers stay in the cache. A compiled function
gets an array as one axis of numbers and two strides, because the parameters of a pack are laid out otherwise.
Every number is summed in the order of the entries of its row. No bit depends on the pack or on the threads.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from hagmeta.packs import randomness

GOLDEN = np.uint64(randomness.GOLDEN % 2**64)
MIX_1 = np.uint64(randomness.MIX_1 % 2**64)
MIX_2 = np.uint64(randomness.MIX_2 % 2**64)

compiled = njit(nogil=True, cache=True, error_model="numpy")


# One long function: a call for every row would count references to its arrays, longer than most rows take.
@compiled
def multiply(
    first, last, offsets, columns, values, longest, dense, dense_seed, dense_row, out, out_seed, out_row,
    left, right, bias, key, threshold, everywhere, pack, width,
) -> None:  # fmt: skip
    """Add the rows from ``first`` to ``last`` of weighted products to ``out``, and finish them."""
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
def gather(offsets, columns, dense, dense_seed, dense_row, out, scale, chosen) -> None:
    """Add the ``chosen`` rows of the product with ``dense`` to ``out``."""
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
def scatter(offsets, columns, part, part_seed, part_row, out, scale, chosen) -> None:
    """Add ``part``, the values of the ``chosen`` rows, to the neighbours of these rows in ``out``."""
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
def mask(grad, grad_seed, grad_row, output, back, live, summed) -> None:
    """Write ``grad`` where ``output`` is positive to ``back``, which rows are not zero, and their sums."""
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
def keep_live(values, values_seed, values_row, width, live) -> None:
    """Set ``live`` (pack, rows) to 0 for the rows of ``values`` that are zero."""
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
def mark(offsets, columns, scale, chosen, near, far) -> None:
    """Mark the visible neighbours of the ``chosen`` rows in ``near``, and their neighbours in ``far``."""
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
