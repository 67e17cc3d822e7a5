"""Decide what may be claimed from several seeds; tables, findings and figures read a `Family`.

Configurations share the seeds' splits, so differences are paired by seed. A sign-flip test asks how many of
all ways to flip the signs of the seeds' differences give a mean as large. A seed is flipped in all
comparisons of the report at once, which keeps how these depend on each other. Each is held against the
largest of those that are left (step-down maximum, Westfall and Young 1993): the smallest p that seeds can
reach does not depend on how many comparisons there are.

All verdicts of a report share one budget: «ahead» and «behind» get most of it, «equivalent» the rest. The
test assumes that differences are symmetric around their mean; whether they look so is tested as well.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import scipy.special

LEVEL = 0.05  # the chance of any false verdict in a report,
DIFFERENT, ALIKE = 0.04, 0.01  # of «ahead» and «behind» together, and of «equivalent»
FEWEST_SEEDS = 6  # that can decide: with fewer no sign-flip test has a p below DIFFERENT
POWER = 0.8
MARGIN = 0.01  # differences within it are of no interest: one point
EXACT = 13  # seeds of which all flips are tried; of more
DRAWN = 5_000  # are drawn
DIGITS = 10  # to which differences are rounded, so that ties are ties
MOST_SEEDS = 1_000  # that a reader is told to run
COUNTS = np.arange(3.0, MOST_SEEDS + 1)

AHEAD, BEHIND, EQUIVALENT, UNDECIDED = "ahead", "behind", "equivalent", "undecided"
TOO_FEW = "too few seeds"


@dataclass(frozen=True)
class Difference:
    """A paired difference over seeds, as one of its family."""

    mean: float
    low: float  # Student's 95 % interval, of this difference by itself
    high: float
    seeds: int
    p: float  # by itself
    corrected: float  # for all comparisons of the report; NaN with too few seeds
    equivalence: float  # corrected p of both one-sided tests against the margin; NaN with too few seeds
    detectable: float  # the smallest difference that would have been found in four of five such studies
    needed: float  # seeds that would decide it, if it is as large as it looks
    margin: float  # within which it would be equivalent

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
        """One of five."""
        if not self.tested:
            return TOO_FEW
        if self.significant:
            return AHEAD if self.mean > 0 else BEHIND
        return EQUIVALENT if self.within_margin else UNDECIDED

    @property
    def told(self) -> dict[str, Any]:
        """For a file of numbers."""
        return {**vars(self), "verdict": self.verdict}


@dataclass(frozen=True)
class Family:
    """Comparisons of one kind; they are corrected together with those of all other kinds of the report."""

    what: str  # is compared with what
    metric: str
    margin: float
    total: int  # comparisons of the report that were tested
    flips: str  # how their seeds were flipped
    comparisons: Mapping[Any, Difference]

    def __getitem__(self, key: Hashable) -> Difference:
        return self.comparisons[key]

    def of(self, *key: Hashable) -> dict[Any, Difference]:
        """By the rest of their keys, the comparisons whose keys begin like this."""
        found = ((k[len(key) :], each) for k, each in self.comparisons.items() if k[: len(key)] == key)
        return {rest[0] if len(rest) == 1 else rest: each for rest, each in found}

    @property
    def words(self) -> str:
        """How it was tested."""
        tested = sum(each.tested for each in self.comparisons.values())
        one_graph = (
            "Intervals: Student's 95 %, each by itself. Variation over seeds describes one graph only."
        )
        if not tested:
            return f"Not tested: {self.what}. It takes {FEWEST_SEEDS} common seeds to decide. {one_graph}"
        count = "the one comparison" if self.total == 1 else f"all {self.total} comparisons"
        some = (
            ""
            if tested == len(self.comparisons)
            else f" Fewer than {FEWEST_SEEDS} common seeds are not tested."
        )
        return (
            f"Tested: {self.what}, by {self.metric}, paired by seed. Ahead and behind: sign-flip test "
            f"({self.flips}), corrected over {count} of this report (step-down maximum). Equivalent: within "
            f"{100 * self.margin:g} {'point' if self.margin == 0.01 else 'points'} by two one-sided t-tests, "
            f"Holm-corrected.{some} {one_graph}"
        )


@dataclass(frozen=True)
class Tested:
    """All comparisons of a report, by kind."""

    families: Mapping[str, Family]
    asymmetry: float  # p that differences are symmetric; NaN where nothing was tested


def family(differences: Mapping[Any, pd.Series], what: str, metric: str, *, margin: float = MARGIN) -> Family:
    """Test comparisons of one kind alone; see `families`."""
    return families({what: differences}, {what: what}, metric, margin=margin).families[what]


def families(
    asked: Mapping[str, Mapping[Any, pd.Series]],
    what: Mapping[str, str],
    metric: str,
    *,
    margin: float = MARGIN,
) -> Tested:
    """Test all comparisons of a report together.

    ``asked`` has, by kind and comparison, one difference per seed. Seeds that a comparison lacks take no part
    in it, and comparisons with too few seeds take no part in the correction of the others.
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
    """From (seeds, comparisons)."""
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
    """(seeds that any has, comparisons)."""
    seeds = sorted(set().union(*(each.index for each in differences)))
    rows = {seed: row for row, seed in enumerate(seeds)}
    values = np.full((len(seeds), len(differences)), np.nan)
    for column, each in enumerate(differences):
        values[[rows[seed] for seed in each.index], column] = each.to_numpy(dtype=float)
    return values[~np.isnan(values).all(axis=1)]


