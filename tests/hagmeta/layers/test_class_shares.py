"""Class shares by EM: against NumPy, by hand, and on data whose shares are known."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from hagmeta.layers.scores.class_shares import (
    CONFIDENCE,
    PSEUDO_COUNT,
    ROUNDS,
    log_shares,
    scale_of,
    share_adjustment,
)

UNEVEN = np.array([0.6, 0.25, 0.1, 0.05])


def gaussian_logits(shares: np.ndarray, nodes: int = 4000, distance: float = 2.0) -> tuple[Tensor, Tensor]:
    """Return exact log-likelihoods (nodes, classes) of points around one mean per class, and their classes.

    They are the logits of a calibrated classifier for which all classes are equally likely.
    """
    rng = np.random.default_rng(0)
    classes = rng.choice(len(shares), nodes, p=shares)
    means = distance * np.eye(len(shares))
    points = means[classes] + rng.normal(size=(nodes, len(shares)))
    squares = ((points[:, None] - means) ** 2).sum(-1)
    return torch.from_numpy(-squares / 2).float(), torch.from_numpy(classes)


def shares_by_numpy(probabilities: np.ndarray) -> np.ndarray:
    """The update as it is published: posteriors times the ratio of priors, normalised, then averaged.

    The sum has the counts of the Dirichlet distribution as well.
    """
    nodes, classes = probabilities.shape
    shares = np.full(classes, 1 / classes)
    for _ in range(20):
        weighted = probabilities * shares / (1 / classes)
        weighted /= weighted.sum(1, keepdims=True)
        shares = (weighted.sum(0) + 10) / (nodes + 10 * classes)
    return shares


def test_two_nodes_of_two_classes_are_those_worked_out_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    # The odds of the first class are 1 and 3. One round counts 1/2 + 3/4, and 1 is added: 9/4 of 4. So the
    # odds of the shares are 9 to 7, and the next round counts 9/16 + 27/34.
    logits = torch.tensor([[0.0, 0.0], [math.log(3), 0.0]])
    for rounds, first in ((1, 9 / 16), (2, (9 / 16 + 27 / 34 + 1) / 4)):
        monkeypatch.setattr("hagmeta.layers.scores.class_shares.ROUNDS", rounds)
        monkeypatch.setattr("hagmeta.layers.scores.class_shares.PSEUDO_COUNT", 1.0)
        found = log_shares(logits, torch.ones(2)).exp()
        torch.testing.assert_close(found, torch.tensor([first, 1 - first]))


def test_shares_are_those_of_the_published_update() -> None:
    assert (ROUNDS, PSEUDO_COUNT) == (20, 10.0)
    logits, _ = gaussian_logits(UNEVEN, nodes=60)
    counted = torch.ones(60)
    counted[::3] = 0
    expected = shares_by_numpy(logits[counted > 0].double().softmax(-1).numpy())
    np.testing.assert_allclose(log_shares(logits, counted).exp(), expected, rtol=1e-4)


def test_shares_of_gaussian_classes_are_recovered() -> None:
    logits, classes = gaussian_logits(UNEVEN)
    truth = torch.bincount(classes) / len(classes)
    found = log_shares(logits, torch.ones(4000)).exp()
    counted = torch.bincount(logits.argmax(-1)) / len(classes)
    assert float((found - truth).abs().max()) < 0.02
    assert float((counted - truth).abs().max()) > 0.05  # counting the predictions is not enough
    equal, weighted = ((each.argmax(-1) == classes).float().mean() for each in (logits, logits + found.log()))
    assert weighted > equal + 0.04


def test_without_nodes_to_count_shares_are_equal() -> None:
    logits, _ = gaussian_logits(UNEVEN, nodes=10)
    adjustment = share_adjustment(logits, torch.zeros(10))
    torch.testing.assert_close(adjustment, adjustment[:1].expand(4))


def test_the_scale_sets_the_mean_of_the_largest_probability() -> None:
    logits, _ = gaussian_logits(UNEVEN)
    counted = torch.ones(4000)
    counted[:3000] = 0
    scale = scale_of(logits, counted)
    largest = (scale * logits).softmax(-1).amax(-1)
    assert float(largest[3000:].mean()) == pytest.approx(CONFIDENCE, abs=1e-3)


@pytest.mark.parametrize("factor", [0.01, 0.3, 100.0])
def test_predictions_do_not_depend_on_the_scale_of_logits(factor: float) -> None:
    logits, _ = gaussian_logits(UNEVEN)
    counted = torch.ones(4000)
    adjustments = share_adjustment(logits, counted), share_adjustment(factor * logits, counted) / factor
    torch.testing.assert_close(*adjustments, rtol=1e-2, atol=1e-3)
    assert float(adjustments[0].argmax()) == 0 and not torch.isnan(adjustments[1]).any()


@pytest.mark.parametrize("logits", [torch.zeros(20, 3), torch.tensor([[1e6, 0.0, -1e6]]).expand(20, 3)])
def test_logits_without_information_or_doubt_give_numbers(logits: Tensor) -> None:
    assert share_adjustment(logits, torch.ones(20)).isfinite().all()
