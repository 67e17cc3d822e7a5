"""Choose how many directions count in the penalty for uncertain class means, by leaving out single labels."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from hagmeta.nn.played_classes import SHARPNESS
from hagmeta.nn.two_covariances import TwoCovariances, Within

PARTS = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2)  # of all directions
TOLERANCE = 0.02  # the largest part is chosen whose loss is at most this much above the lowest


def chosen_part(model: TwoCovariances, within: Within) -> Tensor:
    """Return the part () of all directions that should count; 1 if no new class has readable labels.

    Each label of a new class is predicted by a model without it. The loss is the cross-entropy of these and
    of the labels of known classes, after the best sharpness. New and known classes have the same weight.
    """
    known, rows = within.known, within.labels.any(-1).nonzero().squeeze(-1)
    own = within.labels[rows].argmax(-1)
    new = own >= known
    if within.kept or not new.any():
        return model.total.new_ones(())
    likely = model.log_likelihood(within.count, model.total, model.inner)[rows]
    rest = model.remaining(within.count)
    # The covariance was estimated from the labels of known classes, so they lie closer than other nodes.
    likely -= (~new).unsqueeze(-1) * _further(model, within, rows, own) / (1 + rest)
    penalty = (rest.log1p() * model.directions / 2).repeat(len(rows), 1)
    some, of = new.nonzero().squeeze(-1), own[new]
    others = within.count[of] - 1
    without = model.log_likelihood(others, model.total[of] - model.points_of(rows[some]))
    likely[some, of] = without[rows[some]].diagonal()
    penalty[some, of] = model.remaining(others).log1p() * model.directions / 2
    weights = _balanced(own, known, within.labels.shape[-1])
    losses = torch.stack([_loss(likely + (1 - part) * penalty, own, weights) for part in PARTS])
    close = losses <= (1 + TOLERANCE) * losses.amin()
    return likely.new_tensor(PARTS)[close.to(torch.uint8).argmax()]


def _further(model: TwoCovariances, within: Within, rows: Tensor, own: Tensor) -> Tensor:
    """Return how much larger (rows, 1) half the squared residual of a known node would be if it were new."""
    free = within.free > 0
    aside = model.aside[rows]
    if not free.any():
        return torch.zeros_like(aside)
    usual = torch.stack([aside[own == number].mean() for number in range(within.known)]).nanmean()
    return 0.5 * (model.aside[free].mean() / usual - 1).clamp(min=0) * aside


def _balanced(own: Tensor, known: int, classes: int) -> Tensor:
    """Return weights (rows,) that sum to 1, where known and new classes weigh the same, and so do classes."""
    sizes = F.one_hot(own, classes).sum(0)
    sides = torch.where(torch.arange(classes, device=own.device) < known, 0, 1)
    met = F.one_hot(sides[sizes > 0], 2).sum(0)  # classes with labels on each side
    return 0.5 / sizes[own] / met[sides[own]]


def _loss(logits: Tensor, own: Tensor, weights: Tensor) -> Tensor:
    sharp = torch.stack([(factor * logits).log_softmax(-1) for factor in SHARPNESS])
    picked = sharp.gather(-1, own.expand(len(SHARPNESS), -1).unsqueeze(-1)).squeeze(-1)
    return -(picked @ weights.to(picked.dtype)).amax()
