"""The choice of a shrinkage by played classes, against the two-covariance model in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.special import log_softmax
from scipy.stats import multivariate_normal

from hagmeta.methods.posterior_means.model import PRIOR, TOTAL
from hagmeta.methods.posterior_means.shrinkage import (
    DRAWS,
    HELD_OUT,
    MOST_QUERIES,
    SHARES,
    SHARPNESS,
    _fold_losses,
    chosen_share,
)

CLASSES, SHOTS = 6, 3


def made(width: int, each: int, correlated: float) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    """Features and labels of known classes, and the random numbers of the choice."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(CLASSES), each)
    noise = rng.normal(size=(len(labels), width)) + correlated * rng.normal(size=(len(labels), 1))
    features = 1.5 * rng.normal(size=(CLASSES, width))[labels] + noise
    drawn = [rng.random(CLASSES), *rng.random((1 + DRAWS, len(labels)))]
    return features, np.eye(CLASSES)[labels], drawn


def losses_of_one_draw(
    features: np.ndarray, labels: np.ndarray, new: np.ndarray, held: np.ndarray, draw: np.ndarray
) -> list[float]:
    """The losses of all shares, by the densities of scipy."""
    held_out = held < HELD_OUT
    old, queries, weights = [], [], []
    for c in np.flatnonzero(~new):
        mine = np.flatnonzero(labels[:, c])
        old.append(features[mine[~held_out[mine]]])
        queries.append(mine[held_out[mine]][:MOST_QUERIES])
        weights.append(1 / max(len(queries[-1]), 1) / (~new).sum())
    means = np.stack([rows.mean(0) for rows in old])
    scatter = sum(np.cov(rows.T, bias=True) for rows in old) / len(old)
    before = (1 - TOTAL) * scatter + TOTAL * np.cov(features.T, bias=True)
    told = list(old)
    for c in np.flatnonzero(new):
        mine = np.flatnonzero(labels[:, c])
        mine = mine[np.argsort(draw[mine])]
        told.append(features[mine[:SHOTS]])
        queries.append(mine[SHOTS:MOST_QUERIES])
        weights.append(1 / len(queries[-1]) / new.sum())
    found = []
    for share in SHARES:
        within = (1 - share) * before + share * before.diagonal().mean() * np.eye(len(before))
        between = np.cov(means.T)
        between = (1 - PRIOR) * between + PRIOR * np.trace(between) / np.trace(within) * within
        likely = []
        for rows in told:
            gain = between @ np.linalg.inv(between + within / len(rows))
            mean = means.mean(0) + gain @ (rows.mean(0) - means.mean(0))
            density = multivariate_normal(mean, within + between - gain @ between)
            likely.append(density.logpdf(features))
        table = np.stack(likely, 1)
        found.append(
            min(
                -sum(
                    weight * log_softmax(factor * table[nodes], 1)[:, place].sum()
                    for place, (nodes, weight) in enumerate(zip(queries, weights, strict=True))
                )
                for factor in SHARPNESS
            )
        )
    return found


def test_losses_are_those_of_the_model_on_played_classes() -> None:
    features, labels, (_, held, *draws) = made(width=4, each=20, correlated=1)
    new = np.array([True, False, False, True, False, False])
    rows, told, played = (torch.tensor(each) for each in (features, labels, new))
    found = _fold_losses(rows, told, played, 0, SHOTS, [torch.tensor(each) for each in (held, *draws)])
    expected = [losses_of_one_draw(features, labels, new, held, draw) for draw in draws]
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("width", "each", "correlated", "least", "most"),
    [(60, 8, 0, 0.3, 0.8), (6, 300, 5, 0.02, 0.05)],  # few labels of equal variances; many correlated ones
)
def test_few_labels_ask_for_more_shrinkage_than_many(
    width: int, each: int, correlated: float, least: float, most: float
) -> None:
    features, labels, drawn = made(width, each, correlated)
    found = chosen_share(torch.tensor(features), torch.tensor(labels), 0, SHOTS, [*map(torch.tensor, drawn)])
    assert least <= found.item() <= most + 1e-6


def test_three_known_classes_are_too_few_to_play() -> None:
    features, labels, drawn = made(width=3, each=9, correlated=0)
    few = torch.tensor(labels)[:, :3]
    assert chosen_share(torch.tensor(features), few, 0, SHOTS, [*map(torch.tensor, drawn)]) == 0
