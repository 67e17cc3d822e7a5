"""What is claimed from seeds, against SciPy, by hand, and against what chance alone would claim."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import scipy.stats

from analysis.references.planned import planned_verdicts
from analysis.statistics.inference import (
    LEVEL,
    MARGIN,
    Difference,
    Family,
    aligned,
    asymmetry,
    discoveries,
    flipped_t,
    holm,
    planned,
    sign_flips,
)
from analysis.words import points


def named(*differences: object) -> dict[tuple[int], pd.Series]:
    return {(index,): pd.Series(values) for index, values in enumerate(differences)}  # type: ignore[call-overload]


def told(
    *differences: object, test: Callable[..., Family] = planned, margin: float = MARGIN
) -> list[Difference]:
    found = test(named(*differences), "this less that", "accuracy", margin=margin)
    return list(found.comparisons.values())


def test_a_single_test_is_scipys_exact_sign_flip_test() -> None:
    random = np.random.default_rng(3)
    for count in (5, 8, 11):
        values = random.normal(0.01, 0.02, size=count)
        expected = scipy.stats.permutation_test(
            (values,), np.mean, permutation_type="samples", n_resamples=np.inf
        )
        assert told(values)[0].p == pytest.approx(expected.pvalue, rel=1e-12)


@pytest.mark.parametrize(
    ("mean", "half", "words"),
    [
        (-0.002, 0.0016, "-0.2 [-0.4, -0.04]"),
        (0.002, 0.0016, "+0.2 [+0.04, +0.4]"),
        (0.002, 0.0024, "+0.2 [-0.0, +0.4]"),  # includes zero
        (0.02, 0.01, "+2.0 [+1.0, +3.0]"),
    ],
)
def test_a_limit_that_excludes_zero_is_not_shown_as_zero(mean: float, half: float, words: str) -> None:
    found = replace(told([0.01, 0.02, 0.03])[0], mean=mean, low=mean - half, high=mean + half)
    assert points(found) == words


def test_equivalence_is_two_one_sided_t_tests() -> None:
    values = np.array([0.001, -0.002, 0.003, 0.0, 0.002, -0.001])
    below = scipy.stats.ttest_1samp(values, 0.01, alternative="less").pvalue
    above = scipy.stats.ttest_1samp(values, -0.01, alternative="greater").pvalue
    (found,) = told(values, test=discoveries)
    assert max(below, above) < LEVEL / 2 and found.verdict == "equivalent"
    assert told(values, margin=0.002, test=discoveries)[0].verdict == "inconclusive"


def test_ties_are_ties_whatever_rounding_left_of_them() -> None:
    # 0.3 - 0.2 and 0.1 are the same difference: one of each sign cancel, and the other patterns follow.
    noisy = [0.3 - 0.2, -0.1, 0.1, 0.1, -(0.7 - 0.6), 0.1]
    assert told(noisy)[0].p == told([0.1, -0.1, 0.1, 0.1, -0.1, 0.1])[0].p


def test_five_seeds_can_never_tell_and_say_so() -> None:
    # 2 of 2^5 sign patterns are as extreme: 0.0625, whatever the difference.
    (found,) = told([0.5, 0.5001, 0.4999, 0.5, 0.5002])
    assert found.p == 2 / 32 and found.verdict == "too few seeds"
    assert np.isnan(found.corrected)  # untested, not uncorrected
    (level,) = told([0.0, 0.0])
    assert level.verdict == "too few seeds"  # two equal seeds are not evidence of equality
    assert told([0.5, 0.5001, 0.4999, 0.5, 0.5002, 0.5003])[0].verdict == "significantly better"


def test_many_comparisons_need_no_more_seeds_than_one() -> None:
    # By Holm's correction of Wilcoxon's test, 30 comparisons of eight seeds could never be significant.
    random = np.random.default_rng(0)
    found = told(*(0.2 + 0.01 * random.normal(size=8) for _ in range(30)))
    assert {each.verdict for each in found} == {"significantly better"}
    assert 30 * 2 / 2**8 > 0.05


def test_one_step_down_is_worked_out_by_hand() -> None:
    # The smaller of two differences is compared with its own flips, the larger with the larger of both.
    small, large = [0.01, -0.01, 0.02, 0.01, 0.0, 0.03, 0.01], [0.05, 0.06, 0.04, 0.05, 0.07, 0.05, 0.06]
    flips = sign_flips(7)
    one, other = (flipped_t(np.array(values), flips) for values in (small, large))
    assert np.mean(np.maximum(one, other) >= other[0] - 1e-9) < 0.04 < np.mean(one >= one[0] - 1e-9)
    assert planned_verdicts(named(small, large)) == {(0,): "inconclusive", (1,): "significantly better"}
    # p = 2/64 alone, and 5/64 against the larger t of both.
    one, other = [0.006, 0.024, 0.027, 0.014, 0.015, 0.004, -0.001], [-18, -20, 19, -1, 3, -13, -22]
    assert planned_verdicts(named(one))[0,] == "significantly better"
    assert planned_verdicts(named(one, np.array(other) / 1000))[0,] == "inconclusive"


def test_single_step_maximum_by_hand() -> None:
    # Of 2^2 ways to flip the second and third of three seeds (the first is either way) t is known of all.
    one, other = np.array([1.0, 2.0, 3.0]), np.array([1.0, -1.0, 2.0])
    signs = np.array([[1, 1, 1], [1, -1, 1], [1, 1, -1], [1, -1, -1]])

    def t(values: np.ndarray) -> np.ndarray:
        flipped = signs * values
        return np.abs(flipped.mean(axis=1) / (flipped.std(axis=1, ddof=1) / np.sqrt(3)))

    for values in (one, other):
        assert sorted(flipped_t(values, sign_flips(3))) == pytest.approx(sorted(t(values)), rel=1e-6)
    random = np.random.default_rng(0)
    values = random.normal(0.01, 0.02, size=(3, 8))
    largest = np.max([flipped_t(each, sign_flips(8)) for each in values], axis=0)
    found = told(*values)
    for each, own in zip(found, values, strict=True):
        assert each.corrected == np.mean(largest >= flipped_t(own, sign_flips(8))[0] - 1e-9)
        critical = (each.high - each.mean) / scipy.stats.sem(own)
        assert critical == pytest.approx(np.sort(largest)[-1 - int(0.05 * len(largest))], rel=1e-5)


@pytest.mark.parametrize("test", [discoveries, planned])
@pytest.mark.parametrize("seeds", [6, 10, 20])
def test_intervals_and_verdicts_never_disagree(test: Callable[..., Family], seeds: int) -> None:
    random = np.random.default_rng(seeds)
    kinds = set()
    for _ in range(40):
        values = random.choice([0, 0.004, 0.03], size=12) + 0.01 * random.normal(size=(seeds, 12))
        values = np.round(values, int(random.choice([2, 3, 8])))  # ties
        family = test(named(*values.T), "", "")
        assert family.planned or family.alpha == LEVEL * max(1, family.decided) / 12
        for each in family.comparisons.values():
            kinds.add(each.verdict)
            zero = each.low <= 0 <= each.high
            within = each.low > -MARGIN and each.high < MARGIN
            assert zero == (each.verdict in ("equivalent", "inconclusive"))
            assert not (within and each.verdict == "inconclusive")
            assert (each.corrected <= LEVEL + 1e-12) == (not zero), each
    assert len(kinds) >= 3


def test_a_family_has_one_level_that_follows_its_verdicts() -> None:
    random = np.random.default_rng(1)
    values = {(i,): pd.Series(0.05 * (i < 6) + 0.02 * random.normal(size=10)) for i in range(12)}
    found = discoveries(values, "", "")
    assert found.alpha == LEVEL * found.decided / 12 and 6 <= found.decided < 12
    for key, each in values.items():
        expected = scipy.stats.ttest_1samp(each, 0).confidence_interval(1 - found.alpha)
        assert (found[key].low, found[key].high) == pytest.approx((expected.low, expected.high), rel=1e-6)
    # Benjamini and Hochberg's procedure decides the same, if nothing is equivalent.
    p = [scipy.stats.ttest_1samp(each, 0).pvalue for each in values.values()]
    expected = scipy.stats.false_discovery_control(p) <= LEVEL
    assert [each.significant for each in found.comparisons.values()] == expected.tolist()
    assert "The intervals have the level" in found.words


@pytest.mark.parametrize("test", [discoveries, planned])
def test_a_comparison_of_too_few_seeds_costs_the_others_nothing(test: Callable[..., Family]) -> None:
    values = np.random.default_rng(1).normal(0.02, 0.02, size=10)
    alone, (_, beside) = told(values, test=test)[0], told([0.3, 0.31, 0.32], values, test=test)
    assert (beside.corrected, beside.low) == (alone.corrected, alone.low)


def test_a_difference_of_exactly_the_margin_is_not_less_than_it() -> None:
    (found,) = told([0.01] * 10)
    assert found.verdict == "significantly better" and not found.within_margin
    (less,) = told([0.004] * 10)
    assert less.verdict == "significantly better" and less.within_margin


def test_skewed_differences_are_noticed_and_symmetric_ones_seldom() -> None:
    random = np.random.default_rng(0)

    def noticed(skewed: bool) -> float:
        found = []
        for _ in range(60):
            own = random.exponential(size=(10, 6)) - 1 if skewed else random.normal(size=(10, 6))
            values = own * np.linspace(0.2, 2, 6)  # unequal noise: equal skewed parts would cancel
            pairs = [pd.Series(values[:, i] - values[:, j]) for i in range(6) for j in range(i)]
            found.append(asymmetry(pairs) < 0.05)
        return float(np.mean(found))

    assert noticed(skewed=False) < 0.05 + 3 * np.sqrt(0.05 * 0.95 / 60)
    assert noticed(skewed=True) > 0.25


def test_what_is_open_says_what_would_have_been_found_and_how_many_seeds_would_tell() -> None:
    random = np.random.default_rng(5)
    values = random.normal(0, 0.03, size=10) + 0.015
    (found,) = told(values)
    assert found.verdict == "inconclusive"
    error = scipy.stats.sem(values)
    assert 2.8 * error < found.detectable < 4 * error  # (t of the level, some 2.3, and of the power, 0.9)
    seeds, verdict = found.needed
    assert 10 < seeds < 50 and verdict == "significantly better"
    power = np.mean(
        [
            told(random.normal(found.mean, values.std(ddof=1), size=int(seeds)))[0].verdict == verdict
            for _ in range(100)
        ]
    )
    assert 0.7 < power < 0.92


def test_no_difference_at_all_is_equivalent_and_no_seed_is_too_few() -> None:
    same, none = told([0.0] * 6, [np.nan] * 6)
    assert same.p == 1.0 and same.verdict == "equivalent"
    assert none.seeds == 0 and np.isnan(none.mean) and none.verdict == "too few seeds"


def test_holm_by_hand() -> None:
    # p = 0.01, 0.04, 0.03, 0.005: sorted 0.005 x 4, 0.01 x 3, 0.03 x 2, and 0.04 x 1 raised to 0.06.
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])


def test_the_same_numbers_have_the_same_verdict_with_drawn_flips() -> None:
    values = np.random.default_rng(2).normal(0.004, 0.01, size=20)
    one, other = told(values)[0], told(values)[0]
    assert one == other
    expected = scipy.stats.permutation_test(
        (values,), np.mean, permutation_type="samples", n_resamples=50_000, rng=np.random.default_rng(0)
    )
    assert one.p == pytest.approx(expected.pvalue, abs=0.02)


def test_chance_alone_is_seldom_claimed() -> None:
    random = np.random.default_rng(11)
    false = 0
    for _ in range(100):
        seeds, reference = random.normal(size=(2, 10, 1)) * 0.02
        methods = seeds + 0.01 * random.normal(size=(10, 8))
        false += any(each.significant for each in told(*(methods - seeds - 0.5 * reference).T))
    assert false / 100 < 0.05 + 3 * np.sqrt(0.05 * 0.95 / 100)


def test_tables_are_aligned_by_seed() -> None:
    found = aligned([pd.Series({3: 1.0, 1: 2.0}), pd.Series({2: 3.0, 1: np.nan})])
    assert np.array_equal(found, [[2.0, np.nan], [np.nan, 3.0], [1.0, np.nan]], equal_nan=True)
