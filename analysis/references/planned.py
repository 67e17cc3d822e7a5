"""The tests of the comparison on eleven graphs, as they were planned before it ran.

Its page keeps them. Here all comparisons of a report are one family: the chance of any false verdict is at
most 5 %. Reports use `analysis.statistics.inference`, which decides more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from analysis.statistics.inference import (
    BETTER,
    EQUIVALENT,
    FEWEST_SEEDS,
    INCONCLUSIVE,
    MARGIN,
    TOO_FEW,
    WORSE,
    aligned,
    flipped_t,
    holm,
    moments,
    p_of_equivalence,
    share_above,
    sign_flips,
)

DIFFERENT, ALIKE = 0.04, 0.01  # the shares of the 5 % for differences, and for "equivalent"


def planned_verdicts(differences: Mapping[Any, pd.Series], margin: float = MARGIN) -> dict[Any, str]:
    """Return the verdicts of differences by seed, all corrected together.

    A sign-flip test compares each difference with the largest of those that are left (step-down maximum,
    Westfall and Young 1993). Equivalence is tested by two one-sided t-tests with Holm's correction.
    """
    values = aligned(list(differences.values()))
    seeds, mean, error = moments(values)
    tested = np.flatnonzero(seeds >= FEWEST_SEEDS)
    found = np.full(len(seeds), TOO_FEW, dtype=object)
    alike = holm(p_of_equivalence(mean, error, seeds, margin)[tested] / 2) < ALIKE
    found[tested] = np.where(alike, EQUIVALENT, INCONCLUSIVE)
    corrected = _step_down(values, tested.tolist())
    for index, p in corrected.items():
        if p < DIFFERENT:
            found[index] = BETTER if mean[index] > 0 else WORSE
    return dict(zip(differences, found.tolist(), strict=True))


def _step_down(values: np.ndarray, tested: list[int]) -> dict[int, float]:
    """Return the corrected p of each tested column of `values` (seeds, comparisons)."""
    flips = sign_flips(len(values))
    observed = {index: flipped_t(values[:, index], flips[:1])[0] for index in tested}
    largest = np.zeros(len(flips))  # for each flip, the largest t of this comparison and the smaller ones
    corrected = {}
    for index in sorted(observed, key=lambda index: observed[index]):
        t = flipped_t(values[:, index], flips)
        np.maximum(largest, t, out=largest)
        corrected[index] = share_above(t[0], largest)
    highest = 0.0
    for index in reversed(corrected):
        highest = corrected[index] = max(highest, corrected[index])
    return corrected
