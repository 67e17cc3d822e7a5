"""What is visible at the start fixes frequencies and basis of the inputs: to the bit, in every phase."""

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
from hagmeta.engine.run import prepare, pretrain, train_and_evaluate
from hagmeta.scenarios import PROTOCOLS
from hagmeta.sparse.graph import Graph
from hagmeta.testing import same_parameters, trained

CPU = torch.device("cpu")
Tiny = Callable[..., RunConfig]
kinds = pytest.mark.parametrize("kind", ["tf-idf", "svd"])


def with_other_words(context: Context, dataset: Dataset, nodes: np.ndarray) -> Context:
    """The same, with other features at some nodes (nodes,)."""
    noise = np.random.default_rng(0).poisson(0.7, dataset.features.shape)
    features = np.where(nodes[:, None], noise, dataset.features.toarray()).astype(np.float32)
    noisy = replace(dataset, features=scipy.sparse.csr_matrix(features))
    return replace(context, graph=Graph(noisy, CPU, context.settings.normalisation))


def ignores(context: Context, dataset: Dataset, nodes: np.ndarray) -> bool:
    """Whether weights of words, and all that is trained with them, are the same with other words there."""
    other = with_other_words(context, dataset, nodes)
    assert not torch.equal(
        context.known.views.inputs[1], other.known.views.inputs[1]
    )  # they have lengths of their own
    one, two = trained(context), trained(other)
    same = same_parameters(one, two)
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
