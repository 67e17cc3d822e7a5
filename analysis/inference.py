"""What may be claimed from several seeds, in one place: tables, findings and figures read a `Family`.

Configurations share the seeds' splits, so differences are paired by seed. A test is exact: of all ways to
flip the signs of the seeds' differences, how many give one as large. A seed is flipped in all comparisons of
a family at once, which keeps how these depend on each other, and each is held against the largest of those
that are left (step-down maximum, Westfall and Young 1993): the smallest p that seeds can reach does not
depend on how many comparisons there are.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import scipy.special

LEVEL = 0.05  # of a false claim in a whole report
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
    corrected: float  # for all comparisons of the report
    least: float  # the smallest corrected p that so many seeds can reach
    equivalence: float  # corrected p of both one-sided tests against the margin
    detectable: float  # the smallest difference that would have been found in four of five such studies
    needed: float  # seeds that would decide it, if it is as large as it looks
    margin: float  # within which it would be equivalent

    @property
    def significant(self) -> bool:
        return bool(self.corrected < LEVEL)

    @property
    def verdict(self) -> str:
        """One of five."""
        if self.significant:
            return AHEAD if self.mean > 0 else BEHIND
        if self.equivalence < LEVEL:
            return EQUIVALENT
        return UNDECIDED if self.least < LEVEL else TOO_FEW

    @property
    def told(self) -> dict[str, Any]:
        """For a file of numbers."""
        return {**vars(self), "verdict": self.verdict}


@dataclass(frozen=True)
class Family:
    """Comparisons that are corrected together."""

    what: str  # is compared with what
    metric: str
    margin: float
    questions: int  # families in the report, which share the level
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
        many = len(self.comparisons)
        count = "the one comparison" if many == 1 else f"all {many} comparisons"
        shared = f" and for the {self.questions} kinds of them in this report" if self.questions > 1 else ""
        return (
            f"Tested: {self.what}, by {self.metric}, paired by seed: exact sign-flip test, corrected over "
            f"{count} of this kind (step-down maximum){shared}. Equivalent: within {100 * self.margin:g} "
            f"{'point' if self.margin == 0.01 else 'points'} by two one-sided t-tests, Holm-corrected. "
            "Intervals: Student's 95 %, each by itself. "
            "Seeds tell of this graph, and of no other."
        )


def family(
    differences: Mapping[Any, pd.Series],
    what: str,
    metric: str,
    *,
    margin: float = MARGIN,
    questions: int = 1,
) -> Family:
    """From one difference a seed for each comparison; seeds that a comparison lacks take no part in it."""
    keys = list(differences)
    values = np.round(_aligned(differences), DIGITS)  # (seeds, comparisons)
    seeds, mean, error = _moments(values)
    half = np.where(seeds > 1, _quantile(0.975, seeds) * error, np.nan)
    p, corrected, critical = _tested(values, questions)
    equivalence = np.minimum(1.0, questions * holm(_two_one_sided(mean, error, seeds, margin)))
    detectable = np.where(np.isinf(critical), np.inf, critical + _quantile(POWER, seeds))
    detectable = np.multiply(detectable, error, out=detectable, where=np.isfinite(detectable))
    told = zip(
        *(each.tolist() for each in (mean, mean - half, mean + half, seeds.astype(int), p, corrected)),
        *(each.tolist() for each in (questions * _least(seeds), equivalence, detectable)),
        _needed(
            seeds, mean, error * np.sqrt(seeds), margin, 2 * _beyond(critical, seeds), questions
        ).tolist(),
        [margin] * len(keys),
        strict=True,
    )
    return Family(
        what,
        metric,
        margin,
        questions,
        {key: Difference(*each) for key, each in zip(keys, told, strict=True)},
    )


def _aligned(differences: Mapping[Any, pd.Series]) -> np.ndarray:
    """(seeds that any has, comparisons)."""
    seeds = sorted(set().union(*(each.index for each in differences.values())))
    rows = {seed: row for row, seed in enumerate(seeds)}
    values = np.full((len(seeds), len(differences)), np.nan)
    for column, each in enumerate(differences.values()):
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


def _tested(values: np.ndarray, questions: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of each comparison p, corrected p, and the t from which on it would be significant."""
    seeds = (~np.isnan(values)).sum(axis=0)
    observed, flipped = _statistics(values)
    p = np.array([_share(*each) for each in zip(observed, flipped, strict=True)])
    p = np.where(seeds > 0, p, np.nan)
    corrected, critical = np.fmax(p, LEVEL), np.full(len(p), np.inf)
    # What can never be claimed takes no part, and costs the others nothing.
    able = np.flatnonzero(questions * _least(seeds) < LEVEL)
    if len(able):
        order = able[np.argsort(-observed[able], kind="stable")]
        largest = np.zeros(flipped.shape[1])  # of this and those after it, flip by flip
        for index in order[::-1]:
            np.maximum(largest, flipped[index], out=largest)
            corrected[index] = _share(observed[index], largest)
        stepped = np.maximum.accumulate(corrected[order])
        corrected[order] = np.minimum(1.0, questions * stepped)
        critical[able] = np.quantile(largest, 1 - LEVEL / questions)
    return p, corrected, critical


