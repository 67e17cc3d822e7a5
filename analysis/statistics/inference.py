"""Decide what several seeds allow a report to claim. Tables, findings and figures read a `Family`.

Configurations share the splits of their seeds, so differences are paired by seed. A family is the comparisons
that answer one question. All its intervals have one level, and each verdict is what an interval shows: a
difference above zero, below zero, or within the margin. So verdicts and intervals never disagree.

Two procedures choose the level of a family:

- `discoveries`, for many comparisons: at most 5 % of the verdicts are expected to be false. Student's
  intervals have the level 1 - 0.05 max(R, 1) / m if R of m comparisons get a verdict (false coverage rate,
  Benjamini and Yekutieli 2005). R is found as in the procedure of Benjamini and Hochberg.
- `planned`, for the few effects of a design: the chance of any false verdict is at most 5 %. The intervals
  are simultaneous. Their half widths are standard errors times a quantile of the largest absolute t of all
  comparisons, over flips of the signs of whole seeds (single-step maximum, Westfall and Young 1993).

Student's t assumes normal differences, and sign flips assume symmetric ones. Symmetry is tested as well.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import scipy.special

LEVEL = 0.05  # of false verdicts in a family
FEWEST_SEEDS = 6  # with fewer seeds no sign-flip test has a p below LEVEL, and Student's t is not robust
POWER = 0.8
MARGIN = 0.01  # one point: smaller differences count as equivalent
EXACT = 13  # up to this number of seeds all flips are tried;
DRAWN = 5_000  # with more seeds, this number of random flips
DIGITS = 10  # rounding of differences, so that equal values are ties
MOST_SEEDS = 49  # the largest number of seeds that a report recommends
COUNTS = np.arange(3.0, MOST_SEEDS + 1)
BETTER, WORSE = "significantly better", "significantly worse"
EQUIVALENT, INCONCLUSIVE = "equivalent", "inconclusive"
TOO_FEW = "too few seeds"


@dataclass(frozen=True)
class Difference:
    """A paired difference over seeds, with the interval of its family."""

    mean: float
    low: float  # the interval of the family; with too few seeds, Student's 95 % interval
    high: float
    seeds: int
    p: float  # of the test of no difference, not corrected
    corrected: float  # below LEVEL if the interval excludes zero; NaN with too few seeds
    detectable: float  # the smallest difference that the test finds with POWER
    seeds_to_differ: float  # number of seeds that would find a difference of this size; infinite if too many
    seeds_to_equal: float  # number of seeds that would show a difference of this size to be equivalent
    margin: float  # smaller differences count as equivalent

    @property
    def tested(self) -> bool:
        return self.seeds >= FEWEST_SEEDS

    @property
    def significant(self) -> bool:
        """Return whether the interval excludes zero."""
        return self.tested and (self.low > 0 or self.high < 0)

    @property
    def within_margin(self) -> bool:
        """Return whether the whole interval is within the margin."""
        return self.tested and -self.margin < self.low and self.high < self.margin

    @property
    def verdict(self) -> str:
        """Return BETTER, WORSE, EQUIVALENT, INCONCLUSIVE or TOO_FEW."""
        if not self.tested:
            return TOO_FEW
        if self.significant:
            return BETTER if self.mean > 0 else WORSE
        return EQUIVALENT if self.within_margin else INCONCLUSIVE

    @property
    def needed(self) -> tuple[float, str]:
        """Return the smallest number of seeds that would give a verdict, and this verdict."""
        if self.seeds_to_equal < self.seeds_to_differ:
            return self.seeds_to_equal, EQUIVALENT
        return self.seeds_to_differ, BETTER if self.mean > 0 else WORSE

    def turned(self) -> Difference:
        """Return the difference with the opposite sign."""
        return Difference(**{**vars(self), "mean": -self.mean, "low": -self.high, "high": -self.low})

    @property
    def told(self) -> dict[str, Any]:
        """Return the difference, its interval and test, and the verdict, for CSV files."""
        both = {"difference": self.mean, "low": self.low, "high": self.high, "common_seeds": self.seeds}
        return {
            **both,
            "p": self.p,
            "corrected_p": self.corrected,
            "verdict": self.verdict,
            "margin": self.margin,
        }


@dataclass(frozen=True)
class Family:
    """The comparisons that answer one question, with intervals of one level."""

    what: str  # the comparisons in words
    metric: str
    margin: float
    comparisons: Mapping[Any, Difference]
    planned: bool = False  # which procedure
    alpha: float = LEVEL  # 1 - the level of an interval

    def __getitem__(self, key: Hashable) -> Difference:
        return self.comparisons[key]

    def of(self, *key: Hashable) -> dict[Any, Difference]:
        """Return the comparisons whose keys begin with `key`, by the remaining part of their keys."""
        found = ((k[len(key) :], each) for k, each in self.comparisons.items() if k[: len(key)] == key)
        return {rest[0] if len(rest) == 1 else rest: each for rest, each in found}

    @property
    def tested(self) -> int:
        """Return the number of comparisons with enough seeds."""
        return sum(each.tested for each in self.comparisons.values())

    @property
    def decided(self) -> int:
        """Return the number of comparisons with a verdict."""
        return sum(each.tested and each.verdict != INCONCLUSIVE for each in self.comparisons.values())

    @property
    def words(self) -> str:
        """Return sentences that describe how these comparisons were tested."""
        one_graph = "Variation over seeds describes one graph only."
        if not self.tested:
            return (
                f"Not tested: {self.what}. A test needs at least {FEWEST_SEEDS} common seeds. Intervals are "
                f"Student's 95 % intervals. {one_graph}"
            )
        some = (
            ""
            if self.tested == len(self.comparisons)
            else f" Comparisons with fewer than {FEWEST_SEEDS} common seeds are not tested."
        )
        points = "1 point" if self.margin == 0.01 else f"{100 * self.margin:g} points"
        return (
            f"Compared: {self.what}, by {self.metric}, paired by seed. A difference is significant if its "
            f"interval excludes zero, and equivalent if its interval is within {points}. {self._procedure}"
            f"{some} {one_graph}"
        )

    @property
    def _procedure(self) -> str:
        if self.planned:
            effects = "this effect" if self.tested == 1 else f"these {self.tested} effects"
            return (
                f"The chance of any false verdict on {effects} is at most 5 % (sign-flip test, single-step "
                "maximum, simultaneous intervals)."
            )
        level = f"{100 * (1 - self.alpha):.2f}".rstrip("0").rstrip(".")
        if self.tested == 1:
            return f"The interval has the level {level} % (t-test)."
        verdicts = "is 1 verdict" if self.decided == 1 else f"are {self.decided} verdicts"
        return (
            f"The intervals have the level {level} %, because there {verdicts} among {self.tested} "
            "comparisons: at most 5 % of the verdicts are expected to be false (false discovery rate, "
            "t-tests, intervals of Benjamini and Yekutieli)."
        )


def discoveries(
    differences: Mapping[Any, pd.Series], what: str, metric: str, *, margin: float = MARGIN
) -> Family:
    """Return the family of `differences` by seed, with at most 5 % false verdicts among its verdicts.

    Args:
        differences: One difference per seed, by comparison.
        what: The comparisons in words.
        metric: The score that is compared.
        margin: Smaller differences count as equivalent.
    """
    seeds, mean, error = moments(aligned(list(differences.values())))
    p, equal = _p_of_difference(mean, error, seeds), p_of_equivalence(mean, error, seeds, margin)
    tested = seeds >= FEWEST_SEEDS
    decided_at = np.sort(np.fmin(p, equal)[tested])  # the alpha at which an interval has a verdict
    m = max(1, len(decided_at))
    steps = np.flatnonzero(decided_at <= LEVEL * np.arange(1, len(decided_at) + 1) / m)
    alpha = LEVEL * (steps[-1] + 1 if len(steps) else 1) / m
    corrected = np.where(tested, np.minimum(1, p * LEVEL / alpha), np.nan)
    critical = np.where(tested, _quantile(1 - alpha / 2, seeds), np.nan)
    found = _differences(seeds, mean, error, p, corrected, critical, np.full(len(p), alpha), margin)
    return Family(what, metric, margin, dict(zip(differences, found, strict=True)), False, float(alpha))


def planned(
    differences: Mapping[Any, pd.Series], what: str, metric: str, *, margin: float = MARGIN
) -> Family:
    """Return the family of `differences` by seed, with simultaneous intervals; see `discoveries`."""
    values = aligned(list(differences.values()))
    seeds, mean, error = moments(values)
    flips, tested = sign_flips(len(values)), seeds >= FEWEST_SEEDS
    largest = np.zeros(len(flips))  # for each flip, the largest t of all comparisons
    p, corrected, critical = (np.full(len(seeds), np.nan) for _ in range(3))
    flipped = {index: flipped_t(values[:, index], flips) for index in np.flatnonzero(seeds > 1).tolist()}
    for index, t in flipped.items():
        p[index] = share_above(t[0], t)
        if tested[index]:
            np.maximum(largest, t, out=largest)
    if tested.any():
        corrected[tested] = [
            share_above(flipped[index][0], largest) for index in np.flatnonzero(tested).tolist()
        ]
        # A larger t occurs in at most LEVEL of all flips, so it has a corrected p of at most LEVEL.
        critical[tested] = (1 + 1e-6) * np.sort(largest)[len(largest) - 1 - int(LEVEL * len(largest))]
    alpha = np.where(tested, 2 * _beyond(critical, seeds), LEVEL)
    found = _differences(seeds, mean, error, p, corrected, critical, alpha, margin)
    return Family(what, metric, margin, dict(zip(differences, found, strict=True)), True)


def _differences(
    seeds: np.ndarray,
    mean: np.ndarray,
    error: np.ndarray,
    p: np.ndarray,
    corrected: np.ndarray,
    critical: np.ndarray,
    alpha: np.ndarray,
    margin: float,
) -> list[Difference]:
    """Return a `Difference` for each comparison; `critical` is NaN for those with too few seeds."""
    usual = np.where(seeds > 1, _quantile(1 - LEVEL / 2, seeds), np.nan)
    half = np.where(np.isnan(critical), usual, critical) * error
    half = np.where(seeds > 1, half, np.nan)
    detectable = (critical + _quantile(POWER, seeds)) * error
    deviation = error * np.sqrt(seeds)
    columns = (
        *(mean, mean - half, mean + half, seeds.astype(int), p, corrected, detectable),
        *(_needed(seeds, effect, deviation, alpha) for effect in (np.abs(mean), margin - np.abs(mean))),
        np.full(len(seeds), margin),
    )
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return [Difference(*each) for each in rows]


def aligned(differences: Sequence[pd.Series]) -> np.ndarray:
    """Return a table (all seeds of any comparison, comparisons); NaN where a comparison lacks a seed."""
    seeds = sorted(set().union(*(each.index for each in differences)))
    rows = {seed: row for row, seed in enumerate(seeds)}
    values = np.full((len(seeds), len(differences)), np.nan)
    for column, each in enumerate(differences):
        values[[rows[seed] for seed in each.index], column] = each.to_numpy(dtype=float)
    return np.round(values[~np.isnan(values).all(axis=1)], DIGITS)


def moments(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the number of seeds, the mean and its standard error for each comparison."""
    there = ~np.isnan(values)
    seeds = there.sum(axis=0).astype(float)
    filled = np.where(there, values, 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.round(filled.sum(axis=0) / seeds, DIGITS)
        squares = np.where(there, (filled - mean) ** 2, 0.0).sum(axis=0)
        return seeds, mean, np.round(np.sqrt(squares / (seeds - 1) / seeds), DIGITS)


def _p_of_difference(mean: np.ndarray, error: np.ndarray, seeds: np.ndarray) -> np.ndarray:
    """Return p of a two-sided t-test; NaN for a single seed."""
    return np.where(seeds > 1, np.minimum(1, 2 * _beyond(_ratio(np.abs(mean), error), seeds)), np.nan)


def p_of_equivalence(mean: np.ndarray, error: np.ndarray, seeds: np.ndarray, margin: float) -> np.ndarray:
    """Return the alpha at which an interval is within the margin: twice p of two one-sided t-tests."""
    room = np.round(margin - np.abs(mean), DIGITS)
    return np.where(seeds > 1, 2 * _beyond(_ratio(room, error), seeds), np.nan)


def _ratio(effect: np.ndarray, error: np.ndarray) -> np.ndarray:
    """Return `effect` in standard errors: infinite if all seeds agree, -infinite if there is no effect."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(error > 0, effect / error, np.where(effect > 0, np.inf, -np.inf))


def flipped_t(values: np.ndarray, flips: np.ndarray) -> np.ndarray:
    """Return the absolute value of Student's t for each flip of one comparison."""
    there = ~np.isnan(values)
    own = values[there]
    t = np.abs((flips if there.all() else flips[:, there]) @ own)
    length = np.sqrt(len(own) * (own**2).sum())
    share = np.round(t / length, DIGITS) if length > 0 else t
    return share * np.sqrt(max(len(own) - 1, 0) / np.maximum(1 - share**2, 1e-9))


def asymmetry(differences: Iterable[pd.Series]) -> float:
    """Return p of the test that differences are symmetric around their means; NaN if there are too few seeds.

    The statistic is the mean squared skewness over comparisons. It is compared with its values when the signs
    of the deviations are flipped.
    """
    able = [each for each in differences if each.notna().sum() >= FEWEST_SEEDS]
    if not able:
        return np.nan
    values = aligned(able)
    flips = sign_flips(len(values))
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
    return share_above(total[0], total)


def share_above(observed: float, flipped: np.ndarray) -> float:
    """Return the share of flips that are at least as large as `observed`."""
    return float((flipped >= observed - 1e-9).mean())


def sign_flips(seeds: int) -> np.ndarray:
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


def holm(p: Sequence[float] | np.ndarray) -> np.ndarray:
    """Return the p values with Holm's correction."""
    array = np.asarray(p, dtype=float)
    order = np.argsort(array, kind="stable")
    corrected = np.empty_like(array)
    left = len(array) - np.arange(len(array))
    corrected[order] = np.minimum(1.0, np.maximum.accumulate(left * array[order]))
    return corrected


def _quantile(probability: float | np.ndarray, seeds: np.ndarray) -> np.ndarray:
    return scipy.special.stdtrit(np.maximum(seeds - 1, 1), probability)


def _beyond(t: np.ndarray, seeds: np.ndarray) -> np.ndarray:
    """Return the probability of a larger t."""
    return scipy.special.stdtr(np.maximum(seeds - 1, 1), -t)


def _needed(seeds: np.ndarray, effect: np.ndarray, deviation: np.ndarray, alpha: np.ndarray) -> np.ndarray:
    """Return the number of seeds with which an interval excludes `effect`, with POWER.

    It is larger than `seeds`, and infinite above MOST_SEEDS.
    """
    needed = np.full(len(seeds), np.inf)
    size = _ratio(effect, deviation)
    for level in np.unique(alpha):
        # In standard deviations. The sign makes it increase, as `searchsorted` requires.
        found = -(_quantile(1 - level / 2, COUNTS) + _quantile(POWER, COUNTS)) / np.sqrt(COUNTS)
        its = alpha == level
        counts = np.searchsorted(found, -size[its]) + COUNTS[0]
        needed[its] = np.maximum(counts, np.maximum(seeds[its] + 1, FEWEST_SEEDS))
    return np.where(needed <= MOST_SEEDS, needed, np.inf)
