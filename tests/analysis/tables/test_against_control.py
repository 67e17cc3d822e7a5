"""Paired tests of all methods against a control, with datasets as the unit."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import product

import numpy as np
import pandas as pd
import pytest

from analysis.comparisons import Analysis
from analysis.data.reading import read
from analysis.data.results import Results
from analysis.statistics.inference import INCONCLUSIVE
from analysis.statistics.over_datasets import OverDatasets
from analysis.tables.over_datasets import (
    control_table,
    paired_tests,
    signed_ranks,
    smallest_p,
    why_no_tests,
)
from tests.analysis import held
from tests.analysis.conftest import Write, sentences

GRAPHS = ("debian", "metamath", "wordnet", "foldoc", "cora-full", "dblp", "reddit", "amazon-clothing")
# The last of these has ties, and the one before a zero.
DIFFERENCES = ([1, 2, 3, 4, 5, 6], [1, -2, 3, 4, 5, 6, 7], [0, 1, -2, 3, 4, 5, 6], [1, 1, -1, 2, 2, 3, 3])


@pytest.mark.parametrize("values", DIFFERENCES)
def test_p_is_the_share_of_sign_flips_with_a_rank_sum_as_large(values: list[float]) -> None:
    there = [value for value in values if value]
    ranks = pd.Series(np.abs(there)).rank().to_numpy()
    sums = [abs(float(np.dot(signs, ranks))) for signs in product((-1, 1), repeat=len(there))]
    observed = float(np.dot(np.sign(there), ranks))
    found, p = signed_ranks(np.array(values, dtype=float))
    assert found == observed
    assert p == pytest.approx(np.mean(np.array(sums) >= abs(observed) - 1e-9))


def of_means(**means: list[float]) -> OverDatasets:
    """Two seeds around each mean, one value per dataset."""
    rows = zip(*means.values(), strict=True)
    scores = {
        f"graph {number}": pd.DataFrame([np.array(row) - 0.01, np.array(row) + 0.01], columns=list(means))
        for number, row in enumerate(rows)
    }
    return OverDatasets(scores, "accuracy", pd.DataFrame())


def test_verdicts_by_hand() -> None:
    up = [0.01 * place for place in range(1, 9)]
    found = of_means(
        control=[0.5] * 8,
        better=[0.5 + each for each in up],
        worse=[0.5 - each for each in up],
        equal=[0.5] * 8,
        mixed=[0.5 + each * (-1) ** place for place, each in enumerate(up)],
    )
    better, worse, equal, mixed = paired_tests(found)
    least = 2 / 2**8
    assert better.p == worse.p == pytest.approx(least)
    assert better.corrected == pytest.approx(4 * least) and worse.corrected == pytest.approx(4 * least)
    assert [each.verdict for each in (better, worse, equal, mixed)] == [
        "significantly better",
        "significantly worse",
        INCONCLUSIVE,
        INCONCLUSIVE,
    ]
    assert (better.above, better.below, worse.below, equal.above, equal.below) == (8, 0, 8, 0, 0)
    assert equal.p == 1.0 and equal.difference.mean == pytest.approx(0)
    assert better.difference.mean == pytest.approx(np.mean(up))
    half = 2.3646 * np.std(up, ddof=1) / np.sqrt(8)  # Student's 97.5 % quantile with seven degrees of freedom
    assert better.difference.high == pytest.approx(np.mean(up) + half, abs=1e-5)


def test_the_direction_is_that_of_the_ranks_and_not_of_the_counts() -> None:
    changes = [0.2 + 0.01 * place for place in range(15)] + [-0.001 * place for place in range(1, 17)]
    (other,) = paired_tests(of_means(control=[0.3] * 31, other=[0.3 + each for each in changes]))
    assert other.verdict == "significantly better" and (other.above, other.below) == (15, 16)


def test_five_datasets_have_no_test_and_many_methods_need_more_datasets() -> None:
    assert paired_tests(of_means(control=[0.5] * 5, other=[0.6, 0.7, 0.8, 0.9, 0.95])) == []
    assert smallest_p(6, 1) == pytest.approx(0.03125) and smallest_p(5, 1) > 0.05
    assert smallest_p(8, 7) > 0.05 > smallest_p(8, 6)
    assert smallest_p(11, 30) < 0.05 and smallest_p(6, 1000) == 1.0


@pytest.fixture
def studied(write: Write) -> Callable[[int], Results]:
    """Return a function that writes a study of four methods and an oracle on some datasets."""

    def study(datasets: int) -> Results:
        random = np.random.default_rng(0)
        for number, dataset in enumerate(GRAPHS[:datasets]):
            levels = {"hag-meta": 0.5, "gpn": 0.6, "icarl": 0.4, "cec": 0.5 + 0.04 * (-1) ** number}
            for method, level in levels.items():
                seeds = {seed: [0.9, level + 0.01 * random.normal()] for seed in range(3)}
                folder = write(seeds, method=method, dataset=dataset)
            write({0: [0.9, 0.9]}, method="joint", dataset=dataset)
        return read([folder])

    return study


def test_a_report_tells_who_is_separated_from_its_reference(studied: Callable[[int], Results]) -> None:
    results = studied(8)
    table = control_table(Analysis(results))
    assert table is not None and [row[0].text for row in table.rows] == ["GPN", "CEC", "iCaRL"]
    assert [row[-1].text for row in table.rows] == [
        "significantly better",
        INCONCLUSIVE,
        "significantly worse",
    ]
    assert table.rows[0][2].text == "8, 0" and table.columns[1] == "minus HAG-Meta"
    assert re.fullmatch(r"\+9\.\d \[\+9\.\d, \+10\.\d\]", table.rows[0][1].text)
    assert table.rows[0][3].text == "0.008" and table.rows[0][4].text == "0.023"
    (said,) = (each for each in sentences(results) if "paired tests" in each)
    assert said == (
        "Over 8 datasets, paired tests compare each method with HAG-Meta. GPN is significantly better. "
        "iCaRL is significantly worse. CEC is inconclusive."
    )
    assert held.check(results.folders[0])["control"] == 1
    other = control_table(Analysis(results.against("gpn")))
    assert other is not None and [row[-1].text for row in other.rows] == ["significantly worse"] * 3
    assert why_no_tests(Analysis(results)) == ""
