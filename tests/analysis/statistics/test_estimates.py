from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest
import scipy.stats

from analysis.statistics.estimates import Factor, contrasts, estimate, switch

SCORES = [0.61, 0.58, 0.64, 0.60, 0.57, 0.66]


def test_the_interval_is_students() -> None:
    found = estimate(SCORES)
    expected = scipy.stats.ttest_1samp(SCORES, 0).confidence_interval(0.95)
    assert found.mean == pytest.approx(0.61)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), rel=1e-12)
    assert found.seeds == 6


def test_one_seed_has_a_mean_and_no_interval() -> None:
    found = estimate([0.5])
    assert found.mean == 0.5 and np.isnan(found.half)


def test_factorial_effects_are_recovered_from_a_made_model() -> None:
    # accuracy = 50 + 8 A + 2 B + 3 AB (on: 1, off: 0), and a part of each seed's own.
    seeds = np.array([0.0, 1.5, -2.0, 0.7, 3.1, -0.4])
    cells = {
        (a, b): pd.Series(50 + 8 * a + 2 * b + 3 * a * b + seeds)
        for a, b in itertools.product((False, True), repeat=2)
    }
    found = contrasts(cells, [switch("A"), switch("B")])
    assert found["A"].mean() == pytest.approx(8 + 3 / 2)  # 8 with B off, 11 with B on
    assert found["B"].mean() == pytest.approx(2 + 3 / 2)
    assert found["A x B"].mean() == pytest.approx(3 / 2)  # half of what B adds to A's effect
    # Paired by seed, what the seeds differ by plays no part.
    assert found["A"].std() == pytest.approx(0, abs=1e-9)


def test_a_factor_of_three_levels_is_told_by_its_contrasts_averaged_over_the_others() -> None:
    # accuracy = 50 + 20 at the middle level, 23 at the top, 4 B at the top and 1 B below it.
    worth = {"top": 23, "middle": 20, "bottom": 0}
    cells = {
        (level, b): pd.Series([50.0 + gain + b * (4 if level == "top" else 1)] * 5)
        for (level, gain), b in itertools.product(worth.items(), (False, True))
    }
    levels = {"top less middle": ("top", "middle"), "middle less bottom": ("middle", "bottom")}
    three = Factor("top less middle", levels)
    found = contrasts(cells, [three, switch("B")])
    assert list(found) == ["top less middle", "middle less bottom", "B", "(top less middle) x B"]
    assert found["top less middle"].mean() == pytest.approx(3 + 3 / 2)
    assert found["middle less bottom"].mean() == pytest.approx(20)
    assert found["B"].mean() == pytest.approx((4 + 1 + 1) / 3)
    assert found["(top less middle) x B"].mean() == pytest.approx(3 / 2)


def test_factorial_effects_count_only_seeds_with_all_combinations() -> None:
    cells = {(False,): pd.Series({0: 1.0, 1: 2.0}), (True,): pd.Series({0: 2.0})}
    assert contrasts(cells, [switch("A")])["A"].count() == 1
