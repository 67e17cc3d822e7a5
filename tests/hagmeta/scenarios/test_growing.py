"""On a graph that grows, nodes and edges arrive over time, and nothing of them counts before: to the bit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from hagmeta.common.errors import UserError
from hagmeta.config.run_config import RunConfig, resolve
from hagmeta.datasets.base import UNLABELLED, Dataset
from hagmeta.engine.context import Context
from hagmeta.engine.run import prepare
from hagmeta.methods import METHODS
from hagmeta.scenarios.evaluator import accuracy_by_age
from hagmeta.scenarios.growing import first_half
from hagmeta.scenarios.scenario import CONTEXT, NEVER, TEST, TRAIN, VAL, Scenario, Stream
from hagmeta.scenarios.streams import make_scenario
from hagmeta.sparse.graph import Graph
from hagmeta.testing import (
    check_packs,
    records_of,
    run_context,
    same_answers,
    same_parameters,
    trained,
    with_noise_at,
)

CPU = torch.device("cpu")
Tiny = Callable[..., RunConfig]
# Of the ways to read labels and nodes, these show the most: replay, unlabelled nodes and an oracle.
SHOWN = ("icarl", "joint")
EVERY = [pytest.param(name, marks=() if name in SHOWN else pytest.mark.slow) for name in METHODS]


def scenario_of(dataset: Dataset, config: RunConfig, seed: int = 0) -> Scenario:
    return make_scenario(dataset, resolve(config), seed)


@pytest.fixture
def grows(tiny: Tiny) -> Tiny:
    """Settings of three sessions of one class each, and one class that never comes."""

    def make(**changes: Any) -> RunConfig:
        return tiny(**({"protocol": "growing", "n_way": 1, "sessions": 3, "classes": (2, 2, 4)} | changes))

    return make


# What arrives, and when.


def test_nodes_and_edges_of_old_classes_arrive_in_every_session(tiny_graph: Dataset, grows: Tiny) -> None:
    stream = scenario_of(tiny_graph, grows()).test
    for session in range(1, stream.sessions + 1):
        before, now = stream.arrived(session - 1), stream.arrived(session)
        assert (before <= now).all()
        new = now & ~before
        old = np.isin(tiny_graph.labels, stream.met(session - 1))
        assert (new & old).any() and (new & ~old).any()
        # An old node gets a new edge to another node of an old class.
        ends = tiny_graph.edges
        assert (
            now[ends].all(axis=1) & old[ends].all(axis=1) & before[ends].any(axis=1) & new[ends].any(axis=1)
        ).any()


def test_half_of_a_class_arrives_with_it_and_the_rest_evenly(tiny_graph: Dataset, grows: Tiny) -> None:
    scenario = scenario_of(tiny_graph, grows())
    stream = scenario.test
    for c in stream.met(stream.sessions):
        (first,) = (
            {0}
            if c in stream.known
            else {session for session, classes in enumerate(stream.arriving) if c in classes}
        )
        for role in (TRAIN, VAL, TEST):
            times = stream.arrival[(tiny_graph.labels == c) & (scenario.split.role == role)]
            counts = np.bincount(times, minlength=stream.sessions + 1)[first:]
            if first == stream.sessions:  # there is no later session
                assert counts.tolist() == [len(times)]
                continue
            assert times.min() == first and counts[0] == first_half(len(times))
            assert np.ptp(counts[1:]) <= 1


def test_classes_roles_and_the_last_graph_are_those_of_strict(tiny_graph: Dataset, grows: Tiny) -> None:
    growing, strict = (scenario_of(tiny_graph, grows(protocol=name)) for name in ("growing", "strict"))
    assert np.array_equal(growing.split.role, strict.split.role)
    assert np.array_equal(growing.test.arriving[1:], strict.test.arriving[1:])
    last = strict.test.sessions
    assert np.array_equal(growing.test.arrived(last), strict.test.arrived(last))
    assert np.array_equal(growing.test.queries[last], strict.test.queries[last])
    for session in range(last):
        assert growing.test.arrived(session).sum() < strict.test.arrived(session).sum()


@pytest.mark.parametrize("changes", [{}, {"rehearsal": "3"}, {"val_classes": 1}, {"scored_on": "validation"}])
def test_labels_come_from_nodes_that_are_there(
    tiny_graph: Dataset, grows: Tiny, changes: dict[str, Any]
) -> None:
    config = grows(**changes)
    scenario = scenario_of(tiny_graph, config)
    stream, now = scenario.test, scenario.test.arrived(0)
    for session, support in enumerate(stream.support):
        assert (stream.arrival[support] == session).all()
    for role in (TRAIN, VAL):
        assert now[scenario.nodes_of(stream.known, role)].all()
    context = prepare(config, [0], tiny_graph, CPU)
    for session in range(stream.sessions + 1):
        assert now[context.protocol.known_in_session(scenario, stream, session)].all()
        assert stream.arrived(session)[scenario.train_nodes_met(stream, session)].all()  # of an oracle
    # Validation takes place before session 1, so it must not use what arrives later.
    rehearsal = scenario.validation
    assert now[np.concatenate([np.concatenate(rehearsal.support).ravel(), *rehearsal.queries])].all()
    for session in range(rehearsal.sessions + 1):
        assert (rehearsal.arrived(session) <= now).all()


@pytest.mark.parametrize("most", [0, 1, 4])
def test_queries_are_the_test_nodes_that_are_there(tiny_graph: Dataset, grows: Tiny, most: int) -> None:
    scenario = scenario_of(tiny_graph, grows(queries_per_class=most))
    stream, test = scenario.test, scenario.split.role == TEST
    asked = np.empty(0, dtype=np.int64)
    for session, queries in enumerate(stream.queries):
        there = np.flatnonzero(stream.arrived(session) & test)
        assert np.isin(asked, queries).all(), "a query stays"
        assert set(tiny_graph.labels[queries]) == set(stream.met(session))
        if most:
            assert np.isin(queries, there).all()
            assert np.bincount(tiny_graph.labels[queries]).max() <= most
        else:
            assert np.array_equal(queries, there)
        asked = queries
    if most == 4:
        assert (np.bincount(tiny_graph.labels[asked])[stream.met(3)] == most).all()


def test_nodes_without_a_class_arrive_over_time_too(tiny_graph: Dataset, grows: Tiny) -> None:
    labels = tiny_graph.labels.copy()
    context = np.arange(0, len(labels), 9)
    labels[context] = UNLABELLED
    scenario = scenario_of(replace(tiny_graph, labels=labels), grows(k_shot=1))
    assert (scenario.split.role[context] == CONTEXT).all()
    counts = np.bincount(scenario.test.arrival[context])
    assert counts[0] == first_half(len(context)) and (counts[1:] > 0).all()
    assert (scenario.test.labelled_from[context] == NEVER).all()
    assert ((scenario.validation.arrival[context] == 0) == (scenario.test.arrival[context] == 0)).all()


def test_classes_need_enough_nodes_at_once(tiny_graph: Dataset, grows: Tiny) -> None:
    # About 40 nodes, 24 of them train nodes: enough for 9 supports and 9 queries, but not half of them.
    assert scenario_of(tiny_graph, grows(k_shot=9, protocol="strict"))
    words = "too few nodes for 9 supports and 9 queries among the nodes that arrive with their class: '"
    with pytest.raises(UserError, match=words):
        scenario_of(tiny_graph, grows(k_shot=9))


# The order.


def test_the_order_is_that_of_the_source_within_a_class_and_role(tiny_graph: Dataset, grows: Tiny) -> None:
    order = np.random.default_rng(1).permutation(tiny_graph.num_nodes)
    scenario = scenario_of(replace(tiny_graph, node_order=order), grows())
    role, arrival = scenario.split.role, scenario.test.arrival
    for c in scenario.test.met(2):
        for each in (TRAIN, VAL, TEST):
            nodes = np.flatnonzero((tiny_graph.labels == c) & (role == each))
            assert (np.diff(arrival[nodes[np.argsort(order[nodes])]]) >= 0).all()
    backwards = scenario_of(replace(tiny_graph, node_order=order[::-1].copy()), grows())
    assert not np.array_equal(arrival, backwards.test.arrival)
    drawn = [scenario_of(tiny_graph, grows(), seed).test.arrival for seed in (0, 0, 1)]
    assert np.array_equal(drawn[0], drawn[1]) and not np.array_equal(drawn[0], drawn[2])


def test_times_tell_nothing_about_labels_but_the_session_of_the_class(
    tiny_graph: Dataset, grows: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Two classes of the same session exchange their query nodes: all others arrive when they did.
    scenario = scenario_of(tiny_graph, grows())
    one, two = scenario.test.known[:2]
    labels, test = tiny_graph.labels.copy(), scenario.split.role == TEST
    swapped = test & np.isin(labels, (one, two))
    labels[swapped] = np.where(labels[swapped] == one, two, one)
    other = replace(tiny_graph, labels=labels)
    monkeypatch.setattr("hagmeta.scenarios.streams.make_split", lambda *_: scenario.split)
    times = scenario_of(other, grows()).test.arrival
    assert np.array_equal(times[~swapped], scenario.test.arrival[~swapped])
    # As many wait as in any other class.
    assert np.bincount(times[swapped])[0] == np.bincount(scenario.test.arrival[swapped])[0]


# Nothing that is still to come changes anything.


def with_labels_to_come(context: Context) -> Context:
    """Other labels wherever none may be read: at queries, at all late nodes and at classes to come."""
    rng, scenarios = np.random.default_rng(0), []
    for scenario in context.scenarios:
        allowed = np.isin(scenario.split.role, (TRAIN, VAL)) & (scenario.test.labelled_from == 0)
        allowed[np.concatenate(scenario.test.support).ravel()] = True
        if context.method.traits.oracle:
            allowed |= (scenario.split.role == TRAIN) & (scenario.test.labelled_from < NEVER)
        nodes, labels = np.flatnonzero(~allowed), scenario.labels.copy()
        labels[nodes] = rng.integers(scenario.num_classes, size=len(nodes))
        scenarios.append(replace(scenario, labels=labels))
    return replace(context, scenarios=scenarios)


@pytest.mark.parametrize("method", EVERY)
def test_nodes_count_only_after_they_arrived(tiny_graph: Dataset, grows: Tiny, method: str) -> None:
    context = prepare(grows(method=method, random_features=12), [0], tiny_graph, CPU)
    pack, answers = run_context(context)
    other_pack, others = run_context(with_labels_to_come(context))
    assert same_parameters(pack, other_pack) and same_answers(answers, others)
    stream = context.scenarios[0].test
    assert (np.isin(tiny_graph.labels, stream.known) & (stream.arrival > 1)).sum() > 20
    late = np.flatnonzero(stream.arrival > 1)
    noisy = replace(context, graph=Graph(with_noise_at(tiny_graph, late), CPU))
    other_pack, others = run_context(noisy)
    assert same_answers([seed[:2] for seed in answers], [seed[:2] for seed in others])
    assert not (same_answers(answers, others) and same_parameters(pack, other_pack)), "later they count"


def test_training_sees_the_nodes_of_session_0_alone(tiny_graph: Dataset, grows: Tiny) -> None:
    context = prepare(grows(), [0], tiny_graph, CPU)
    for after, same in ((0, True), (-1, False)):
        late = np.flatnonzero(context.scenarios[0].test.arrival > after)
        noisy = replace(context, graph=Graph(with_noise_at(tiny_graph, late), CPU))
        assert same_parameters(trained(context), trained(noisy)) == same


def test_labels_of_nodes_that_are_not_there_are_noticed(
    tiny_graph: Dataset, grows: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The leak that waits here: the label of a node counts since the session of its class.
    context = prepare(grows(method="frozen"), [0], tiny_graph, CPU)
    strict = scenario_of(tiny_graph, grows(protocol="strict")).test.labelled_from
    monkeypatch.setattr(Stream, "labelled_by", lambda self, session: strict <= session)
    answers, others = run_context(context)[1], run_context(with_labels_to_come(context))[1]
    assert not same_answers(answers, others)


@pytest.mark.parametrize("method", ["icarl", pytest.param("posterior-means", marks=pytest.mark.slow)])
def test_records_do_not_depend_on_the_pack(method: str) -> None:
    check_packs(method, protocol="growing")


# What is recorded.


def test_old_and_new_nodes_are_compared_over_the_same_classes() -> None:
    true = np.array([0, 0, 0, 0, 1, 1, 1, 2, 3, 3])
    new = np.array([0, 0, 1, 1, 0, 0, 1, 0, 1, 1], dtype=bool)
    right = np.array([1, 0, 1, 1, 1, 1, 0, 1, 1, 1], dtype=bool)
    # Class 2 has no new node, and class 3 is itself new.
    assert accuracy_by_age(true, right, new, np.array([0, 1, 2])) == (0.75, 0.5)
    assert np.isnan(accuracy_by_age(true, right, new & (true == 3), np.array([0, 1, 2]))).all()


KEYS = ("macro_old_node_accuracy", "macro_new_node_accuracy")


@pytest.mark.parametrize(
    "changes", [{}, {"scored_on": "validation"}, {"unlabelled_nodes": "training"}, {"rehearsal": "none"}]
)
def test_records_have_the_accuracies_of_old_and_new_nodes(
    tiny_graph: Dataset, grows: Tiny, changes: dict[str, Any]
) -> None:
    config = grows(method="sgc-ncm", features="propagated", **changes)
    (record,) = records_of(config, [0], tiny_graph)
    for key in KEYS:
        values: list[float | None] = record[key]  # type: ignore[literal-required]
        assert values[0] is None
        assert all(value is not None and 0 <= value <= 1 for value in values[1:])
    (strict,) = records_of(replace(config, protocol="strict"), [0], tiny_graph)
    assert not strict.keys() & set(KEYS)


def test_there_is_no_whole_graph(tiny_graph: Dataset, grows: Tiny) -> None:
    config = grows(visibility="whole")
    assert config.why_not("visibility") == "`visibility` is always arriving with growing"
    assert config.hash() == grows().hash() != grows(protocol="strict").hash()
