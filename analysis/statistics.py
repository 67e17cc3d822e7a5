"""What may be claimed from several seeds. Configurations share the seeds' splits: differences are paired."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import scipy.stats

from hagmeta.common.interval import student

FEWEST_SEEDS = 5  # below this no significance is claimed
LEVEL = 0.05
RESAMPLES = 10_000


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


@dataclass(frozen=True)
class Difference:
    """A paired difference: mean, bootstrap interval, and Wilcoxon's p before and after Holm's correction."""

    mean: float
    low: float
    high: float
    seeds: int
    p: float  # NaN where too few seeds are paired
    corrected: float

    @property
    def significant(self) -> bool:
        return bool(self.corrected < LEVEL)


def estimate(values: Sequence[float] | np.ndarray) -> Estimate:
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


def difference(differences: Sequence[float] | np.ndarray) -> Difference:
    """What one difference a seed tells, as yet uncorrected for the others that are tested beside it."""
    array = np.asarray(differences, dtype=float)
    array = array[~np.isnan(array)]
    if len(array) == 0:
        return Difference(np.nan, np.nan, np.nan, 0, np.nan, np.nan)
    low, high = bootstrap_interval(array)
    p = _wilcoxon(tuple(array)) if len(array) >= FEWEST_SEEDS else np.nan
    return Difference(float(array.mean()), low, high, len(array), p, p)


def bootstrap_interval(array: np.ndarray) -> tuple[float, float]:
    """The percentile interval of the mean over resampled seeds; the same for the same numbers."""
    if len(array) < 2:
        return np.nan, np.nan
    low, high = np.quantile(array[_picks(len(array))].mean(axis=1), [0.025, 0.975])
    return float(low), float(high)


@cache
def _picks(count: int) -> np.ndarray:
    return np.random.default_rng(0).integers(count, size=(RESAMPLES, count))


@cache  # tables, figures and findings ask for the same, which takes up to a second where values are tied
def _wilcoxon(differences: tuple[float, ...]) -> float:
    if not np.any(differences):
        return 1.0
    return float(scipy.stats.wilcoxon(differences).pvalue)


def holm(differences: Sequence[Difference]) -> list[Difference]:
    """Holm's correction over the tests of one family; those without a p take no part."""
    tested = [index for index, each in enumerate(differences) if not np.isnan(each.p)]
    ordered = sorted(tested, key=lambda index: differences[index].p)
    corrected = list(differences)
    largest = 0.0
    for rank, index in enumerate(ordered):
        largest = max(largest, min(1.0, (len(ordered) - rank) * differences[index].p))
        corrected[index] = replace(differences[index], corrected=largest)
    return corrected


def against(table: pd.DataFrame, reference: str) -> dict[str, Difference]:
    """Every other column of a table (seeds, configurations) less the reference's, seed by seed."""
    others = [name for name in table.columns if name != reference]
    return dict(
        zip(others, holm([difference(table[name] - table[reference]) for name in others]), strict=True)
    )


def rank_correlation(one: Sequence[float] | pd.Series, other: Sequence[float] | pd.Series) -> float:
    """Kendall's tau-b of two orders of the same things; NaN where one of them is none."""
    return float(scipy.stats.kendalltau(one, other).statistic)


Factor = dict[str, tuple[Any, Any]]  # what is told of it: by name, a level and the one that it is less


def switch(name: str) -> Factor:
    """A factor that is on or off."""
    return {name: (True, False)}


def factorial_effects(
    cells: dict[tuple[Any, ...], pd.Series], factors: Sequence[Factor]
) -> dict[str, Difference]:
    """Main effects and interactions of factors, from one series over seeds for each combination of levels.

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
    effects = {}
    for parts in (*main, *joint):
        contrast = np.prod([sign for _, sign in parts], axis=0)
        name = " x ".join(name for name, _ in parts)
        effects[name] = difference(table.to_numpy() @ contrast / (contrast > 0).sum())
    return dict(zip(effects, holm(list(effects.values())), strict=True))
