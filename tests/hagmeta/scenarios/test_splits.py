from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from hagmeta.common.errors import UserError
from hagmeta.config.run_config import RunConfig, resolve
from hagmeta.datasets.base import UNLABELLED, Dataset
from hagmeta.scenarios.scenario import TEST, TRAIN, VAL, Split
from hagmeta.scenarios.splits import SplitFor, common_classes, make_split
from hagmeta.scenarios.streams import make_scenario

Small = Callable[..., RunConfig]
COUNTS = (12, 30, 3, 25, 20, 40, 11, 4)  # two classes are too small for 3 supports and 3 queries


def with_counts(counts: tuple[int, ...] = COUNTS) -> Dataset:
    """Classes of these sizes, their nodes in a random order; no edges."""
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(len(counts)), counts))
    features = scipy.sparse.csr_matrix(np.ones((len(labels), 1), dtype=np.float32))
    names = tuple(f"class {c}" for c in range(len(counts)))
    return Dataset("hand-made", np.empty((0, 2), dtype=np.int64), labels, features, names)


def proposed(dataset: Dataset, *task: Any, **more: Any) -> tuple[int, int, int]:
    return common_classes(dataset, [SplitFor(*task, **more)])


def three_shot(**changes: Any) -> RunConfig:
    settings: dict[str, Any] = {"classes": (2, 2, 2), "n_way": 1, "k_shot": 3, "query_shot": 3}
    return RunConfig.of(**(settings | changes))


def test_base_classes_are_the_largest_whatever_the_seed(dataset: Dataset, small: Small) -> None:
    config = resolve(small())
    counts = np.bincount(dataset.labels)
    for seed in range(5):
        split = make_split(dataset, config, seed)
        assert counts[split.base].min() >= np.delete(counts, split.base).max()
        assert (len(split.base), len(split.novel_train), len(split.novel_test)) == (4, 5, 5)
        assert len(set(split.order)) == 14


def test_of_equally_large_classes_the_seed_chooses_the_base() -> None:
    dataset = with_counts((30, 20, 20, 20, 20, 20))
    bases = [set(make_split(dataset, three_shot(), seed).base.tolist()) for seed in range(20)]
    assert all(0 in base for base in bases)  # the one that is larger
    assert {c for base in bases for c in base} == set(range(6))


def test_the_seed_shuffles_the_other_classes_and_the_nodes(dataset: Dataset, small: Small) -> None:
    config = resolve(small())
    splits = [make_split(dataset, config, seed) for seed in (0, 1, 0)]

    def parts(split: Split) -> tuple[tuple[int, ...], ...]:
        return tuple(tuple(part) for part in (split.base, split.novel_train, split.novel_test, split.role))

    assert parts(splits[0]) == parts(splits[2])
    same = [one == other for one, other in zip(parts(splits[0]), parts(splits[1]), strict=True)]
    assert same == [True, False, False, False]


def test_each_class_is_divided_60_20_20(dataset: Dataset, small: Small) -> None:
    split = make_split(dataset, resolve(small()), 0)
    for c, count in enumerate(np.bincount(dataset.labels)):
        roles = np.bincount(split.role[dataset.labels == c], minlength=3)
        fifth = count // 5
        assert roles[[TRAIN, VAL, TEST]].tolist() == [count - 2 * fifth, fifth, fifth]


def test_too_small_classes_are_named_with_their_sizes() -> None:
    with pytest.raises(
        UserError, match=r"2 classes of hand-made .* 'class 2' \(3\), 'class 7' \(4\)\. Leave them out"
    ):
        make_split(with_counts(), three_shot(), 0)


def test_dropped_classes_are_in_no_part_and_never_visible() -> None:
    dataset = with_counts()
    scenario = make_scenario(dataset, three_shot(drop_small=True), 0)
    assert sorted(scenario.split.order) == [0, 1, 3, 4, 5, 6]
    assert sorted(scenario.split.base) == [1, 5]
    small = np.isin(dataset.labels, [2, 7])
    for stream in (scenario.validation, scenario.test):
        for session in range(stream.sessions + 1):
            assert not stream.arrived(session)[small].any()
            assert not small[stream.queries[session]].any()
    # All else is visible in the end.
    assert scenario.test.arrived(scenario.test.sessions)[~small].all()


