"""Estimate means with intervals, contrasts of factors and rank correlations from several seeds."""

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
    """Return the mean and Student's 95 % interval, with NaN limits for a single value."""
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
    """Return the estimate of each column over the seeds in its rows."""
    return dict(zip(table.columns, map(estimate, table.to_numpy(dtype=float).T), strict=True))


def adjusted_means(table: pd.DataFrame) -> pd.Series:
    """Return the means of columns (configurations) over rows (seeds), adjusted for missing seeds.

    A least-squares fit has one effect per seed and one per configuration, so a configuration does not gain
    from missing hard seeds. Without missing seeds these are plain means. Columns that are not connected with
    the largest group through shared seeds are NaN.
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
    """Return the ranks of the columns by adjusted means: 1 is the highest, ties share the better rank."""
    return adjusted_means(table).round(10).rank(ascending=False, method="min")


def rank_correlation(one: Sequence[float] | pd.Series, other: Sequence[float] | pd.Series) -> float:
    """Return Kendall's tau-b of two orders; NaN if one of them has only ties."""
    if len(one) < 2:
        return np.nan
    return float(scipy.stats.kendalltau(one, other).statistic)


Factor = dict[str, tuple[Any, Any]]  # contrasts by name: a level, and the level that is subtracted


def switch(name: str) -> Factor:
    """Return a factor that is on or off."""
    return {name: (True, False)}


def contrasts(cells: dict[tuple[Any, ...], pd.Series], factors: Sequence[Factor]) -> dict[str, pd.Series]:
    """Return main effects and interactions of `factors` by seed.

    `cells` has one series per combination of levels. A main effect is the mean of the cells with one level
    minus the mean of the cells with the other level. An interaction of two factors is half the difference of
    one effect with the other factor on and off, and so on. A factor with more levels enters interactions by
    its first contrast. Only seeds with all combinations count.
    """
    table = pd.DataFrame(cells).dropna()
    signs = [  # by factor and contrast: the sign of each cell
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
        called = [f"({name})" if len(parts) > 1 and " " in name else name for name, _ in parts]
        name = " x ".join(called)
        found[name] = pd.Series(table.to_numpy() @ contrast / (contrast > 0).sum(), table.index)
    return found
