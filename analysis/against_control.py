"""Compare every method with one control method over datasets, by paired tests.

The unit is the dataset: its value is the mean of a method over seeds. The control is the reference of the
report. Fewer than six datasets give no test, because no exact test over them reaches 5 %.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
import scipy.stats

from analysis.comparisons import Analysis
from analysis.inference import AHEAD, BEHIND, DIGITS, holm
from analysis.labels import transductive_words
from analysis.over_datasets import OverDatasets
from analysis.statistics import Estimate, estimate
from analysis.table import Cell, Table
from analysis.words import p_value

FEWEST_FOR_TESTS = 6
SIGNIFICANT = 0.05  # not part of the report's error budget, because it is about graphs and not about seeds
OPEN = "not separated"


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
        """Return AHEAD or BEHIND of the control, or OPEN."""
        if self.corrected >= SIGNIFICANT:
            return OPEN
        return AHEAD if self.ranks > 0 else BEHIND


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
            f'"Ahead" and "behind" mean a p below {SIGNIFICANT:g} with Holm\'s correction for {len(tests)} '
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
