"""Nodes without a label are context: visible from the start, never learnt from, never asked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse
import torch

from hagmeta.config.run_config import RunConfig, resolve
from hagmeta.datasets import UNLABELLED, Dataset
from hagmeta.engine.run import prepare
from hagmeta.scenarios import make_protocol
from hagmeta.scenarios.episodes import BatchSampler, EpisodeSampler, TaskSampler
from hagmeta.scenarios.scenario import CONTEXT, NEVER, TRAIN, VAL, Scenario
from hagmeta.scenarios.streams import make_scenario
from hagmeta.testing import run_context, same_answers, same_parameters

CPU = torch.device("cpu")
PROTOCOLS = ("strict", "released")
METHODS = ("hag-meta", "sgc-lda", "er-gnn")
CLASSES = {"classes": (2, 2, 4), "drop_small": True}
Tiny = Callable[..., RunConfig]


@pytest.fixture(scope="module")
def partly(tiny_graph: Dataset) -> Dataset:
    """The tiny graph, without the labels of every tenth node."""
    labels = tiny_graph.labels.copy()
    labels[::10] = UNLABELLED
    return replace(tiny_graph, labels=labels)


def without_label(dataset: Dataset) -> np.ndarray:
    return np.flatnonzero(dataset.labels == UNLABELLED)


def with_other_labels(scenario: Scenario) -> Scenario:
    """The same scenario, with a class for every node that has none."""
    labels, rng = scenario.labels.copy(), np.random.default_rng(0)
    context = np.flatnonzero(labels == UNLABELLED)
    labels[context] = rng.choice(scenario.split.order, len(context))
    return replace(scenario, labels=labels)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("visibility", ["arriving", "whole"])
def test_they_are_visible_in_every_session(
    partly: Dataset, tiny: Tiny, protocol: str, visibility: str
) -> None:
    config = resolve(tiny(**CLASSES, protocol=protocol, visibility=visibility))
    scenario, context = make_scenario(partly, config, 0), without_label(partly)
    assert len(context) == 41
    for stream in (scenario.validation, scenario.test):
        for session in range(stream.sessions + 1):
            assert make_protocol(config).visible(scenario, stream, session)[context].all()
            assert not stream.labelled_by(session)[context].any()
        assert (stream.labelled_from[context] == NEVER).all()


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("rehearsal", ["all", "1"])
def test_they_are_never_learnt_from_or_asked(
    partly: Dataset, tiny: Tiny, protocol: str, rehearsal: str
) -> None:
    config = resolve(tiny(**CLASSES, protocol=protocol, rehearsal=rehearsal))
    answers, context = make_protocol(config), without_label(partly)
    # Whatever their labels would be: no question may depend on what stands there.
    for scenario in (original := make_scenario(partly, config, 0), with_other_labels(original)):
        assert (scenario.split.role[context] == CONTEXT).all()
        used = [scenario.nodes_of(scenario.split.order, role) for role in (TRAIN, VAL)]
        used += [answers.labelled(scenario, scenario.trained)]
        used += [answers.known_in_training(scenario, scenario.trained)]
        for stream in (scenario.validation, scenario.test):
            used += [np.concatenate(stream.support).ravel(), *stream.queries]
            for session in range(stream.sessions + 1):
                used += [answers.known_in_session(scenario, stream, session)]
                used += [scenario.train_nodes_met(stream, session)]
        episode = EpisodeSampler(scenario, config).draw()
        _, support, query = TaskSampler(scenario, config).draw()
        batch = BatchSampler(scenario, config).draw()
        used += [nodes.ravel() for nodes in (episode.support, episode.query, support, query, batch)]
        assert not np.isin(np.concatenate(used), context).any()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_more_of_them_leave_every_draw_as_it_was(tiny_graph: Dataset, tiny: Tiny, protocol: str) -> None:
    labels = np.concatenate([tiny_graph.labels, np.full(30, UNLABELLED)])
    features = scipy.sparse.vstack([tiny_graph.features, tiny_graph.features[:30]], format="csr")
    config, nodes = resolve(tiny(**CLASSES, protocol=protocol)), tiny_graph.num_nodes
    one = make_scenario(tiny_graph, config, 3)
    other = make_scenario(replace(tiny_graph, labels=labels, features=features), config, 3)
    assert np.array_equal(one.split.role, other.split.role[:nodes])
    for left, right in ((one.test, other.test), (one.validation, other.validation)):
        assert all(map(np.array_equal, left.support, right.support))
        assert all(map(np.array_equal, left.queries, right.queries))
        assert np.array_equal(left.arrival, right.arrival[:nodes])
        assert np.array_equal(left.labelled_from, right.labelled_from[:nodes])


@pytest.mark.parametrize(
    ("method", "protocol"),
    [
        *((method, "strict") for method in METHODS),
        pytest.param("hag-meta", "released", marks=pytest.mark.slow),
        *(pytest.param(each, "strict", marks=pytest.mark.slow) for each in ("posterior-means", "joint")),
    ],
)
def test_what_stands_in_place_of_their_labels_changes_nothing(
    partly: Dataset, tiny: Tiny, method: str, protocol: str
) -> None:
    context = prepare(tiny(**CLASSES, method=method, protocol=protocol, episodes=3), [0, 5], partly, CPU)
    others = replace(context, scenarios=[with_other_labels(each) for each in context.scenarios])
    (pack, answers), (other_pack, other_answers) = run_context(context), run_context(others)
    assert same_parameters(pack, other_pack) and same_answers(answers, other_answers)
