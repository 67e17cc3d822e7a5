"""How likely a node belongs to none of the known classes, by its highest score among them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.optimize
from scipy.special import expit

FALSE_ALARMS = 0.1  # at least this share of the held-out nodes of known classes counts as unknown


class Novelty(NamedTuple):
    """A logistic map from the highest score of a node to the probability that its class is unknown."""

    middle: float = 0.0  # the score at which the probability is one half
    slope: float = 1.0  # how fast the probability falls with the score

    def probability(self, highest: np.ndarray) -> np.ndarray:
        """Return probabilities (nodes,), given the highest score of each node."""
        found: np.ndarray = expit(self.slope * (self.middle - highest.astype(np.float64)))
        return found


def fitted_novelty(scores: np.ndarray, truth: np.ndarray) -> Novelty:
    """Return the map for nodes whose classes are known, by playing each class as unknown.

    Every node is an example of a known class, by its highest score. It is also an example of an unknown
    class, by its highest score among the other classes. The map is a logistic regression (Platt, 1999).

    Features are learnt from the classes that are played, so played classes are easier to detect than classes
    that nobody has named. So the middle is at least the quantile `FALSE_ALARMS` of the known examples.

    Args:
        scores: How well each node fits each class (nodes, classes), with at least two classes.
        truth: The class of each node (nodes,), as a position.
    """
    exact = scores.astype(np.float64)
    known = exact.max(1)
    exact[np.arange(len(truth)), truth] = -np.inf
    played = exact.max(1)
    slope, middle = _platt(known, played)
    return Novelty(max(middle, float(np.quantile(known, FALSE_ALARMS))), slope)


def _platt(known: np.ndarray, unknown: np.ndarray) -> tuple[float, float]:
    """Return slope and middle of the logistic regression that tells the two samples apart.

    Targets are smoothed as by Platt, so that the slope is finite even if the samples do not overlap.
    """
    values = np.concatenate([known, unknown])
    sure = (len(known) + 1) / (len(known) + 2)
    target = np.concatenate([np.full(len(known), 1 - sure), np.full(len(unknown), sure)])
    centre, scale = values.mean(), max(values.std(), np.finfo(np.float32).tiny)
    points = (centre - values) / scale

    def loss(parameters: np.ndarray) -> tuple[float, np.ndarray]:
        logits = parameters[0] * points + parameters[1]
        error = expit(logits) - target
        total = (np.logaddexp(0, logits) - target * logits).mean()
        return float(total), np.array([(error * points).mean(), error.mean()])

    # The slope is positive, so a higher score never makes an unknown class more likely.
    found = scipy.optimize.minimize(
        loss, np.array([1.0, 0.0]), jac=True, method="L-BFGS-B", bounds=[(0.01, None), (None, None)]
    )
    slope, offset = found.x
    return float(slope / scale), float(centre + scale * offset / slope)
