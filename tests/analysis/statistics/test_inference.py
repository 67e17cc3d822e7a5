"""What is claimed from seeds, against SciPy, by hand, and against what chance alone would claim."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.stats

from analysis.statistics.inference import Difference, Family, families, family, holm


def told(*differences: object, **options: object) -> list[Difference]:
    named = {(index,): pd.Series(values) for index, values in enumerate(differences)}
    return list(family(named, "this less that", "accuracy", **options).comparisons.values())  # type: ignore[arg-type]


def test_a_single_test_is_scipys_exact_sign_flip_test() -> None:
    random = np.random.default_rng(3)
    for count in (5, 8, 11):
        values = random.normal(0.01, 0.02, size=count)
        expected = scipy.stats.permutation_test(
            (values,), np.mean, permutation_type="samples", n_resamples=np.inf
        )
        assert told(values)[0].p == pytest.approx(expected.pvalue, rel=1e-12)


def test_the_interval_is_students() -> None:
    values = [0.01, 0.03, -0.02, 0.02, 0.04]
    expected = scipy.stats.ttest_1samp(values, 0).confidence_interval(0.95)
    (found,) = told(values)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), rel=1e-9)


def test_equivalence_is_two_one_sided_t_tests() -> None:
    values = np.array([0.001, -0.002, 0.003, 0.0, 0.002, -0.001])
    below = scipy.stats.ttest_1samp(values, 0.01, alternative="less").pvalue
    above = scipy.stats.ttest_1samp(values, -0.01, alternative="greater").pvalue
    (found,) = told(values)
    assert found.equivalence == pytest.approx(max(below, above)) and found.verdict == "equivalent"
    assert told(values, margin=0.002)[0].verdict == "undecided"


def test_ties_are_ties_whatever_rounding_left_of_them() -> None:
    # 0.3 - 0.2 and 0.1 are the same difference: one of each sign cancel, and the other patterns follow.
    noisy = [0.3 - 0.2, -0.1, 0.1, 0.1, -(0.7 - 0.6), 0.1]
    assert told(noisy)[0].p == told([0.1, -0.1, 0.1, 0.1, -0.1, 0.1])[0].p


def test_five_seeds_can_never_tell_and_say_so() -> None:
    # 2 of 2^5 sign patterns are as extreme: 0.0625, whatever the difference.
    (found,) = told([0.5, 0.5001, 0.4999, 0.5, 0.5002])
    assert found.p == 2 / 32 and found.verdict == "too few seeds"
    assert np.isnan(found.corrected) and np.isnan(found.equivalence)  # untested, not uncorrected
    (level,) = told([0.0, 0.0])
    assert level.verdict == "too few seeds"  # two equal seeds are not evidence of equality
    assert told([0.5, 0.5001, 0.4999, 0.5, 0.5002, 0.5003])[0].verdict == "ahead"


def test_many_comparisons_need_no_more_seeds_than_one() -> None:
    # By Holm's correction of Wilcoxon's test, 30 comparisons of eight seeds could never be significant.
    random = np.random.default_rng(0)
    found = told(*(0.2 + 0.01 * random.normal(size=8) for _ in range(30)))
    assert {each.verdict for each in found} == {"ahead"}
    assert 30 * 2 / 2**8 > 0.05


def test_one_step_down_is_worked_out_by_hand() -> None:
    # Of 2^2 ways to flip the second and third of three seeds (the first is either way) t is known of all.
    one, other = np.array([1.0, 2.0, 3.0]), np.array([1.0, -1.0, 2.0])
    signs = np.array([[1, 1, 1], [1, -1, 1], [1, 1, -1], [1, -1, -1]])

    def t(values: np.ndarray) -> np.ndarray:
        flipped = signs * values
        return np.abs(flipped.mean(axis=1) / (flipped.std(axis=1, ddof=1) / np.sqrt(3)))

    first, second = t(one), t(other)
    by_hand = np.mean(np.maximum(first, second) >= first[0] - 1e-9)
    from analysis.statistics import inference

    flipped = [inference._flipped(values, inference._flips(3)) for values in (one, other)]
    assert [t[0] for t in flipped] == pytest.approx([first[0], second[0]], rel=1e-6)
    assert sorted(flipped[0]) == pytest.approx(sorted(first), rel=1e-6)
    both = np.column_stack([one, other])
    _, corrected, _ = inference._tested(both, np.array([True, True]))
    assert corrected[0] == by_hand


def test_a_comparison_of_too_few_seeds_costs_the_others_nothing() -> None:
    values = np.random.default_rng(1).normal(0.02, 0.02, size=10)
    alone, (_, beside) = told(values)[0], told([0.3, 0.31, 0.32], values)
    assert beside.corrected == alone.corrected


def test_all_kinds_of_a_report_are_corrected_together() -> None:
    random = np.random.default_rng(4)
    one, other = random.normal(0.004, 0.01, size=(2, 10))
    asked = {"pairs": {"a": pd.Series(one)}, "effects": {"b": pd.Series(other)}}
    both = families(asked, {"pairs": "p", "effects": "e"}, "accuracy").families
    together = told(one, other)
    assert [both["pairs"]["a"], both["effects"]["b"]] == together
    assert both["pairs"].total == both["effects"].total == 2
    assert together[0].corrected >= told(one)[0].corrected


def test_how_seeds_were_flipped_is_as_it_was_done() -> None:
    def words(first: int, last: int) -> str:
        other = pd.Series(np.linspace(0.1, 0.2, last - first), range(first, last))
        both = {"a": pd.Series(np.linspace(0.1, 0.2, 8)), "b": other}
        return family(both, "this less that", "accuracy").words

    assert "all 128 flips" in words(0, 8)
    assert "5,000 random flips" in words(0, 14) and "exact" not in words(0, 14)
    assert "5,000 random flips" in words(8, 16)  # disjoint seeds: 16 in all
    assert words(0, 3).count("fewer than 6 common seeds are not tested") == 1
    few = family({"a": pd.Series([0.1, 0.2])}, "this less that", "accuracy")
    assert few.words.startswith("Not tested: this less that. A test needs at least 6 common seeds")


def test_a_difference_of_exactly_the_margin_is_not_less_than_it() -> None:
    (found,) = told([0.01] * 10)
    assert found.verdict == "ahead" and not found.within_margin
    (less,) = told([0.004] * 10)
    assert less.verdict == "ahead" and less.within_margin


def test_skewed_differences_are_noticed_and_symmetric_ones_seldom() -> None:
    random = np.random.default_rng(0)

    def noticed(skewed: bool) -> float:
        found = []
        for _ in range(60):
            own = random.exponential(size=(10, 6)) - 1 if skewed else random.normal(size=(10, 6))
            values = own * np.linspace(0.2, 2, 6)  # unequal noise: equal skewed parts would cancel
            pairs = {(i, j): pd.Series(values[:, i] - values[:, j]) for i in range(6) for j in range(i)}
            found.append(families({"p": pairs}, {"p": "p"}, "accuracy").asymmetry < 0.05)
        return float(np.mean(found))

    assert noticed(skewed=False) < 0.05 + 3 * np.sqrt(0.05 * 0.95 / 60)
    assert noticed(skewed=True) > 0.25


def test_what_is_open_says_what_would_have_been_found_and_how_many_seeds_would_tell() -> None:
    random = np.random.default_rng(5)
    values = random.normal(0, 0.03, size=10) + 0.015
    (found,) = told(values)
    assert found.verdict == "undecided"
    error = scipy.stats.sem(values)
    assert 2.8 * error < found.detectable < 4 * error  # (t of the level, some 2.3, and of the power, 0.9)
    assert 10 < found.needed < 200
    power = np.mean(
        [
            told(random.normal(found.mean, values.std(ddof=1), size=int(found.needed)))[0].verdict == "ahead"
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


def test_a_family_is_read_by_the_beginning_of_its_keys() -> None:
    found: Family = family({("a", "x"): pd.Series([1.0]), ("b", "x"): pd.Series([2.0])}, "this", "accuracy")
    assert {key: each.mean for key, each in found.of("b").items()} == {"x": 2.0}


def test_what_is_undecided_needs_more_seeds_than_there_are() -> None:
    random = np.random.default_rng(3)
    found = family(
        {name: pd.Series(random.normal(0.003, 0.01, size=10)) for name in range(40)}, "them", "accuracy"
    )
    undecided = [each for each in found.comparisons.values() if each.verdict == "undecided"]
    assert len(undecided) > 20 and all(each.needed > 10 for each in undecided)
