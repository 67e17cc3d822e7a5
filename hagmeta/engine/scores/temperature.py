"""Fit a temperature to predicted probabilities (Guo et al., ICML 2017)."""

from __future__ import annotations

import math

import numpy as np
import scipy.optimize
import scipy.special

FURTHEST = math.log(1000)  # temperatures from 1 / 1000 to 1000


def fitted_temperature(log_shares: np.ndarray, target: np.ndarray) -> float:
    """Return the temperature with the highest likelihood of the labels.

    Args:
        log_shares: Logarithms of probabilities (nodes, classes). Divided by the temperature, they are logits.
        target: The true class of each node (nodes,), as a position.
    """
    exact = log_shares.astype(np.float64)
    rows = np.arange(len(target))

    def loss(log_temperature: float) -> float:
        tempered = scipy.special.log_softmax(exact / math.exp(log_temperature), axis=-1)
        return -float(tempered[rows, target].mean())

    found = scipy.optimize.minimize_scalar(loss, bounds=(-FURTHEST, FURTHEST), method="bounded")
    return math.exp(found.x)
