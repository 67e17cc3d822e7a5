"""Show methods over datasets: ranks, ratings, and paired tests against a control."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
import scipy.stats

from analysis.comparisons import Analysis
from analysis.data.labels import transductive_words
from analysis.statistics.estimates import HALVES, Estimate, estimate, times_first
from analysis.statistics.inference import BETTER, DIGITS, INCONCLUSIVE, WORSE, holm
from analysis.statistics.over_datasets import (
    FEWEST_DATASETS,
    FEWEST_FOR_INTERVALS,
    FEWEST_METHODS,
    MOST_METHODS,
    OverDatasets,
)
from analysis.tables.table import Cell, Table
from analysis.words import p_value


def why_not(analysis: Analysis) -> str:
    """Return why a comparison of methods has no ranking over datasets; an empty string if it has one."""
    runs = analysis.results.runs
    if runs["method"].nunique() < 2 or analysis.over_datasets is not None:
        return ""
    count = runs["dataset"].nunique()
    if count < FEWEST_DATASETS:
        there = "there is 1" if count == 1 else f"there are {count}"
        return f"no ranking: it needs {FEWEST_DATASETS} datasets, and {there}"
    shared = f"share {FEWEST_METHODS} to {MOST_METHODS} methods"
    return f"no ranking: no three datasets have one setting each and {shared}"


def friedman_words(found: OverDatasets) -> str:
    """Return "Friedman's test of equal mean ranks gives p = 0.031."."""
    return f"Friedman's test of equal mean ranks gives {p_value(found.friedman)}."


def rating_table(analysis: Analysis) -> Table | None:
    """Return ranks, Nemenyi's verdicts, win rates and ratings, or None if there is no ranking."""
    found = analysis.over_datasets
    if found is None:
        return None
    ratings, rates, ranks = found.ratings, found.win_rates, found.ranks.mean()
    reference, apart = found.methods[0], set(found.apart)
    best = ranks.sort_values().index[0]
    rows, numbers = [], []
    for place, method in enumerate(ranks.sort_values().index):
        over = found.improvement.loc[method, reference]
        verdict = "best" if method == best else WORSE if method in apart else INCONCLUSIVE
        above = "reference" if method == reference else "" if np.isnan(over) else f"{100 * over:.0f} %"
        rows.append(
            [
                Cell(str(method), str(method)),
                Cell(f"{ranks[method]:.1f}", float(ranks[method])),
                Cell(verdict, float(place)),
                Cell(f"{100 * rates[method]:.0f} %", float(rates[method])),
                Cell(_rating_words(found, str(method)), float(ratings.loc[method, "rating"])),
                Cell(above, None if np.isnan(over) else float(over)),
            ]
        )
        numbers.append(
            {
                "method": method,
                "mean rank": ranks[method],
                "from the best": verdict,
                "win rate": rates[method],
                **ratings.loc[method],
                f"above {reference}": over,
            }
        )
    return Table(
        name="over-datasets",
        section="datasets",
        title=f"Over {len(found.scores)} datasets: ranks, win rates and ratings",
        caption=(
            f"All columns use {found.metric} at the last session. Mean ranks and win rates use means over "
            'seeds. The win rate is how often a method is above another one on a dataset. "From the best" '
            f"is Nemenyi's test of mean ranks at 5 % (critical difference {found.critical_difference:.1f}). "
            f"In {times_first(-found.ranks)} of {HALVES} random halves of the datasets, {best} has the best "
            f"mean rank. {friedman_words(found)} {rating_words(found)} The last column is how often a method "
            f"is above {reference} with the same seed, averaged over datasets."
        ),
        columns=["method", "mean rank", "from the best", "win rate", "rating", f"above {reference}"],
        rows=rows,
        numbers=pd.DataFrame(numbers),
        notes=transductive_words(found.runs),
    )


def rating_words(found: OverDatasets) -> str:
    """Return sentences that describe the ratings and their intervals."""
    count = len(found.scores)
    intervals = (
        f"Intervals are Student's 95 % intervals over {count} datasets (jackknife), and are rough."
        if count >= FEWEST_FOR_INTERVALS
        else f"There are no intervals: they need {FEWEST_FOR_INTERVALS} datasets, and there are {count}."
    )
    always = (
        ' "Or more" and "or less" mark methods above or below all others in every run; only the prior bounds '
        "their rating."
    )
    return (
        "Ratings are Bradley-Terry ratings on Elo's scale, with a mean of zero. They count which method is "
        "above which with the same seed, and their prior is half a run. "
        f"{intervals}{always if found.constant.any() else ''}"
    )


def _rating_words(found: OverDatasets, method: str) -> str:
    rating = found.ratings.loc[method]
    constant = found.constant[found.methods.index(method)]
    if constant:
        return f"{rating['rating']:+.0f} or {'more' if constant > 0 else 'less'}"
    limits = "" if np.isnan(rating["low"]) else f" [{rating['low']:+.0f}, {rating['high']:+.0f}]"
    return f"{rating['rating']:+.0f}{limits}"


FEWEST_FOR_TESTS = 6
SIGNIFICANT = 0.05  # of a family of tests over graphs


