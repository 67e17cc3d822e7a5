"""What is estimated from several seeds: means with intervals, contrasts of factors, agreement of orders."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import scipy.stats

from hagmeta.common.interval import student


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds and the 95 % interval around it."""

    mean: float
    low: float
    high: float
    seeds: int

    @property
    def half(self) -> float:
        return (self.high - self.low) / 2


def estimate(values: Sequence[float] | np.ndarray | pd.Series) -> Estimate:
    """Mean and Student's 95 % interval; NaN limits for a single value."""
    array = np.asarray(values, dtype=float)
    array = array[~np.isnan(array)]
    if len(array) == 0:
        return Estimate(np.nan, np.nan, np.nan, 0)
    mean = float(array.mean())
    if len(array) == 1:
        return Estimate(mean, np.nan, np.nan, 1)
    half = student(len(array)) * array.std(ddof=1) / np.sqrt(len(array))
    return Estimate(mean, mean - half, mean + half, len(array))


def estimates(table: pd.DataFrame) -> dict[str, Estimate]:
    """By column, over the seeds in its rows."""
    return dict(zip(table.columns, map(estimate, table.to_numpy(dtype=float).T), strict=True))


def rank_correlation(one: Sequence[float] | pd.Series, other: Sequence[float] | pd.Series) -> float:
    """Kendall's tau-b of two orders of the same things; NaN where one of them is none."""
    return float(scipy.stats.kendalltau(one, other).statistic)


Factor = dict[str, tuple[Any, Any]]  # what is told of it: by name, a level and the one that it is less


def switch(name: str) -> Factor:
    """A factor that is on or off."""
    return {name: (True, False)}


def contrasts(cells: dict[tuple[Any, ...], pd.Series], factors: Sequence[Factor]) -> dict[str, pd.Series]:
    """By seed, main effects and interactions of factors, from one series for each combination of levels.

    A main effect is the mean of the cells with one level less that of the cells with the other. An
    interaction of two is half the difference of one's effect with the other on and off, and so on; a factor
    of more levels takes part in it by the first of its effects. Only seeds that have all combinations count.
    """
    table = pd.DataFrame(cells).dropna()
    signs = [  # by factor and name, of each cell
        {
            name: np.array([int(cell[i] == plus) - int(cell[i] == minus) for cell in cells])
            for name, (plus, minus) in factor.items()
        }
        for i, factor in enumerate(factors)
    ]
    main = [[(name, sign)] for each in signs for name, sign in each.items()]
    first = [next(iter(each.items())) for each in signs]
    joint = [c for order in range(2, len(first) + 1) for c in itertools.combinations(first, order)]
    found = {}
    for parts in (*main, *joint):
        contrast = np.prod([sign for _, sign in parts], axis=0)
        name = " x ".join(name for name, _ in parts)
        found[name] = pd.Series(table.to_numpy() @ contrast / (contrast > 0).sum(), table.index)
    return found
