"""Splits that the dataset gives: the order of classes, and the supports of those that arrive."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hagmeta import datasets
from hagmeta.common.errors import UserError
from hagmeta.config.run_config import RunConfig, resolve
from hagmeta.datasets import prepared
from hagmeta.datasets.base import Dataset
from hagmeta.datasets.formats import npz
from hagmeta.engine.run import prepare
from hagmeta.scenarios.scenario import TEST, TRAIN, VAL, Scenario
from hagmeta.scenarios.streams import make_scenario
from hagmeta.testing import records_of, run_context, same_answers, same_parameters, with_other_labels

CPU = torch.device("cpu")
Tiny = Callable[..., RunConfig]
ORDER = np.array([7, 2, 9, 0, 4, 1, 8, 3, 5])  # class 6 never arrives


@pytest.fixture
def fixed(tiny_graph: Dataset) -> Dataset:
    """The tiny graph with an order of classes, and the last three nodes of each class as supports."""
    rows = [np.flatnonzero(tiny_graph.labels == c)[-3:][::-1] for c in ORDER[4:]]
    return replace(tiny_graph, class_order=ORDER, supports=np.array(rows))


def scenario_of(dataset: Dataset, config: RunConfig, seed: int = 0) -> Scenario:
    return make_scenario(dataset, resolve(config), seed)


@pytest.mark.parametrize("protocol", ["strict", "growing", "released"])
def test_classes_and_supports_are_those_of_the_dataset(fixed: Dataset, tiny: Tiny, protocol: str) -> None:
    roles = []
    for seed in range(3):
        scenario = scenario_of(fixed, tiny(split="fixed", protocol=protocol), seed)
        assert scenario.split.base.tolist() == [7, 2] and scenario.split.novel_train.tolist() == [9, 0]
        assert np.stack(scenario.test.arriving[1:]).tolist() == [[4, 1], [8, 3]]
        assert fixed.supports is not None
        assert (
            np.stack(scenario.test.support[1:]).tolist() == fixed.supports[:4, :2].reshape(2, 2, 2).tolist()
        )
        assert (scenario.split.role[np.concatenate(scenario.test.support)] == TRAIN).all()
        for session in range(1, 3):
            own = scenario.test.support[session]
            assert not np.isin(scenario.test.queries[session], own).any()
            assert (scenario.test.arrival[own] == session).all()
        roles.append(scenario.split.role)
    assert not np.array_equal(roles[0], roles[1])


def test_nodes_are_divided_as_in_drawn_splits(fixed: Dataset, tiny: Tiny) -> None:
    drawn, given = (scenario_of(fixed, tiny(split=split)).split.role for split in ("drawn", "fixed"))
    for role in (TRAIN, VAL, TEST):
        counts = [np.bincount(fixed.labels[roles == role], minlength=10).tolist() for roles in (drawn, given)]
        assert counts[0] == counts[1]


def test_a_drawn_split_ignores_the_arrays(tiny_graph: Dataset, fixed: Dataset, tiny: Tiny) -> None:
    one, other = (scenario_of(graph, tiny(), 4) for graph in (tiny_graph, fixed))
    assert np.array_equal(one.split.order, other.split.order)
    assert np.array_equal(one.test.support[1:], other.test.support[1:])
    assert np.array_equal(one.split.role, other.split.role)


def test_without_supports_the_seed_draws_them(fixed: Dataset, tiny: Tiny) -> None:
    graph = replace(fixed, supports=None)
    one, other = (scenario_of(graph, tiny(split="fixed"), seed).test for seed in (0, 1))
    assert np.array_equal(one.arriving[1:], other.arriving[1:]) and not np.array_equal(
        one.support[1:], other.support[1:]
    )


def test_validation_streams_draw_their_own_supports(fixed: Dataset, tiny: Tiny) -> None:
    assert fixed.supports is not None
    config = tiny(split="fixed", classes=(2, 4, 3), val_classes=2)  # classes 4 and 1 have supports, unused
    streams = [scenario_of(fixed, config, seed).validation for seed in range(5)]
    assert all(np.stack(stream.arriving[1:]).tolist() == [[4, 1]] for stream in streams)
    assert len({np.concatenate(stream.support).tobytes() for stream in streams}) > 1


def test_base_classes_play_new_ones_without_novel_train_classes(fixed: Dataset, tiny: Tiny) -> None:
    scenario = scenario_of(fixed, tiny(split="fixed", classes=(4, 0, 5)))
    assert sorted(scenario.test.known) == [0, 2, 7, 9] and len(scenario.split.novel_train) == 2
    assert np.stack(scenario.test.arriving[1:]).tolist() == [[4, 1], [8, 3]]


def test_nothing_leaks(fixed: Dataset, tiny: Tiny) -> None:
    context = prepare(tiny(split="fixed", episodes=2), [0, 5], fixed, CPU)
    pack, answers = run_context(context)
    other_pack, other_answers = run_context(with_other_labels(context, "garbage"))
    assert same_parameters(pack, other_pack) and same_answers(answers, other_answers)


def test_a_file_holds_the_arrays_and_a_run_records_the_setting(
    fixed: Dataset, tiny_graph: Dataset, tiny: Tiny, tmp_path: Path
) -> None:
    npz.save(tmp_path / "g.npz", fixed)
    back = datasets.load(tmp_path / "g.npz", tmp_path)
    assert back.class_order is not None and back.supports is not None and fixed.supports is not None
    assert back.class_order.tolist() == ORDER.tolist()
    assert back.supports.tolist() == fixed.supports.tolist()
    assert back.fingerprint == fixed.fingerprint
    others = (replace(fixed, supports=None), replace(fixed, class_order=ORDER[::-1].copy()), tiny_graph)
    assert len({graph.fingerprint for graph in (fixed, *others)}) == 4
    kept = prepared.load("g", ["source"], tmp_path / "prepared", lambda: back)
    assert kept.class_order is not None and kept.class_order.tolist() == ORDER.tolist()
    assert kept.supports is not None and kept.supports.tolist() == fixed.supports.tolist()
    config = tiny(dataset=tmp_path / "g.npz", split="fixed", method="frozen")
    (record,) = records_of(config, [0], back)
    assert record["config"]["split"] == "fixed" and "split" in record["given"]
    assert record["config_hash"] != resolve(replace(config, split="drawn")).hash()


# Labels 4 and 8 are missing, so classes get other numbers when the file is read.
GRAPH: dict[str, Any] = {
    "edges": [[0, 1], [1, 2]],
    "labels": [3, 5, 5, 9, -1, 3, 9],
    "features": np.ones((7, 2), dtype=np.float32),
}
NAMES = np.array(["x", "x", "x", "c", "d", "e", "f", "g", "h", "i"])


@pytest.mark.parametrize(
    ("order", "names"),
    [([9, 3, 5], None), ([9, 3, 5], NAMES), (["i", "c", "e"], NAMES), (["9", "3", "5"], None)],
)
def test_class_order_holds_numbers_of_the_file_or_names(
    tmp_path: Path, order: list[Any], names: np.ndarray | None
) -> None:
    more: dict[str, Any] = {} if names is None else {"class_names": names}
    np.savez(tmp_path / "g.npz", **GRAPH, **more, class_order=np.array(order), supports=[[2, 1], [5, 0]])
    graph = npz.load(tmp_path / "g.npz", "g")
    assert graph.class_order is not None and graph.class_order.tolist() == [2, 0, 1]
    assert graph.supports is not None and graph.supports.tolist() == [[2, 1], [5, 0]]
    assert graph.labels.tolist() == [0, 1, 1, 2, -1, 0, 2]


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        ({"class_order": [[3, 5]]}, "'class_order' has shape (1, 2); expected 1 dimension."),
        ({"class_order": [["3"]]}, "'class_order' has shape (1, 1); expected 1 dimension."),
        (
            {"class_order": [3, 4]},
            "'class_order' holds 4 in row 1; expected the number or the name of a class",
        ),
        ({"class_order": ["3", "sun"]}, "'class_order' holds 'sun' in row 1; expected"),
        ({"class_order": [3, -1]}, "'class_order' holds -1 in row 1; expected whole numbers from 0."),
        ({"class_order": [3, 5, 3]}, "'class_order' holds 3 in row 0 and row 2; expected each class once."),
        (
            {"class_order": ["y"], "class_names": ["y"] * 10},
            "'class_order' holds 'y' in row 0, the name of 3 classes; expected class numbers.",
        ),
        (
            {"class_order": None, "supports": [[0]]},
            "there is 'supports' without 'class_order'; expected both.",
        ),
        ({"supports": [0, 5]}, "'supports' has shape (2,); expected 2 dimensions."),
        ({"supports": [[], []]}, "'supports' has shape (2, 0); expected (classes, shots)."),
        ({"supports": [[0, -1]]}, "'supports' holds -1 in row 0, column 1; expected whole numbers from 0."),
        ({"supports": [[0, 7]]}, "'supports' holds 7 in row 0, column 1; expected 0 to 6, since there are 7"),
        (
            {"supports": [[1, 2], [4, 0]]},
            "'supports' holds 4 in row 1, column 0; expected a node with a label.",
        ),
        (
            {"supports": [[1, 0]]},
            "'supports' holds 0 in row 0, column 1; expected a node of the same class as",
        ),
        ({"supports": [[1, 1]]}, "'supports' holds 1 in row 0, column 1; expected each node once."),
        (
            {"supports": [[1], [2]]},
            "'supports' holds nodes of class '5' in row 0 and row 1; expected one row",
        ),
        (
            {"supports": [[3]], "class_order": [3, 5]},
            "'supports' holds nodes of class '9' in row 0; expected a",
        ),
    ],
)
def test_wrong_arrays_are_said_in_one_line(tmp_path: Path, arrays: dict[str, Any], says: str) -> None:
    held = {
        key: value
        for key, value in (GRAPH | {"class_order": [3, 5, 9]} | arrays).items()
        if value is not None
    }
    np.savez(tmp_path / "g.npz", **held)
    with pytest.raises(UserError) as error:
        npz.load(tmp_path / "g.npz", "g")
    assert str(error.value).startswith(f"{tmp_path / 'g.npz'}: {says}") and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("changes", "graph", "says"),
    [
        ({}, {"class_order": None}, "has no class_order; expected an .npz file with this array."),
        ({"classes": (4, 2, 4)}, {}, "classes 4 + 2 + 4 is more than the 9 classes in the class_order of"),
        ({"k_shot": 4}, {}, "k_shot is 4, but the supports of synthetic"),
        ({"classes": (2, 1, 6), "n_way": 1}, {}, "have no row for class"),
        ({"k_shot": 3, "query_shot": 300, "drop_small": True}, {}, "A fixed split needs all of them"),
    ],
)
def test_a_split_that_does_not_fit_is_refused_in_one_line(
    fixed: Dataset, tiny: Tiny, changes: dict[str, Any], graph: dict[str, Any], says: str
) -> None:
    with pytest.raises(UserError) as error:
        scenario_of(replace(fixed, **graph), tiny(split="fixed", **changes))
    assert says in str(error.value) and "\n" not in str(error.value)


def test_counts_must_be_given_and_drop_small_has_no_effect(tiny: Tiny) -> None:
    with pytest.raises(UserError, match="split is fixed, but classes is not given; expected --classes B T E"):
        resolve(tiny(split="fixed", classes=None))
    config = tiny(split="fixed", drop_small=True)
    assert config.why_not("drop_small") == "`drop_small` has no effect with `split: fixed`"
    assert resolve(config).hash() == resolve(tiny(split="fixed")).hash()
