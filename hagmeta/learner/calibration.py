"""Temperature scaling (Guo et al., ICML 2017): fit the scale of the logits to held-out labels."""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize_scalar

COLDEST, HOTTEST = 0.1, 10.0
LEAST = 1e-12  # a smaller probability counts as this


def tempered(probabilities: np.ndarray, temperature: float) -> np.ndarray:
    """Return probabilities (nodes, classes) whose logarithms are divided by `temperature`."""
    logits = np.log(np.maximum(probabilities.astype(np.float64), LEAST)) / temperature
    scaled = np.exp(logits - logits.max(-1, keepdims=True))
    shares: np.ndarray = scaled / scaled.sum(-1, keepdims=True)
    return shares


def fit_temperature(probabilities: np.ndarray, truth: np.ndarray) -> float:
    """Return the temperature with the highest likelihood of the true columns `truth` (nodes,)."""
    rows = np.arange(len(truth))

    def loss(log_temperature: float) -> float:
        chosen = tempered(probabilities, float(np.exp(log_temperature)))[rows, truth]
        return float(-np.log(np.maximum(chosen, LEAST)).mean())

    found = minimize_scalar(loss, bounds=(np.log(COLDEST), np.log(HOTTEST)), method="bounded")
    return float(np.exp(found.x))
