"""How likely a node belongs to none of the known classes, by how well it fits the best of them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.optimize
from scipy.special import expit, logsumexp

FALSE_ALARMS = 0.1  # at least this share of the held-out nodes of known classes counts as unknown


class Novelty(NamedTuple):
    """A logistic map from how well a node fits its best class to the probability of an unknown class."""

    middle: float = 0.0  # the fit at which the probability is one half
    slope: float = 1.0  # how fast the probability falls with the fit
    by_odds: bool = False  # whether the fit is the log-odds of the best class, and not its logit

    def fit_of(self, logits: np.ndarray) -> np.ndarray:
        """Return how well each node fits its best class (nodes,), given logits (nodes, classes)."""
        return log_odds(logits) if self.by_odds else logits.max(1).astype(np.float64)

    def probability(self, fit: np.ndarray) -> np.ndarray:
        """Return the probability (nodes,) that the class of a node is unknown, given `fit_of` it."""
        found: np.ndarray = expit(self.slope * (self.middle - fit))
        return found


def log_odds(logits: np.ndarray) -> np.ndarray:
    """Return the log-odds (nodes,) of the best class of each node; infinite if there is only one class."""
    exact = logits.astype(np.float64)
    rows, best = np.arange(len(exact)), exact.argmax(1)
    highest = exact[rows, best]
    exact[rows, best] = -np.inf
    found: np.ndarray = highest - logsumexp(exact, axis=1)
    return found


def fitted_novelty(logits: np.ndarray, truth: np.ndarray) -> Novelty:
    """Return the map for nodes whose classes are known, by playing each class as unknown.

    Every node is an example of a known class. It is also an example of an unknown class, without the logit of
    its own class. The logit of the best class or its log-odds is used, depending on which of them orders more
    pairs of examples correctly. The map is a logistic regression (Platt, 1999).

    Features are learnt from the classes that are played, so played classes are easier to detect than classes
    that nobody has named. So the middle is at least the quantile `FALSE_ALARMS` of the known examples.

    Args:
        logits: Logits (nodes, classes), or other values that say how well a node fits a class.
        truth: The class of each node (nodes,), as a position.
    """
    others = logits.astype(np.float64)
    others[np.arange(len(truth)), truth] = -np.inf
    # With two classes, one is left when the other is played. Then there are no odds.
    ways = [Novelty(by_odds=by_odds) for by_odds in (False, True)[: logits.shape[1] - 1]]
    examples = [(way.fit_of(logits), way.fit_of(others)) for way in ways]
    best = int(np.argmax([_ordered(*pair) for pair in examples]))
    known, played = examples[best]
    slope, middle = _platt(known, played)
    return Novelty(max(middle, float(np.quantile(known, FALSE_ALARMS))), slope, ways[best].by_odds)


def _ordered(known: np.ndarray, unknown: np.ndarray) -> float:
    """Return the share of pairs in which the known example has the higher value (the AUROC)."""
    return float(np.searchsorted(np.sort(unknown), known).mean() / len(unknown))


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

    # The slope is positive, so a better fit never makes an unknown class more likely.
    found = scipy.optimize.minimize(
        loss, np.array([1.0, 0.0]), jac=True, method="L-BFGS-B", bounds=[(0.01, None), (None, None)]
    )
    slope, offset = found.x
    return float(slope / scale), float(centre + scale * offset / slope)