@dataclass(frozen=True)
class Paired:
    """A method minus the control, over datasets."""

    method: str
    difference: Estimate  # over datasets
    above: int  # datasets on which the method has the higher mean
    below: int
    ranks: float  # the sum of signed ranks that the test uses
    p: float  # not corrected
    corrected: float  # with Holm's correction for all methods

    @property
    def verdict(self) -> str:
        """Return BETTER or WORSE than the control, or INCONCLUSIVE."""
        if self.corrected >= SIGNIFICANT:
            return INCONCLUSIVE
        return BETTER if self.ranks > 0 else WORSE


def paired_tests(found: OverDatasets) -> list[Paired]:
    """Return each method minus the control (the first method), or nothing for fewer than six datasets."""
    if len(found.scores) < FEWEST_FOR_TESTS:
        return []
    control, *others = found.methods
    differences = {method: (found.means[method] - found.means[control]).round(DIGITS) for method in others}
    tests = [signed_ranks(each.to_numpy()) for each in differences.values()]
    corrected = holm([p for _, p in tests]).tolist()
    return [
        Paired(method, estimate(each), int((each > 0).sum()), int((each < 0).sum()), *test, p)
        for (method, each), test, p in zip(differences.items(), tests, corrected, strict=True)
    ]


def signed_ranks(differences: np.ndarray) -> tuple[float, float]:
    """Return the sum of signed ranks and p of Wilcoxon's two-sided test; 1 if all differences are zero.

    The test is exact for up to 50 differences without ties, and for up to 13 with ties or zeros.
    """
    there = differences[differences != 0]
    ranks = float((np.sign(there) * scipy.stats.rankdata(np.abs(there))).sum())
    return ranks, float(scipy.stats.wilcoxon(differences).pvalue) if len(there) else 1.0


def smallest_p(datasets: int, methods: int) -> float:
    """Return the smallest corrected p that a comparison of `methods` over `datasets` can reach."""
    return min(1.0, methods * 2.0 ** (1 - datasets))


def why_no_tests(analysis: Analysis) -> str:
    """Return why a ranking over datasets has no paired tests; an empty string if it has them."""
    found = analysis.over_datasets
    if found is None or len(found.scores) >= FEWEST_FOR_TESTS:
        return ""
    return (
        f"no paired tests: they need {FEWEST_FOR_TESTS} datasets, and there are {len(found.scores)}; "
        "with fewer, no exact test reaches 5 %"
    )


def limit_words(found: OverDatasets) -> str:
    """Return a sentence if so few datasets cannot separate any of so many methods, otherwise nothing."""
    datasets, methods = len(found.scores), len(found.methods) - 1
    least = smallest_p(datasets, methods)
    if least < SIGNIFICANT:
        return ""
    return (
        f"{datasets} datasets are too few for {methods} comparisons: the smallest possible corrected p is "
        f"{least:.3f}."
    )


def control_table(analysis: Analysis) -> Table | None:
    """Return the paired tests over datasets, or None if there are too few datasets."""
    found = analysis.over_datasets
    tests = paired_tests(found) if found else []
    if found is None or not tests:
        return None
    control = found.methods[0]
    ordered = sorted(tests, key=lambda each: each.difference.mean, reverse=True)
    return Table(
        name="against-control",
        section="datasets",
        title=f"Over {len(found.scores)} datasets: each method compared with {control}",
        caption=(
            f"Each dataset counts once, by its mean over seeds of {found.metric} at the last session. "
            f"Differences are a method minus {control}, in points, with Student's 95 % intervals over "
            "datasets, not corrected. p is of Wilcoxon's exact signed-rank test (two-sided). "
            f"A verdict needs a p below {SIGNIFICANT:g} with Holm's correction for {len(tests)} "
            f"comparisons. {limit_words(found)}"
        ).strip(),
        columns=["method", f"minus {control}", "datasets above, below", "p", "corrected p", "verdict"],
        rows=[_row(each) for each in ordered],
        numbers=pd.DataFrame([_numbers(each) for each in ordered]),
        notes=transductive_words(found.runs),
    )


def _row(each: Paired) -> list[Cell]:
    mean, low, high = (round(100 * value, 1) + 0.0 for value in _limits(each))
    return [
        Cell(each.method, each.method),
        Cell(f"{mean:+.1f} [{low:+.1f}, {high:+.1f}]", each.difference.mean),
        Cell(f"{each.above}, {each.below}", float(each.above - each.below)),
        Cell(p_value(each.p).removeprefix("p ").removeprefix("= "), each.p),
        Cell(p_value(each.corrected).removeprefix("p ").removeprefix("= "), each.corrected),
        Cell(each.verdict, each.verdict),
    ]


def _limits(each: Paired) -> tuple[float, float, float]:
    return each.difference.mean, each.difference.low, each.difference.high


def _numbers(each: Paired) -> dict[str, object]:
    mean, low, high = _limits(each)
    return {
        "method": each.method,
        "difference": mean,
        "low": low,
        "high": high,
        "datasets": each.difference.seeds,
        "above": each.above,
        "below": each.below,
        "p": each.p,
        "corrected": each.corrected,
        "verdict": each.verdict,
    }
