"""Multinomial logistic regression, solved by a fixed number of Newton steps that run under vmap."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

NEWTON_STEPS, CG_STEPS = 10, 12
STEP_LENGTHS = (1.0, 0.5, 0.25, 0.125, 0.0)  # the one with the lowest loss is taken
DONE = 1e-12  # conjugate gradients stop when the squared residual has shrunk by this factor


class Chunk(NamedTuple):
    """Some labelled rows. Rows of weight 0 do not count."""

    rows: Tensor  # (rows, width), with a last column of ones
    share: Tensor  # (rows, 1) weights
    label: Tensor  # (rows, classes) one-hot


def chunk(features: Tensor, share: Tensor, owner: Tensor, classes: int) -> Chunk:
    """Return a chunk of `features` (rows, width), with weights (rows, 1) and class positions (rows, 1)."""
    label = (owner == torch.arange(classes, device=owner.device)).to(features.dtype)
    return Chunk(F.pad(features, (0, 1), value=1.0), share, label)


def logistic_regression(chunks: Sequence[Chunk], penalty: Tensor) -> Tensor:
    """Return weights (width + 1, classes) that minimise the weighted cross-entropy plus an L2 penalty.

    The loss is the sum of ``share * cross-entropy`` over all rows, plus half the `penalty` times the squared
    weights. The last row is the intercept, which has no penalty.

    Newton's method, with steps by conjugate gradients. Sums run over chunks in their order, so that chunks of
    weight 0 at the end do not change a bit.
    """
    width, classes = chunks[0].rows.shape[-1], chunks[0].label.shape[-1]
    ridge = penalty.to(chunks[0].rows.dtype) * F.pad(chunks[0].rows.new_ones(width - 1, 1), (0, 0, 0, 1))
    # All probabilities are 1 / classes at the start, where this is the diagonal block of the Hessian.
    moment = sum((each.rows * each.share).mT @ each.rows for each in chunks)
    factor = torch.linalg.cholesky_ex(moment / classes + torch.diag_embed(ridge.squeeze(-1))).L
    weights = chunks[0].rows.new_zeros(width, classes)
    for _ in range(NEWTON_STEPS):
        slope, curvature = _derivatives(chunks, ridge, weights)
        step = _conjugate_gradients(curvature, slope, factor)
        weights = weights - _length(chunks, ridge, weights, step) * step
    return weights


def _derivatives(
    chunks: Sequence[Chunk], ridge: Tensor, weights: Tensor
) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """Return the gradient of the loss at `weights`, and a function that multiplies with its Hessian."""
    likely = [(each.rows @ weights).softmax(-1) for each in chunks]
    slope = ridge * weights
    for each, odds in zip(chunks, likely, strict=True):
        slope = slope + each.rows.mT @ (each.share * (odds - each.label))

    def curvature(direction: Tensor) -> Tensor:
        product = ridge * direction
        for each, odds in zip(chunks, likely, strict=True):
            change = odds * (each.rows @ direction)
            change = change - odds * change.sum(-1, keepdim=True)
            product = product + each.rows.mT @ (each.share * change)
        return product

    return slope, curvature


def _conjugate_gradients(curvature: Callable[[Tensor], Tensor], right: Tensor, factor: Tensor) -> Tensor:
    """Return an approximate solution of ``curvature(solution) = right``.

    `factor` is the Cholesky factor of the preconditioner, which is the same for all classes.
    """
    solution, residual = torch.zeros_like(right), right
    direction = near = torch.cholesky_solve(residual, factor)
    size = first = (residual * near).sum()
    for _ in range(CG_STEPS):
        product = curvature(direction)
        bend = (direction * product).sum()
        going = (size > DONE * first) & (bend > 0)
        length = torch.where(going, size / torch.where(going, bend, 1), 0)
        solution, residual = solution + length * direction, residual - length * product
        near = torch.cholesky_solve(residual, factor)
        before, size = size, (residual * near).sum()
        direction = near + torch.where(going, size / torch.where(going, before, 1), 0) * direction
    return solution


def _length(chunks: Sequence[Chunk], ridge: Tensor, weights: Tensor, step: Tensor) -> Tensor:
    """Return the factor of `STEP_LENGTHS` by which to go along `step` from `weights`."""
    losses = [(ridge * (weights - length * step).square()).sum() / 2 for length in STEP_LENGTHS]
    for each in chunks:
        start, change = each.rows @ weights, each.rows @ step
        for position, length in enumerate(STEP_LENGTHS):
            logits = start - length * change
            surprise = logits.logsumexp(-1) - (each.label * logits).sum(-1)
            losses[position] = losses[position] + (each.share.squeeze(-1) * surprise).sum()
    best = torch.stack(losses).argmin()
    chosen = torch.arange(len(losses), device=best.device) == best
    lengths = torch.stack([torch.full_like(losses[0], length) for length in STEP_LENGTHS])
    return (chosen * lengths).sum()
