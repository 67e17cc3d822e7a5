"""The compiled functions of graph attention on a CPU, in Numba, without memory per edge.

The backward pass computes edge weights again from the normaliser of each target. It visits the targets in
order and adds to their neighbours, so every sum has a fixed order.
"""

from __future__ import annotations

import numpy as np

from hagmeta.sparse.numba.kernels import compiled

SLOPE = np.float32(0.2)  # of the leaky ReLU


@compiled
def attend(seed, offsets, columns, longest, visible, mapped, source, target, out, normaliser) -> None:
    """Write the attention of the nodes of one seed to ``out``, and the logarithms of their sums."""
    nodes, heads = target.shape[1:]
    width = mapped.shape[2] // heads
    found, weights = np.empty(longest, columns.dtype), np.empty(longest, mapped.dtype)
    for row in range(nodes):
        if visible[seed, row] == 0:
            continue
        count = _visible_neighbours(columns[offsets[row] : offsets[row + 1]], visible[seed], found)
        for head in range(heads):
            own = target[seed, row, head]
            largest = -np.inf
            for number in range(count):
                score = source[seed, found[number], head] + own
                weights[number] = score if score > 0 else SLOPE * score
                largest = max(largest, weights[number])
            total = mapped.dtype.type(0)
            for number in range(count):
                weights[number] = np.exp(weights[number] - mapped.dtype.type(largest))
                total += weights[number]
            summed = out[seed, row, head * width : (head + 1) * width]
            for number in range(count):
                weight = weights[number] / total
                taken = mapped[seed, found[number], head * width : (head + 1) * width]
                for j in range(width):
                    summed[j] += weight * taken[j]
            normaliser[seed, row, head] = largest + np.log(total)


@compiled
def attend_backward(
    seed, offsets, columns, longest, visible, mapped, source, target, normaliser, grad, inner,
    to_mapped, to_source, to_target,
) -> None:  # fmt: skip
    """Add the gradients of one seed to ``to_mapped``, ``to_source`` and ``to_target``."""
    nodes, heads = target.shape[1:]
    width = mapped.shape[2] // heads
    found = np.empty(longest, columns.dtype)
    one, slope = mapped.dtype.type(1), mapped.dtype.type(SLOPE)
    for row in range(nodes):
        if visible[seed, row] == 0:
            continue
        count = _visible_neighbours(columns[offsets[row] : offsets[row + 1]], visible[seed], found)
        for head in range(heads):
            own, shift, less = target[seed, row, head], normaliser[seed, row, head], inner[seed, row, head]
            given = grad[seed, row, head * width : (head + 1) * width]
            if not _any(given):
                continue
            summed = mapped.dtype.type(0)
            for number in range(count):
                other = found[number]
                score = source[seed, other, head] + own
                steep = one if score > 0 else slope
                weight = np.exp(score * steep - shift)
                taken = mapped[seed, other, head * width : (head + 1) * width]
                back = to_mapped[seed, other, head * width : (head + 1) * width]
                along = _inner_product(taken, given)
                for j in range(width):
                    back[j] += weight * given[j]
                change = weight * (along - less) * steep
                summed += change
                to_source[seed, other, head] += change
            to_target[seed, row, head] = summed


@compiled
def _visible_neighbours(columns, visible, found):
    """List the visible neighbours. There is no branch, which would often be mispredicted."""
    count = 0
    for entry in range(len(columns)):
        found[count] = columns[entry]
        count += visible[columns[entry]] != 0
    return count


@compiled
def _inner_product(one, other):
    """Sum products in four parts, which the processor adds at the same time."""
    whole = len(one) - len(one) % 4
    a = b = c = d = one.dtype.type(0)
    for j in range(0, whole, 4):
        a += one[j] * other[j]
        b += one[j + 1] * other[j + 1]
        c += one[j + 2] * other[j + 2]
        d += one[j + 3] * other[j + 3]
    for j in range(whole, len(one)):
        a += one[j] * other[j]
    return (a + b) + (c + d)


@compiled
def _any(values):
    for j in range(len(values)):  # noqa: SIM110  # Numba compiles no generators
        if values[j] != 0:
            return True
    return False