def _moments(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of each comparison the number of seeds, the mean and its standard error."""
    there = ~np.isnan(values)
    seeds = there.sum(axis=0).astype(float)
    filled = np.where(there, values, 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = filled.sum(axis=0) / seeds
        squares = np.where(there, (filled - mean) ** 2, 0.0).sum(axis=0)
        return seeds, mean, np.sqrt(squares / (seeds - 1) / seeds)


def _tested(values: np.ndarray, able: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of each comparison p, corrected p, and the t from which on it would be significant.

    Those that are not ``able`` to decide take no part, and cost the others nothing.
    """
    count = values.shape[1]
    p, corrected, critical = np.full(count, np.nan), np.full(count, np.nan), np.full(count, np.inf)
    flips = _flips(len(values))
    there = ~np.isnan(values).all(axis=0)
    for index in np.flatnonzero(there & ~able).tolist():
        t = _flipped(values[:, index], flips)
        p[index] = _share(t[0], t)
    observed = {index: _flipped(values[:, index], flips[:1])[0] for index in np.flatnonzero(able).tolist()}
    largest = np.zeros(len(flips))  # of this and those after it, flip by flip
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
    """(flips,) of Student's t without its sign, of one comparison."""
    there = ~np.isnan(values)
    own = values[there]
    t = np.abs((flips if there.all() else flips[:, there]) @ own)
    length = np.sqrt(len(own) * (own**2).sum())
    share = np.round(t / length, DIGITS) if length > 0 else t
    return share * np.sqrt(max(len(own) - 1, 0) / np.maximum(1 - share**2, 1e-9))


def _asymmetry(values: np.ndarray) -> float:
    """p that differences (seeds, comparisons) scatter alike to both sides of their means.

    Their squared skewness, a mean over comparisons, is held against that of deviations with flipped signs.
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
            mean = signs @ apart / seeds  # of the flipped deviations, which are centred again
            third = signs @ apart**3 - 3 * mean * square + 2 * seeds * mean**3
            total += np.round(third**2 / np.maximum(square - seeds * mean**2, 1e-12 * square) ** 3, DIGITS)
    return _share(total[0], total)


def _share(observed: float, flipped: np.ndarray) -> float:
    """How many of the flips are at least as large."""
    return float((flipped >= observed - 1e-9).mean())


@cache
def _flips(seeds: int) -> np.ndarray:
    """(flips, seeds) of signs, none flipped first. One seed keeps its sign: to flip all changes no size.

    A seed that a comparison lacks may be that one: then each of its flips is there twice.
    """
    if seeds <= EXACT:
        bits = np.arange(2 ** max(seeds - 1, 0))[:, None] >> np.arange(seeds)
        return 1.0 - 2.0 * (bits & 1)
    drawn = np.random.default_rng(0).choice([-1.0, 1.0], size=(DRAWN, seeds))
    drawn[0] = 1.0
    return drawn


def _two_one_sided(mean: np.ndarray, error: np.ndarray, seeds: np.ndarray, margin: float) -> np.ndarray:
    """The larger p of two t-tests: that the difference is below the margin, and above minus it."""
    room = np.round(margin - np.abs(mean), DIGITS)
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.where(error > 0, room / error, np.where(room > 0, np.inf, -np.inf))
    return np.where(seeds > 1, _beyond(t, seeds), 1.0)


def holm(p: Sequence[float] | np.ndarray) -> np.ndarray:
    """Holm's correction over the tests of a family."""
    array = np.asarray(p, dtype=float)
    order = np.argsort(array, kind="stable")
    corrected = np.empty_like(array)
    left = len(array) - np.arange(len(array))
    corrected[order] = np.minimum(1.0, np.maximum.accumulate(left * array[order]))
    return corrected


def _quantile(probability: float, seeds: np.ndarray) -> np.ndarray:
    return scipy.special.stdtrit(np.maximum(seeds - 1, 1), probability)


def _beyond(t: np.ndarray, seeds: np.ndarray) -> np.ndarray:
    """The chance of a larger t."""
    return scipy.special.stdtr(np.maximum(seeds - 1, 1), -t)


def _needed(
    seeds: np.ndarray,
    mean: np.ndarray,
    deviation: np.ndarray,
    margin: float,
    level: np.ndarray,
) -> np.ndarray:
    """Seeds, more than there are, with which a difference like this would be found, or be within the margin.

    Infinity where they are too many.
    """
    center, level = np.abs(mean), np.where(level > 0, level, DIFFERENT)
    with np.errstate(divide="ignore", invalid="ignore"):
        off, inside = center / deviation, (margin - center) / deviation
    needed = np.searchsorted(_to_find(ALIKE / max(1, len(mean))), -inside)  # as Holm's first
    for own in np.unique(level):
        its, able = level == own, np.argmax(own > 2.0 ** (1 - COUNTS))
        found = np.maximum(np.searchsorted(_to_find(own / 2), -off[its]), able)
        needed[its] = np.minimum(needed[its], found)
    counts = np.maximum(needed + COUNTS[0], np.maximum(seeds + 1, FEWEST_SEEDS))
    return np.where(counts <= MOST_SEEDS, counts, np.inf)


@cache
def _to_find(level: float) -> np.ndarray:
    """By number of seeds: how many deviations off what is found with `POWER` must be, negative: it rises."""
    return -(_quantile(1 - level, COUNTS) + _quantile(POWER, COUNTS)) / np.sqrt(COUNTS)
