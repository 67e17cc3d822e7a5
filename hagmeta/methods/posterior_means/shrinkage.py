"""Choose how far to shrink a covariance, by sessions in which known classes are new."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from hagmeta.methods.posterior_means.model import TwoCovariances, Whitened, Within

SHARES = (0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.8)
TOLERANCE = 0.05  # the smallest share is chosen whose loss is at most this much above the lowest
FEWEST = 4  # known classes
FOLDS = 3  # groups of known classes, each new in one of the simulated sessions
DRAWS = 4  # of the supports of new classes
HELD_OUT = 0.1  # share of the labels of the other classes, which are queries
MOST_QUERIES = 64  # per class, with the supports of new classes; fewer with more than 32 known classes
QUERIES = 32 * MOST_QUERIES  # of all classes together, so that the time is linear in classes
SHARPNESS = (0.01, 0.03, 0.06, 0.09, 0.15, 0.2, 0.3, 0.45, 0.6, 0.9)  # factors of log-likelihoods


def chosen_share(
    features: Tensor, labels: Tensor, columns: int, shots: int, random_numbers: Sequence[Tensor]
) -> Tensor:
    """Return the smallest share () whose loss in simulated sessions is near the lowest; 0 with few classes.

    In each fold, some classes have only `shots` labels. The covariances are estimated from the others. The
    loss is the cross-entropy of queries of both, after the best sharpness. New and other classes have the
    same weight.

    Args:
        features: (nodes, width) features of the visible nodes, of which the last `columns` are an encoder's.
        labels: (nodes, known) labels of the known classes.
        columns: the number of columns that do not count in the target of the shrinkage.
        shots: labels of a new class.
        random_numbers: random numbers: (known,) to order the classes, then 1 + `DRAWS` arrays (nodes,).
    """
    known = labels.shape[-1]
    if known < FEWEST:
        return features.new_zeros(())
    order, *drawn = random_numbers
    folds = min(FOLDS, known // 2)
    place = order.argsort().argsort()
    losses = torch.cat(
        [_fold_losses(features, labels, place % folds == f, columns, shots, drawn) for f in range(folds)]
    )
    close = losses.mean(0) <= (1 + TOLERANCE) * losses.mean(0).amin()
    return features.new_tensor(SHARES)[close.to(torch.uint8).argmax()]


def _fold_losses(
    features: Tensor, labels: Tensor, new: Tensor, columns: int, shots: int, drawn: Sequence[Tensor]
) -> Tensor:
    """Return the loss (draws, shares) of each draw and share, if the classes `new` are new."""
    held, *draws = drawn
    held_out = held.unsqueeze(-1) < HELD_OUT
    most = max(min(MOST_QUERIES, QUERIES // labels.shape[-1]), 2 * shots)
    labelled = labels[:, ~new] * ~held_out
    centred = features.clone()
    means, values, vectors, variance = _within(labelled, labelled.shape[-1]).axes(centred, columns)
    rows = (labels.sum(-1) > 0).nonzero().squeeze(-1)
    points, labels, labelled, held_out = centred[rows] @ vectors, labels[rows], labelled[rows], held_out[rows]
    losses = features.new_zeros(len(draws), len(SHARES))
    for row, draw in zip(losses, draws, strict=True):
        # Random ranks within each class. Of the other classes, held-out nodes come first.
        keys = draw[rows].unsqueeze(-1) + torch.where(new, False, ~held_out) + 2 * (labels == 0)
        ranks = keys.argsort(dim=0, stable=True).argsort(dim=0)
        labelled_now = torch.cat([labelled, (labels * (ranks < shots))[:, new]], -1)
        asked = labels * (ranks < most) * torch.where(new, ranks >= shots, held_out)
        asked = torch.cat([_weights(asked[:, ~new]), _weights(asked[:, new])], -1)
        within = _within(labelled_now, labelled.shape[-1])
        for place, share in enumerate(SHARES):
            scaled = (1 - share) * values + share * variance
            traces = torch.stack([scaled.sum(), means.square().sum()])
            row[place] = _loss(within, points / scaled.sqrt(), asked, traces)
    return losses


def _within(labels: Tensor, known: int) -> Within:
    return Within(labels, known, labels.new_ones(len(labels)), None, 1, labels.new_zeros(()))


def _weights(asked: Tensor) -> Tensor:
    """Return weights (nodes, classes) of queries that sum to 1, and are the same in total for each class."""
    return asked / asked.sum(0).clamp(min=1) / asked.shape[-1]


def _loss(within: Within, points: Tensor, asked: Tensor, traces: Tensor) -> Tensor:
    """Return the cross-entropy () of the queries with weights `asked` (nodes, classes)."""
    rows, sums = (asked.sum(-1) > 0).nonzero().squeeze(-1), within.labels.mT @ points
    points, nothing = points[rows], points[:0]
    inner, length = points @ sums.mT, points.square().sum(-1)
    whitened = Whitened(points, inner, length, sums, nothing, nothing, nothing, nothing, traces)
    likely = TwoCovariances(within, whitened, None).log_likelihood(within.count, sums, inner)
    sharp = torch.stack([(factor * likely).log_softmax(-1) for factor in SHARPNESS])
    return -(asked[rows] * sharp).sum((-2, -1)).amax()
