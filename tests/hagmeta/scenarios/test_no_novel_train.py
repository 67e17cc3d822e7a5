"""Streams without novel-train classes: part of the base classes plays new ones in training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from hagmeta.common.errors import UserError
from hagmeta.config.run_config import RunConfig, resolve
from hagmeta.datasets.base import Dataset
from hagmeta.engine.options import RunOptions
from hagmeta.engine.run import prepare, run
from hagmeta.methods import METHODS, MetaTraining
from hagmeta.scenarios.scenario import TRAIN, Scenario, training_groups
from hagmeta.scenarios.streams import make_scenario
from hagmeta.sparse.graph import Graph
from hagmeta.testing import (
    records_of,
    run_context,
    same_answers,
    same_parameters,
    trained,
    with_noise_at,
    with_other_labels,
)

CPU = torch.device("cpu")
Tiny = Callable[..., RunConfig]
NEEDS_EPISODES = (MetaTraining.INCREMENTAL, MetaTraining.FEW_SHOT)
METHODS_WITHOUT = [name for name, method in METHODS.items() if method.meta_training not in NEEDS_EPISODES]


def scenario_of(dataset: Dataset, config: RunConfig, seed: int = 0) -> Scenario:
    return make_scenario(dataset, resolve(config), seed)


@pytest.mark.parametrize(
    ("classes", "n_way", "expected"),
    [
        ((5, 0, 10), 2, (3, 2, 10)),
        ((5, 0, 10), 1, (3, 2, 10)),
        ((20, 0, 27), 3, (11, 9, 27)),
        ((6, 0, 9), 3, (3, 3, 9)),
        ((5, 0, 10), 3, (5, 0, 10)),  # half of them is no session
        ((2, 0, 5), 1, (2, 0, 5)),  # two must stay
        ((3, 0, 5), 1, (2, 1, 5)),
        ((5, 4, 10), 3, (5, 4, 10)),
    ],
)
def test_half_of_the_base_classes_play_new_ones_in_whole_sessions(
    classes: tuple[int, int, int], n_way: int, expected: tuple[int, int, int]
) -> None:
    assert training_groups(classes, n_way) == expected


def test_the_seed_draws_them_and_all_count_as_known(tiny_graph: Dataset, tiny: Tiny) -> None:
    largest = set(np.argsort(-tiny_graph.class_sizes, kind="stable")[:4])
    drawn = set()
    for seed in range(10):
        scenario = scenario_of(tiny_graph, tiny(classes=(4, 0, 5)), seed)
        split = scenario.split
        assert (len(split.base), len(split.novel_train), len(split.novel_test)) == (2, 2, 5)
        assert set(scenario.test.known) == {*split.base, *split.novel_train}
        assert (
            tiny_graph.class_sizes[scenario.test.known].sum() == tiny_graph.class_sizes[list(largest)].sum()
        )
        assert set(scenario.validation.known) == set(split.base)
        assert set(np.concatenate(scenario.validation.arriving[1:])) == set(split.novel_train)
        drawn.add(tuple(sorted(split.novel_train)))
    assert len(drawn) > 2


def test_test_streams_are_those_of_the_same_seed_with_other_counts(tiny_graph: Dataset, tiny: Tiny) -> None:
    # Classes that play new ones are drawn on the side, so supports, queries and arrivals stay the same.
    for seed in range(3):
        without, other = (
            scenario_of(tiny_graph, tiny(classes=(4, 0, 5), n_way=n_way, sessions=1, method="frozen"), seed)
            for n_way in (2, 3)
        )
        assert len(without.split.novel_train) == 2 and len(other.split.novel_train) == 0
        assert np.array_equal(without.split.role, other.split.role)
        assert np.array_equal(without.split.novel_test, other.split.novel_test)
        assert np.array_equal(
            np.concatenate(without.test.support).ravel(), np.concatenate(other.test.support).ravel()[:4]
        )


@pytest.mark.parametrize(
    ("method", "protocol"), [("hag-meta", "strict"), ("er-gnn", "strict"), ("hag-meta", "released")]
)
def test_methods_run(tiny_graph: Dataset, tiny: Tiny, method: str, protocol: str) -> None:
    config = tiny(classes=(4, 0, 5), method=method, protocol=protocol, episodes=2)
    for record, predictions, _ in run(config, [0, 5], tiny_graph, RunOptions(device=CPU)):
        assert record["config"]["classes"] == [4, 0, 5] and len(record["accuracy"]) == 3
        # All four base classes count as base, whichever of them played new ones.
        base = np.argsort(-tiny_graph.class_sizes, kind="stable")[:4]
        assert set(predictions.known) == set(base)
        true, predicted = predictions.true[-1], predictions.predicted[-1]
        asked = np.isin(true, base)
        assert record["base_accuracy"][-1] == pytest.approx((true == predicted)[asked].mean())
    if protocol == "strict":
        plain = records_of(config, [5], tiny_graph, mode="plain")
        assert len(plain[0]["accuracy"]) == 3


@pytest.mark.parametrize(
    ("method", "protocol"), [("hag-meta", "strict"), ("sgc-lda", "strict"), ("hag-meta", "released")]
)
def test_too_few_base_classes_for_episodes_stop_methods_that_need_them(
    tiny_graph: Dataset, tiny: Tiny, method: str, protocol: str
) -> None:
    config = tiny(classes=(3, 0, 5), method=method, protocol=protocol, episodes=2)
    if method in METHODS_WITHOUT:
        (record,) = records_of(config, [0], tiny_graph)
        assert len(record["accuracy"]) == 3 and all(0 <= value <= 1 for value in record["accuracy"])
        return
    with pytest.raises(UserError) as error:
        resolve(config)
    assert str(error.value) == (
        f"{method} learns from episodes with new classes, but with classes 3 0 5 and n_way 2 there are none. "
        "Use novel-train classes, at least 4 base classes, a smaller n_way, or a method without episodes."
    )


def test_nothing_leaks(tiny_graph: Dataset, tiny: Tiny) -> None:
    config = tiny(classes=(4, 0, 5), episodes=4, validate_every=2)
    context = prepare(config, [0, 5], tiny_graph, CPU)
    pack, answers = run_context(context)
    other_pack, other_answers = run_context(with_other_labels(context, "garbage"))
    assert same_parameters(pack, other_pack) and same_answers(answers, other_answers)


def test_training_ignores_nodes_of_held_out_base_classes(dataset: Dataset, small: Tiny) -> None:
    context = prepare(small(classes=(8, 0, 6), val_classes="half"), [3], dataset, CPU)
    (scenario,) = context.scenarios
    assert context.settings.held_out == 2 and len(scenario.meta_classes) == 2
    held_out = np.concatenate(scenario.validation.arriving[1:])
    assert set(held_out) <= set(scenario.test.known) and not np.isin(held_out, scenario.trained).any()
    assert np.isin(scenario.labels[scenario.test.queries[0]], held_out).any()
    hidden = np.flatnonzero(~scenario.validation.arrived(0))
    assert np.isin(np.flatnonzero(np.isin(dataset.labels, held_out)), hidden).all()
    noisy = replace(context, graph=Graph(with_noise_at(dataset, hidden), CPU))
    assert same_parameters(trained(context), trained(noisy))
    assert (scenario.split.role[np.concatenate(scenario.validation.support)] == TRAIN).all()


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"classes": (4, -1, 5)}, "classes is (4, -1, 5); expected three counts"),
        ({"classes": (4, 0, 0)}, "Only novel-train may be 0."),
        ({"classes": (0, 2, 5)}, "Only novel-train may be 0."),
        ({"classes": (1, 0, 5)}, "expected at least 2 base classes if there are no novel-train classes"),
        (
            {"classes": (4, 0, 5), "val_classes": "half"},
            "val_classes is half, but without novel-train classes 4 base classes are too few for n_way = 2; "
            "expected at least 8, or val_classes 0.",
        ),
        (
            {"classes": (4, 0, 5), "val_classes": 2},
            "val_classes is 2, but without novel-train classes only 2 of the 4 base classes are played as "
            "new; expected at most 0, so that n_way = 2 remain for training.",
        ),
        ({"classes": (3, 0, 5), "method": "frozen", "val_classes": 2}, "only 0 of the 3 base classes are"),
    ],
)
def test_counts_that_do_not_fit_are_refused_in_one_line(
    tiny: Tiny, changes: dict[str, Any], says: str
) -> None:
    with pytest.raises(UserError) as error:
        resolve(tiny(**changes))
    assert says in str(error.value) and "\n" not in str(error.value)