def _statistics(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Student's t without its sign, of each comparison as it is (comparisons,) and flipped (them, flips)."""
    there = ~np.isnan(values)
    filled, seeds = np.where(there, values, 0.0), there.sum(axis=0)
    norm = np.sqrt(seeds * (filled**2).sum(axis=0))
    t = np.abs(filled.T @ _flips(len(values)).T)  # the first flips nothing
    for each, length, count in zip(t, norm, seeds, strict=True):  # in place: there may be millions
        share = np.round(each / length, DIGITS) if length > 0 else each
        each[:] = share * np.sqrt(max(count - 1, 0) / np.maximum(1 - share**2, 1e-9))
    return t[:, 0], t


def _share(observed: float, flipped: np.ndarray) -> float:
    """How many of the flips are at least as large."""
    return float((flipped >= observed - 1e-9).mean())


@cache
def _flips(seeds: int) -> np.ndarray:
    """(flips, seeds) of signs, none flipped first. One seed keeps its sign: to flip all changes no size."""
    if seeds <= EXACT:
        bits = np.arange(2 ** max(seeds - 1, 0))[:, None] >> np.arange(seeds)
        return 1.0 - 2.0 * (bits & 1)
    drawn = np.random.default_rng(0).choice([-1.0, 1.0], size=(DRAWN, seeds))
    drawn[0] = 1.0
    return drawn


def _least(seeds: np.ndarray) -> np.ndarray:
    """The smallest p of a sign-flip test."""
    return np.minimum(1.0, np.maximum(2.0 ** (1 - seeds.astype(float)), 1 / DRAWN))


def _two_one_sided(mean: np.ndarray, error: np.ndarray, seeds: np.ndarray, margin: float) -> np.ndarray:
    """The larger p of two t-tests: that the difference is below the margin, and above minus it."""
    room = margin - np.abs(mean)
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
    questions: int,
) -> np.ndarray:
    """Seeds, more than there are, with which a difference like this would be found, or be within the margin.

    Infinity where they are too many.
    """
    center, level = np.abs(mean), np.where(level > 0, level, LEVEL)
    with np.errstate(divide="ignore", invalid="ignore"):
        off, inside = center / deviation, (margin - center) / deviation
    needed = np.searchsorted(_to_find(LEVEL / max(1, questions * len(mean))), -inside)  # as Holm's first
    for own in np.unique(level):
        its, able = level == own, np.argmax(own > 2.0 ** (1 - COUNTS))
        found = np.maximum(np.searchsorted(_to_find(own / 2), -off[its]), able)
        needed[its] = np.minimum(needed[its], found)
    counts = np.maximum(needed + COUNTS[0], seeds + 1)
    return np.where(counts <= MOST_SEEDS, counts, np.inf)


@cache
def _to_find(level: float) -> np.ndarray:
    """By number of seeds: how many deviations off what is found with `POWER` must be, negative: it rises."""
    return -(_quantile(1 - level, COUNTS) + _quantile(POWER, COUNTS)) / np.sqrt(COUNTS)
