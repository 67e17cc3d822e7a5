"""Frequencies and basis of the inputs are fixed by what is visible at the start: to the bit, in every phase.

The check is also run on planted leaks, which it must find.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse
import torch

from hagmeta.config.run_config import RunConfig
from hagmeta.datasets.base import Dataset
from hagmeta.engine.context import Context
from hagmeta.engine.known.views import Views
from hagmeta.engine.run import prepare, pretrain, train_and_evaluate
from hagmeta.engine.training.meta_training import meta_train
from hagmeta.packs.pack import Pack
from hagmeta.scenarios import PROTOCOLS
from hagmeta.scenarios.scenario import Scenario
from hagmeta.sparse.graph import Graph

CPU = torch.device("cpu")
Tiny = Callable[..., RunConfig]
kinds = pytest.mark.parametrize("kind", ["tf-idf", "svd"])


def with_other_words(context: Context, dataset: Dataset, nodes: np.ndarray) -> Context:
    """The same, with other features at some nodes (nodes,)."""
    noise = np.random.default_rng(0).poisson(0.7, dataset.features.shape)
    features = np.where(nodes[:, None], noise, dataset.features.toarray()).astype(np.float32)
    noisy = replace(dataset, features=scipy.sparse.csr_matrix(features))
    return replace(context, graph=Graph(noisy, CPU, context.settings.normalisation))


def trained(context: Context) -> Pack:
    pack = pretrain(context)
    meta_train(context, pack)
    return pack


def ignores(context: Context, dataset: Dataset, nodes: np.ndarray) -> bool:
    """Whether weights of words, and all that is trained with them, are the same with other words there."""
    other = with_other_words(context, dataset, nodes)
    assert not torch.equal(
        context.known.views.inputs[1], other.known.views.inputs[1]
    )  # they have lengths of their own
    one, two = trained(context), trained(other)
    same = all(torch.equal(value, two.parameters[name]) for name, value in one.parameters.items())
    assert same == torch.equal(context.known.views.inputs[0], other.known.views.inputs[0])
    return same


def hidden(context: Context) -> np.ndarray:
    (scenario,) = context.scenarios
    return ~context.protocol.visible(scenario, scenario.validation, 0)


@kinds
@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("val_classes", [2, pytest.param(0, marks=pytest.mark.slow)])
def test_words_of_nodes_that_are_not_there_at_the_start_change_nothing(
    tiny_graph: Dataset, tiny: Tiny, kind: str, protocol: str, val_classes: int
) -> None:
    config = tiny(inputs=kind, protocol=protocol, val_classes=val_classes, n_way=1, classes=(2, 3, 4))
    context = prepare(config, [0], tiny_graph, CPU)
    assert hidden(context).sum() > 100
    assert ignores(context, tiny_graph, hidden(context))


@pytest.mark.slow
@kinds
def test_a_basis_of_all_nodes_is_noticed(
    tiny_graph: Dataset, tiny: Tiny, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = prepare(tiny(inputs=kind), [0], tiny_graph, CPU)
    nodes = hidden(context)
    honest = Graph.inputs
    monkeypatch.setattr(Graph, "inputs", lambda self, kind, seen: honest(self, kind, np.ones_like(seen)))
    assert not ignores(replace(context), tiny_graph, nodes)


@pytest.mark.slow
@kinds
def test_a_basis_of_the_test_stream_s_first_session_is_noticed(
    tiny_graph: Dataset, tiny: Tiny, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # There the classes that training holds out are met: what chooses settings would have seen them.
    config = tiny(inputs=kind, val_classes=2, n_way=1, classes=(2, 3, 4))
    context = prepare(config, [0], tiny_graph, CPU)
    nodes = hidden(context)

    def later(self: Views, scenario: Scenario) -> np.ndarray:
        return self.protocol.visible(scenario, scenario.test, 0)

    monkeypatch.setattr(Views, "seen_first", later)
    other = with_other_words(replace(context), tiny_graph, nodes)
    assert not torch.equal(replace(context).known.views.inputs[0], other.known.views.inputs[0])


@kinds
def test_with_the_whole_graph_there_its_words_are_too(tiny_graph: Dataset, tiny: Tiny, kind: str) -> None:
    arriving, whole = (
        prepare(tiny(inputs=kind, visibility=name), [0], tiny_graph, CPU) for name in ("arriving", "whole")
    )
    assert not torch.equal(arriving.known.views.inputs[0], whole.known.views.inputs[0])
    assert not ignores(whole, tiny_graph, hidden(arriving))


@kinds
def test_sessions_ignore_words_of_classes_still_to_come(tiny_graph: Dataset, tiny: Tiny, kind: str) -> None:
    context = prepare(tiny(inputs=kind), [0], tiny_graph, CPU)
    late = context.scenarios[0].test.arrival > 1
    answers = []
    for each in (context, with_other_words(context, tiny_graph, late)):
        (evaluator,), _ = train_and_evaluate(each, pretrain(each))
        answers.append(evaluator.answers)
    assert [np.array_equal(*pair) for pair in zip(*answers, strict=True)] == [True, True, False]


def test_inputs_stay_the_same_from_training_to_the_last_session(tiny_graph: Dataset, tiny: Tiny) -> None:
    config = tiny(inputs="svd", val_classes=2, n_way=1, classes=(2, 3, 4))
    context = prepare(config, [0, 1], tiny_graph, CPU)
    streams = [scenario.test for scenario in context.scenarios]
    views = [
        context.known.training().view,
        *(context.known.session(streams, session).view for session in (0, 1, 2)),
    ]
    assert all(view.inputs is context.known.views.inputs for view in views)
    second = context.known.views.view(
        context.scenarios[1:], [context.known.views.seen_first(context.scenarios[1])]
    )
    assert all(
        torch.equal(a[0], b[1]) for a, b in zip(second.inputs, context.known.views.inputs, strict=True)
    )
