"""What is estimated from several seeds: means with intervals, contrasts of factors, agreement of orders."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import scipy.stats
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

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


def adjusted_means(table: pd.DataFrame) -> pd.Series:
    """Means of the columns (configurations) over the rows (seeds), as if no seed were missing.

    The least-squares fit of a part for each seed and one for each configuration: who lacks hard seeds gains
    nothing by it. Plain means where all seeds are there. NaN for columns that share no seed, not even through
    others, with the largest group that does.
    """
    there = table.notna().to_numpy()
    if there.all():
        return table.mean()
    count = there.shape[1]
    _, groups = connected_components(coo_array((there @ there.T).astype(int)))
    sizes = [there[groups == group].any(axis=0).sum() for group in range(groups.max() + 1)]
    rows = groups == int(np.argmax(sizes))
    columns = there[rows].any(axis=0)
    row, column = np.nonzero(there[rows][:, columns])
    values = table.to_numpy(dtype=float)[rows][:, columns]
    design = np.zeros((len(row), values.shape[0] + values.shape[1]))
    design[np.arange(len(row)), row] = 1
    design[np.arange(len(row)), values.shape[0] + column] = 1
    parts = np.linalg.lstsq(design, values[row, column], rcond=None)[0]
    found = np.full(count, np.nan)
    found[columns] = parts[values.shape[0] :] + parts[: values.shape[0]].mean()
    return pd.Series(found, table.columns)


def ranks_of(table: pd.DataFrame) -> pd.Series:
    """Ranks of the columns by their adjusted means: 1 is the highest, level ones share the better rank."""
    return adjusted_means(table).round(10).rank(ascending=False, method="min")


def rank_correlation(one: Sequence[float] | pd.Series, other: Sequence[float] | pd.Series) -> float:
    """Kendall's tau-b of two orders of the same things; NaN where one of them is none."""
    if len(one) < 2:
        return np.nan
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
