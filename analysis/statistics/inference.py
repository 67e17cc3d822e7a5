"""Decide what several seeds allow a report to claim. Tables, findings and figures read a `Family`.

Configurations share the splits of their seeds, so differences are paired by seed. A sign-flip test counts how
many ways to flip the signs of these differences give a mean at least as large. A flip applies to one seed in
all comparisons of the report, which keeps the dependence between comparisons. Each comparison is tested
against the largest of those that are left (step-down maximum, Westfall and Young 1993). The smallest p that
some seeds can reach therefore does not depend on the number of comparisons.

All verdicts of a report share one error budget. Most of it goes to "ahead" and "behind", and a smaller part
to "equivalent". The test assumes that differences are symmetric around their mean, which is tested as well.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import scipy.special

LEVEL = 0.05  # the chance of any false verdict in a report
DIFFERENT, ALIKE = 0.04, 0.01  # the shares of LEVEL for "ahead" and "behind" together, and for "equivalent"
FEWEST_SEEDS = 6  # with fewer seeds no sign-flip test has a p below DIFFERENT
POWER = 0.8
MARGIN = 0.01  # one point: smaller differences count as equivalent
EXACT = 13  # up to this number of seeds all flips are tried;
DRAWN = 5_000  # with more seeds, this number of random flips
DIGITS = 10  # rounding of differences, so that equal values are ties
MOST_SEEDS = 1_000  # the largest number of seeds that a report recommends
COUNTS = np.arange(3.0, MOST_SEEDS + 1)
AHEAD, BEHIND, EQUIVALENT, UNDECIDED = "ahead", "behind", "equivalent", "undecided"
TOO_FEW = "too few seeds"


@dataclass(frozen=True)
class Difference:
    """A paired difference over seeds, corrected together with all comparisons of a report."""

    mean: float
    low: float  # Student's 95 % interval, not corrected
    high: float
    seeds: int
    p: float  # not corrected
    corrected: float  # p corrected for all comparisons of the report; NaN with too few seeds
    equivalence: float  # corrected p of both one-sided tests against the margin; NaN with too few seeds
    detectable: float  # the smallest difference that the test finds with POWER
    needed: float  # number of seeds that would decide a difference of the observed size
    margin: float  # smaller differences count as equivalent

    @property
    def tested(self) -> bool:
        return self.seeds >= FEWEST_SEEDS

    @property
    def significant(self) -> bool:
        return bool(self.corrected < DIFFERENT)

    @property
    def within_margin(self) -> bool:
        return bool(self.equivalence < ALIKE)

    @property
    def verdict(self) -> str:
        """Return AHEAD, BEHIND, EQUIVALENT, UNDECIDED or TOO_FEW."""
        if not self.tested:
            return TOO_FEW
        if self.significant:
            return AHEAD if self.mean > 0 else BEHIND
        return EQUIVALENT if self.within_margin else UNDECIDED

    @property
    def told(self) -> dict[str, Any]:
        """Return all fields and the verdict, for the CSV files."""
        return {**vars(self), "verdict": self.verdict}


@dataclass(frozen=True)
class Family:
    """Comparisons of one kind, corrected together with the comparisons of all other kinds in the report."""

    what: str  # the comparisons in words
    metric: str
    margin: float
    total: int  # tested comparisons of the whole report
    flips: str  # number of flips in words
    comparisons: Mapping[Any, Difference]

    def __getitem__(self, key: Hashable) -> Difference:
        return self.comparisons[key]

    def of(self, *key: Hashable) -> dict[Any, Difference]:
        """Return the comparisons whose keys begin with `key`, by the remaining part of their keys."""
        found = ((k[len(key) :], each) for k, each in self.comparisons.items() if k[: len(key)] == key)
        return {rest[0] if len(rest) == 1 else rest: each for rest, each in found}

    @property
    def words(self) -> str:
        """Return sentences that describe how these comparisons were tested."""
        tested = sum(each.tested for each in self.comparisons.values())
        one_graph = (
            "Intervals of differences are Student's 95 % intervals, not corrected. "
            "Variation over seeds describes one graph only."
        )
        if not tested:
            return f"Not tested: {self.what}. A test needs at least {FEWEST_SEEDS} common seeds. {one_graph}"
        count = "the only comparison" if self.total == 1 else f"all {self.total} comparisons"
        some = (
            ""
            if tested == len(self.comparisons)
            else f" Comparisons with fewer than {FEWEST_SEEDS} common seeds are not tested."
        )
        points = "1 point" if self.margin == 0.01 else f"{100 * self.margin:g} points"
        return (
            f"Tested: {self.what}. Tests use {self.metric}, paired by seed. "
            f'"Ahead" and "behind" come from a sign-flip test ({self.flips}), corrected over {count} of this '
            f"report (step-down maximum). "
            f'"Equivalent" means within {points} by two one-sided t-tests, Holm-corrected.{some} {one_graph}'
        )


@dataclass(frozen=True)
class Tested:
    """All comparisons of a report, by kind."""

    families: Mapping[str, Family]
    asymmetry: float  # p of the test that differences are symmetric; NaN if nothing was tested


def family(differences: Mapping[Any, pd.Series], what: str, metric: str, *, margin: float = MARGIN) -> Family:
    """Test comparisons of one kind only; see `families`."""
    return families({what: differences}, {what: what}, metric, margin=margin).families[what]


def families(
    asked: Mapping[str, Mapping[Any, pd.Series]],
    what: Mapping[str, str],
    metric: str,
    *,
    margin: float = MARGIN,
) -> Tested:
    """Test all comparisons of a report together.

    `asked` has one difference per seed, by kind and comparison. `what` names each kind in words, and `metric`
    is the score that is compared. Comparisons with too few seeds do not affect the correction of the others.
    """
    keys = [(kind, key) for kind, differences in asked.items() for key in differences]
    values = np.round(_aligned([asked[kind][key] for kind, key in keys]), DIGITS)  # (seeds, comparisons)
    found = dict(zip(keys, _differences(values, margin), strict=True))
    total = sum(each.tested for each in found.values())
    flips = f"all {len(_flips(len(values))):,} flips" if len(values) <= EXACT else f"{DRAWN:,} random flips"
    return Tested(
        {
            kind: Family(
                what[kind], metric, margin, total, flips, {key: found[kind, key] for key in asked[kind]}
            )
            for kind in asked
        },
        _asymmetry(values[:, [each.tested for each in found.values()]]),
    )


def _differences(values: np.ndarray, margin: float) -> Iterator[Difference]:
    """Yield a `Difference` for each column of `values` (seeds, comparisons)."""
    seeds, mean, error = _moments(values)
    half = np.where(seeds > 1, _quantile(0.975, seeds) * error, np.nan)
    able = seeds >= FEWEST_SEEDS
    p, corrected, critical = _tested(values, able)
    equivalence = np.full(len(p), np.nan)
    equivalence[able] = holm(_two_one_sided(mean, error, seeds, margin)[able])
    detectable = np.where(np.isinf(critical), np.inf, critical + _quantile(POWER, seeds))
    detectable = np.multiply(detectable, error, out=detectable, where=np.isfinite(detectable))
    needed = _needed(seeds, mean, error * np.sqrt(seeds), margin, 2 * _beyond(critical, seeds))
    limits = (mean, mean - half, mean + half)
    columns = (
        *limits,
        seeds.astype(int),
        p,
        corrected,
        equivalence,
        detectable,
        needed,
        np.full(len(p), margin),
    )
    return (Difference(*each) for each in zip(*(column.tolist() for column in columns), strict=True))


def _aligned(differences: Sequence[pd.Series]) -> np.ndarray:
    """Return a table (all seeds of any comparison, comparisons); NaN where a comparison lacks a seed."""
    seeds = sorted(set().union(*(each.index for each in differences)))
    rows = {seed: row for row, seed in enumerate(seeds)}
    values = np.full((len(seeds), len(differences)), np.nan)
    for column, each in enumerate(differences):
        values[[rows[seed] for seed in each.index], column] = each.to_numpy(dtype=float)
    return values[~np.isnan(values).all(axis=1)]


def _moments(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the number of seeds, the mean and its standard error for each comparison."""
    there = ~np.isnan(values)
    seeds = there.sum(axis=0).astype(float)
    filled = np.where(there, values, 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = filled.sum(axis=0) / seeds
        squares = np.where(there, (filled - mean) ** 2, 0.0).sum(axis=0)
        return seeds, mean, np.sqrt(squares / (seeds - 1) / seeds)


def _tested(values: np.ndarray, able: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return p, corrected p and the critical value of t for each comparison.

    Comparisons that are not `able` to decide, for too few seeds, do not affect the others.
    """
    count = values.shape[1]
    p, corrected, critical = np.full(count, np.nan), np.full(count, np.nan), np.full(count, np.inf)
    flips = _flips(len(values))
    there = ~np.isnan(values).all(axis=0)
    for index in np.flatnonzero(there & ~able).tolist():
        t = _flipped(values[:, index], flips)
        p[index] = _share(t[0], t)
    observed = {index: _flipped(values[:, index], flips[:1])[0] for index in np.flatnonzero(able).tolist()}
    largest = np.zeros(len(flips))  # for each flip, the largest t of this comparison and the earlier ones
    order = sorted(observed, key=lambda index: observed[index])
    for index in order:
        t = _flipped(values[:, index], flips)
        np.maximum(largest, t, out=largest)
        p[index], corrected[index] = _share(t[0], t), _share(t[0], largest)
    if order:
        corrected[order] = np.maximum.accumulate(corrected[order][::-1])[::-1]
        critical[order] = np.quantile(largest, 1 - DIFFERENT)
    return p, corrected, critical


def _flipped(values: np.ndarray, flips: np.ndarray) -> np.ndarray:
    """Return the absolute value of Student's t for each flip of one comparison."""
    there = ~np.isnan(values)
    own = values[there]
    t = np.abs((flips if there.all() else flips[:, there]) @ own)
    length = np.sqrt(len(own) * (own**2).sum())
    share = np.round(t / length, DIGITS) if length > 0 else t
    return share * np.sqrt(max(len(own) - 1, 0) / np.maximum(1 - share**2, 1e-9))


def _asymmetry(values: np.ndarray) -> float:
    """Return p of the test that differences (seeds, comparisons) are symmetric around their means.

    The statistic is the mean squared skewness over comparisons. It is compared with its values when the signs
    of the deviations are flipped.
    """
    if not values.shape[1]:
        return np.nan
    flips = _flips(len(values))
    total = np.zeros(len(flips))
    for column in values.T:
        own = ~np.isnan(column)
        apart = column[own] - float(column[own].mean())
        seeds, square = len(apart), float((apart**2).sum())
        if square > 0:
            signs = flips if own.all() else flips[:, own]
            mean = signs @ apart / seeds  # flipped deviations are centred again
            third = signs @ apart**3 - 3 * mean * square + 2 * seeds * mean**3
            total += np.round(third**2 / np.maximum(square - seeds * mean**2, 1e-12 * square) ** 3, DIGITS)
    return _share(total[0], total)


def _share(observed: float, flipped: np.ndarray) -> float:
    """Return the share of flips that are at least as large as `observed`."""
    return float((flipped >= observed - 1e-9).mean())


@cache
def _flips(seeds: int) -> np.ndarray:
    """Return signs (flips, seeds); the first row flips nothing.

    The last seed keeps its sign, because flipping all seeds does not change the size of the mean. If a
    comparison lacks that seed, each of its flips occurs twice.
    """
    if seeds <= EXACT:
        bits = np.arange(2 ** max(seeds - 1, 0))[:, None] >> np.arange(seeds)
        return 1.0 - 2.0 * (bits & 1)
    drawn = np.random.default_rng(0).choice([-1.0, 1.0], size=(DRAWN, seeds))
    drawn[0] = 1.0
    return drawn


def _two_one_sided(mean: np.ndarray, error: np.ndarray, seeds: np.ndarray, margin: float) -> np.ndarray:
    """Return the larger p of two t-tests: difference below `margin`, and difference above -`margin`."""
    room = np.round(margin - np.abs(mean), DIGITS)
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.where(error > 0, room / error, np.where(room > 0, np.inf, -np.inf))
    return np.where(seeds > 1, _beyond(t, seeds), 1.0)


def holm(p: Sequence[float] | np.ndarray) -> np.ndarray:
    """Return the p values with Holm's correction."""
    array = np.asarray(p, dtype=float)
    order = np.argsort(array, kind="stable")
    corrected = np.empty_like(array)
    left = len(array) - np.arange(len(array))
    corrected[order] = np.minimum(1.0, np.maximum.accumulate(left * array[order]))
    return corrected


def _quantile(probability: float, seeds: np.ndarray) -> np.ndarray:
    return scipy.special.stdtrit(np.maximum(seeds - 1, 1), probability)


def _beyond(t: np.ndarray, seeds: np.ndarray) -> np.ndarray:
    """Return the probability of a larger t."""
    return scipy.special.stdtr(np.maximum(seeds - 1, 1), -t)


def _needed(
    seeds: np.ndarray,
    mean: np.ndarray,
    deviation: np.ndarray,
    margin: float,
    level: np.ndarray,
) -> np.ndarray:
    """Return the number of seeds that would find such a difference, or show that it is within `margin`.

    It is larger than `seeds`, and infinite above MOST_SEEDS.
    """
    center, level = np.abs(mean), np.where(level > 0, level, DIFFERENT)
    with np.errstate(divide="ignore", invalid="ignore"):
        off, inside = center / deviation, (margin - center) / deviation
    needed = np.searchsorted(_to_find(ALIKE / max(1, len(mean))), -inside)  # the strictest of Holm's levels
    for own in np.unique(level):
        its, able = level == own, np.argmax(own > 2.0 ** (1 - COUNTS))
        found = np.maximum(np.searchsorted(_to_find(own / 2), -off[its]), able)
        needed[its] = np.minimum(needed[its], found)
    counts = np.maximum(needed + COUNTS[0], np.maximum(seeds + 1, FEWEST_SEEDS))
    return np.where(counts <= MOST_SEEDS, counts, np.inf)


@cache
def _to_find(level: float) -> np.ndarray:
    """Return the negative effect size, in standard deviations, that is found with POWER, by number of seeds.

    The sign makes it increase, as `searchsorted` requires.
    """
    return -(_quantile(1 - level, COUNTS) + _quantile(POWER, COUNTS)) / np.sqrt(COUNTS)
