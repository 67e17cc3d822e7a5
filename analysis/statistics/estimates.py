"""Estimate means with intervals, contrasts of factors and rank correlations from several seeds."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

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


HALVES = 50


def times_first(table: pd.DataFrame) -> int:
    """Return in how many of HALVES random halves of the rows the best column is the same as in all rows."""
    best, random = adjusted_means(table).idxmax(), np.random.default_rng(0)
    rows = [random.permutation(len(table))[: len(table) // 2] for _ in range(HALVES)]
    means = (adjusted_means(table.iloc[each]).dropna() for each in rows)
    return sum(each.idxmax() == best for each in means if len(each))


def rank_correlation(one: Sequence[float] | pd.Series, other: Sequence[float] | pd.Series) -> float:
    """Return Kendall's tau-b of two orders; NaN if one of them has only ties."""
    if len(one) < 2:
        return np.nan
    return float(scipy.stats.kendalltau(one, other).statistic)


class Factor(NamedTuple):
    """A factor of a design: how interactions call it, and its contrasts by name.

    A contrast is a level, and the level that is subtracted. Interactions use the first one.
    """

    name: str
    contrasts: Mapping[str, tuple[Any, Any]]


def switch(name: str) -> Factor:
    """Return a factor that is on or off."""
    return Factor(name, {name: (True, False)})


def contrasts(cells: dict[tuple[Any, ...], pd.Series], factors: Sequence[Factor]) -> dict[str, pd.Series]:
    """Return main effects and interactions of `factors` by seed.

    `cells` has one series per combination of levels. A main effect is the mean of the cells with one level
    minus the mean of the cells with the other level. An interaction of two factors is half the difference of
    one effect with the other factor on and off, and so on. Interactions of more than two factors are computed
    for up to three factors. Only seeds with all combinations count.
    """
    table = pd.DataFrame(cells).dropna()
    signs = [  # by factor and contrast: the sign of each cell
        [
            np.array([int(cell[i] == plus) - int(cell[i] == minus) for cell in cells])
            for plus, minus in factor.contrasts.values()
        ]
        for i, factor in enumerate(factors)
    ]
    every = {
        name: sign
        for factor, own in zip(factors, signs, strict=True)
        for name, sign in zip(factor.contrasts, own, strict=True)
    }
    numbers = range(len(factors))
    for order in range(2, len(factors) + 1 if len(factors) < 4 else 3):
        for which in itertools.combinations(numbers, order):
            called = [factors[i].name for i in which]
            name = " x ".join(f"({each})" if " " in each else each for each in called)
            every[name] = np.prod([signs[i][0] for i in which], axis=0)
    values = table.to_numpy()
    return {
        name: pd.Series(values @ contrast / (contrast > 0).sum(), table.index)
        for name, contrast in every.items()
    }
