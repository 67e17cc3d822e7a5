"""Some supports of every arriving class are of another: who learns from them knows the given label alone.

The check is also run on a planted misuse, which it must find.
"""

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
from hagmeta.engine.context import Context
from hagmeta.engine.run import prepare
from hagmeta.methods import METHODS
from hagmeta.packs.pack import Pack
from hagmeta.scenarios.episodes import EpisodeSampler, TaskSampler
from hagmeta.scenarios.scenario import TRAIN, Scenario, mislabel
from hagmeta.scenarios.streams import make_scenario
from hagmeta.testing import Answers, run_context, same_answers, same_parameters
from tests.hagmeta.kinds import one_of_each_kind

CPU = torch.device("cpu")
Tiny = Callable[..., RunConfig]
HONEST = [name for name, method in METHODS.items() if not method.traits.oracle]


def test_mislabelling_hands_supports_to_the_class_before_and_no_node_twice() -> None:
    support = np.arange(60).reshape(4, 3, 5)  # node // 5 is its class, counted through the sessions
    given = mislabel(support, 2, np.random.default_rng(0))
    assert sorted(given.ravel()) == sorted(support.ravel())
    classes = given // 5
    for session, rows in enumerate(classes):
        for row, found in enumerate(rows):
            own, following = 3 * session + row, 3 * session + (row + 1) % 3
            assert sorted(found) == sorted([own] * 3 + [following] * 2)
    wrong = classes != (support // 5)
    assert wrong.any(axis=(0, 1)).all(), "a place tells nothing"
    assert np.array_equal(mislabel(support, 0, np.random.default_rng(0)), support)


def scenario_of(dataset: Dataset, config: RunConfig) -> Scenario:
    return make_scenario(dataset, resolve(config), 0)


@pytest.mark.parametrize("changes", [{}, {"classes": (2, 4, 3), "val_classes": 2}, {"rehearsal": "1"}])
def test_streams_have_so_many_wrong_supports_and_all_else_as_it_was(
    tiny_graph: Dataset, tiny: Tiny, changes: dict[str, Any]
) -> None:
    right, wrong = (scenario_of(tiny_graph, tiny(k_shot=3, mislabelled=m, **changes)) for m in (0, 1))
    for one, other in ((right.test, wrong.test), (right.validation, wrong.validation)):
        for name in ("arrival", "labelled_from"):
            assert np.array_equal(getattr(one, name), getattr(other, name)), name
        assert all(np.array_equal(*pair) for pair in zip(one.arriving, other.arriving, strict=True))
        assert all(np.array_equal(*pair) for pair in zip(one.queries, other.queries, strict=True))
        arriving, given, moved = (np.stack(each[1:]) for each in (one.arriving, one.support, other.support))
        assert (tiny_graph.labels[given] == arriving[..., None]).all()
        assert ((given != moved).sum(-1) == 1).all()
        found = tiny_graph.labels[moved]
        following = np.roll(arriving, -1, axis=1)
        assert (((found == following[..., None]).sum(-1) == 1) & (given.shape[-1] == 3)).all()
        assert not np.isin(moved, np.concatenate(other.queries)).any()
        assert (wrong.split.role[moved] == TRAIN).all()
        if other.rehearsed is not None:
            assert (np.stack(other.rehearsed.support[1:]) == moved).sum(-1).max() <= 1
            rows = zip(*map(np.concatenate, (other.support, other.rehearsed.support)), strict=True)
            assert all(set(again) <= set(whole) for whole, again in rows)


def test_episodes_have_so_many_wrong_supports_and_the_same_queries(tiny_graph: Dataset, tiny: Tiny) -> None:
    configs = [resolve(tiny(classes=(2, 4, 3), k_shot=3, mislabelled=m)) for m in (0, 2)]
    scenarios = [scenario_of(tiny_graph, config) for config in configs]
    labels = tiny_graph.labels
    pairs = list(zip(scenarios, configs, strict=True))
    for sampler in (EpisodeSampler, TaskSampler):
        samplers = [sampler(*pair) for pair in pairs]
        for _ in range(5):
            one, other = (each.draw() for each in samplers)
            if sampler is EpisodeSampler:
                (classes, right, query), (order, wrong, asked) = (
                    (drawn.order, drawn.support, drawn.query) for drawn in (one, other)
                )
            else:
                (classes, right, query), (order, wrong, asked) = one, other
            assert np.array_equal(classes, order) and np.array_equal(query, asked)
            assert (labels[right] == classes[:, None]).all()
            assert ((labels[wrong] == classes[:, None]).sum(1) == 1).all()
            following = np.roll(classes.reshape(-1, 2), -1, axis=1).reshape(-1, 1)
            assert ((labels[wrong] == following).sum(1) == 2).all()
            assert not np.isin(wrong, asked).any()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mislabelled": 2}, r"mislabelled is 2; expected less than k_shot, which is 2\."),
        (
            {"mislabelled": 1, "n_way": 1},
            r"mislabelled is 1, but with n_way 1 a session has no other class; expected n_way of at",
        ),
    ],
)
def test_more_wrong_labels_than_a_class_bears_are_refused(
    tiny: Tiny, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        resolve(tiny(**changes))


def same(one: tuple[Pack, Answers], other: tuple[Pack, Answers]) -> bool:
    return same_parameters(one[0], other[0]) and same_answers(one[1], other[1])


def without_the_truth(context: Context) -> Context:
    """The same, with other labels at every node of a class to come: its supports, the wrong ones too."""
    scenarios = []
    for scenario in context.scenarios:
        labels = scenario.labels.copy()
        to_come = np.isin(labels, scenario.split.novel_test)
        labels[to_come] = np.random.default_rng(0).permutation(labels[to_come])
        assert (labels != scenario.labels).sum() > 20
        scenarios.append(replace(scenario, labels=labels))
    return replace(context, scenarios=scenarios)


@pytest.mark.parametrize("method", one_of_each_kind(HONEST, kinds=("hag-meta", "er-gnn")))
def test_every_method_learns_wrong_labels_as_given_and_never_the_true_ones(
    tiny_graph: Dataset, tiny: Tiny, method: str
) -> None:
    context = prepare(tiny(method=method, k_shot=3, mislabelled=1), [0], tiny_graph, CPU)
    run = run_context(context)
    assert same(run, run_context(without_the_truth(context)))
    # Wrong labels are learnt: without them the run is another.
    assert not same(run, run_context(prepare(tiny(method=method, k_shot=3), [0], tiny_graph, CPU)))