def test_a_class_is_usable_when_its_train_nodes_suffice() -> None:
    # Of 10 nodes 2 are kept for validation and 2 for testing: 6 are left for supports and queries.
    dataset = with_counts((50, 50, 10))
    assert len(make_split(dataset, three_shot(classes=(1, 1, 1), query_shot=3), 0).order) == 3
    with pytest.raises(UserError, match=r"'class 2' \(10\)"):
        make_split(dataset, three_shot(classes=(1, 1, 1), query_shot=4), 0)


def test_a_class_of_four_has_no_node_to_test_with() -> None:
    with pytest.raises(UserError, match=r"'class 2' \(4\)"):
        make_split(with_counts((50, 50, 4)), three_shot(classes=(1, 1, 1), k_shot=1, query_shot=1), 0)


def test_released_counts_all_nodes_of_a_class() -> None:
    config = three_shot(classes=(1, 1, 1), protocol="released", query_shot=20)
    assert len(make_split(with_counts((50, 50, 23)), config, 0).order) == 3
    with pytest.raises(UserError, match=r"'class 2' \(22\)"):
        make_split(with_counts((50, 50, 22)), config, 0)


def test_more_classes_than_there_are_is_an_error() -> None:
    with pytest.raises(UserError, match=r"2 \+ 3 \+ 2 is more than the 6 usable classes .*\(it has 8\)"):
        make_split(with_counts(), three_shot(drop_small=True, classes=(2, 3, 2)), 0)


@pytest.mark.parametrize(
    ("classes", "n_way", "split"),
    [
        (51, 3, (12, 12, 27)),  # Debian's own
        (45, 3, (12, 12, 21)),  # WordNet's own
        (40, 3, (10, 9, 21)),  # FOLDOC's has one novel-train session more
        (76, 5, (21, 20, 35)),  # Metamath's has one novel-test session more
        (22, 10, (2, 10, 10)),
        (8, 3, (2, 3, 3)),
        (7, 2, (3, 2, 2)),
        (4, 1, (2, 1, 1)),
    ],
)
def test_a_proposed_split_has_the_proportions_of_the_embedded(
    classes: int, n_way: int, split: tuple[int, int, int]
) -> None:
    assert proposed(with_counts((20,) * classes), n_way, k_shot=5) == split


@pytest.mark.parametrize("n_way", range(1, 12))
def test_a_proposed_split_uses_all_classes_in_whole_sessions(n_way: int) -> None:
    for classes in range(2 + 2 * n_way, 120):
        dataset = with_counts((10,) * classes)
        base, novel_train, novel_test = proposed(dataset, n_way, k_shot=1)
        assert base + novel_train + novel_test == classes and base >= 2
        assert novel_train >= n_way and novel_test >= n_way
        assert novel_train % n_way == novel_test % n_way == 0


def test_a_proposed_split_counts_classes_that_are_large_enough_and_can_be_run() -> None:
    dataset = with_counts((*COUNTS, 30, 30))
    split = proposed(dataset, n_way=1, k_shot=3)
    assert sum(split) == 8  # of ten; two are too small
    make_split(dataset, three_shot(classes=split, drop_small=True), 0)
    assert sum(proposed(dataset, 1, 3, query_shot=8)) == 6
    assert sum(proposed(dataset, 1, 3, "released")) == 5  # 20 queries


@pytest.mark.parametrize(("ways", "split"), [((2, 3), (15, 12, 18)), ((2, 3, 5), (15, 10, 20))])
def test_a_common_split_fits_every_n(ways: tuple[int, ...], split: tuple[int, int, int]) -> None:
    """In whole sessions of every N if the classes are enough, otherwise of the largest."""
    dataset = with_counts((20,) * 45)
    assert common_classes(dataset, [SplitFor(n_way, 5) for n_way in ways]) == split
    assert len({proposed(dataset, n_way, 5) for n_way in ways}) == len(ways)


def test_nodes_without_a_label_do_not_count_for_a_proposed_split() -> None:
    dataset = with_counts((20, 20, 20, 20))
    dataset.labels[dataset.labels == 3] = UNLABELLED
    with pytest.raises(UserError) as error:
        proposed(dataset, n_way=1, k_shot=3)
    assert str(error.value) == (
        "hand-made has 3 classes with enough nodes for 3-shot (of 4); 1-way needs 4: 2 base, 1 novel-train "
        "and 1 novel-test. Use a smaller n_way or k_shot."
    )
