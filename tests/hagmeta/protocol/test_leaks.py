"""Nothing that a model may not know changes anything that it does: to the bit.

Each check is also run on `released`, the authors' procedure, where it must find the leak.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch

from hagmeta.config import RunConfig
from hagmeta.datasets.base import NodeDataset
from hagmeta.methods import METHODS
from hagmeta.methods.closed_form import OnFeatures
from hagmeta.packs.pack import Pack, no_progress
from hagmeta.phases.context import Context
from hagmeta.phases.meta_training import meta_train
from hagmeta.pipeline import live as meta_train_and_play
from hagmeta.pipeline import prepare, pretrain
from hagmeta.protocol.scenario import TEST, TRAIN, Scenario
from hagmeta.sparse.graph import Graph

CPU = torch.device("cpu")
SEEDS = [0, 5]
SUPERVISED = {"method": "hag-meta", "gpil": False, "instead_of_gpil": "supervised"}
WAYS: dict[str, dict[str, Any]] = {method: {"method": method} for method in METHODS}
WAYS |= {"hag-meta supervised": SUPERVISED}
VARIANTS = {
    "hag-meta over a gat": {"method": "hag-meta", "encoder": "gat"},
    "hag-meta over sage": {"method": "hag-meta", "encoder": "sage"},
    "hag-meta over sgc": {"method": "hag-meta", "encoder": "sgc"},
    "icarl over an mlp": {"method": "icarl", "encoder": "mlp"},
    **WAYS,
}
Small = Tiny = Callable[..., RunConfig]


def live(context: Context) -> tuple[Pack, list[list[np.ndarray]]]:
    """A whole run: the final parameters, and every answer of every seed and session."""
    pack = pretrain(context, None, no_progress)
    evaluators, _ = meta_train_and_play(context, pack)
    return pack, [evaluator.answers for evaluator in evaluators]


def same_parameters(one: Pack, other: Pack) -> bool:
    return all(torch.equal(value, other.parameters[name]) for name, value in one.parameters.items())


def same_answers(one: list[list[np.ndarray]], other: list[list[np.ndarray]]) -> bool:
    pairs = zip(one, other, strict=True)
    return all(np.array_equal(a, b) for left, right in pairs for a, b in zip(left, right, strict=True))


def forbidden_nodes(context: Context, scenario: Scenario) -> np.ndarray:
    """Test nodes of every class, and all nodes of the novel-test classes but their supports.

    An oracle may know the train nodes of novel-test classes, too: of those, but of no others.
    """
    forbidden = (scenario.split.role == TEST) | np.isin(scenario.labels, scenario.split.novel_test)
    forbidden[scenario.test.support.ravel()] = False
    if context.method.traits.oracle:
        forbidden[scenario.split.role == TRAIN] = False
    return np.flatnonzero(forbidden)


def with_other_labels(context: Context, kind: str) -> Context:
    """The same scenarios, but what is forbidden to know is permuted or garbage."""
    rng = np.random.default_rng(0)
    scenarios = []
    for scenario in context.scenarios:
        nodes, labels = forbidden_nodes(context, scenario), scenario.labels.copy()
        if kind == "permuted":
            labels[nodes] = rng.permutation(labels[nodes])
        else:
            labels[nodes] = rng.integers(scenario.num_classes, size=len(nodes))
        assert (labels != scenario.labels).mean() > 0.1
        scenarios.append(replace(scenario, labels=labels))
    return replace(context, scenarios=scenarios)


@pytest.mark.parametrize("variant", VARIANTS)
def test_strict_ignores_the_labels_of_test_and_unsupported_novel_nodes(
    tiny_graph: NodeDataset, tiny: Tiny, variant: str
) -> None:
    config = tiny(**VARIANTS[variant], episodes=6, validate_every=3)
    context = prepare(config, SEEDS, tiny_graph, CPU)
    pack, answers = live(context)
    for kind in ("permuted", "garbage"):
        other_pack, other_answers = live(with_other_labels(context, kind))
        assert same_parameters(pack, other_pack), kind
        assert same_answers(answers, other_answers), kind


def test_an_oracle_is_one_because_other_labels_change_it(dataset: NodeDataset, small: Small) -> None:
    # What it is allowed beyond the others does matter: with those labels replaced too, it answers otherwise.
    oracles = [name for name, method in METHODS.items() if method.traits.oracle]
    assert oracles == ["joint"]
    context = prepare(small(method="joint"), SEEDS, dataset, CPU)
    honest = prepare(small(method="frozen"), SEEDS, dataset, CPU)
    others = replace(context, scenarios=with_other_labels(honest, "permuted").scenarios)
    assert not same_answers(live(context)[1], live(others)[1])


def test_an_oracle_knows_no_class_before_it_is_met(dataset: NodeDataset, small: Small) -> None:
    context = prepare(small(method="joint"), SEEDS, dataset, CPU)
    scenarios = []
    for scenario in context.scenarios:
        labels = scenario.labels.copy()
        late = np.flatnonzero(scenario.test.readable_from > 1)
        labels[late] = np.random.default_rng(0).integers(scenario.num_classes, size=len(late))
        assert np.isin(labels[late], scenario.test.met(1)).any()
        scenarios.append(replace(scenario, labels=labels))
    answers, others = live(context)[1], live(replace(context, scenarios=scenarios))[1]
    assert same_answers([seed[:2] for seed in answers], [seed[:2] for seed in others])
    assert not same_answers([seed[2:] for seed in answers], [seed[2:] for seed in others])


@pytest.mark.parametrize("way", WAYS)
def test_released_learns_from_the_labels_that_strict_ignores(
    narrow: NodeDataset, small: Small, way: str
) -> None:
    # The same check, on the authors' procedure: it must fail there, or it proves nothing.
    context = prepare(small(**WAYS[way], protocol="released", episodes=4), SEEDS, narrow, CPU)
    pack, answers = live(context)
    other_pack, other_answers = live(with_other_labels(context, "permuted"))
    stays = way == "frozen" or issubclass(METHODS[WAYS[way]["method"]], OnFeatures)
    assert same_parameters(pack, other_pack) == stays
    assert not same_answers(answers, other_answers)


def with_noise_at(dataset: NodeDataset, nodes: np.ndarray) -> NodeDataset:
    """Other features and other edges at ``nodes``; everything else as it was."""
    rng = np.random.default_rng(0)
    noisy = np.isin(np.arange(dataset.num_nodes), nodes)
    features = np.where(
        noisy[:, None], rng.random((dataset.num_nodes, dataset.num_features)), dataset.features.toarray()
    )
    touching = noisy[dataset.edges].any(axis=1)
    ends = np.stack(
        [rng.choice(nodes, touching.sum()), rng.integers(dataset.num_nodes, size=touching.sum())], axis=1
    )
    ends = np.unique(np.sort(ends[ends[:, 0] != ends[:, 1]], axis=1), axis=0)
    edges = np.concatenate([dataset.edges[~touching], ends])
    matrix = scipy.sparse.csr_matrix(features.astype(np.float32))
    return replace(dataset, edges=edges, features=matrix)


@pytest.mark.parametrize("variant", VARIANTS)
def test_training_ignores_features_and_edges_of_invisible_nodes(
    tiny_graph: NodeDataset, tiny: Tiny, variant: str
) -> None:
    context = prepare(tiny(**VARIANTS[variant], episodes=4), [3], tiny_graph, CPU)
    hidden = np.flatnonzero(~context.scenarios[0].validation.arrived(0))
    assert len(hidden) > 100
    noisy = replace(context, graph=Graph(with_noise_at(tiny_graph, hidden), CPU))
    packs = []
    for each in (context, noisy):
        pack = pretrain(each, None, no_progress)
        meta_train(each, pack, no_progress)
        packs.append(pack)
    assert same_parameters(*packs)


@pytest.mark.parametrize("way", WAYS)
def test_sessions_ignore_features_and_edges_of_classes_still_to_come(
    tiny_graph: NodeDataset, tiny: Tiny, way: str
) -> None:
    context = prepare(tiny(**WAYS[way], episodes=2, validate_every=2), [3], tiny_graph, CPU)
    late = np.flatnonzero(context.scenarios[0].test.arrival > 1)
    noisy = replace(context, graph=Graph(with_noise_at(tiny_graph, late), CPU))
    answers, others = live(context)[1], live(noisy)[1]
    assert same_answers([seed[:2] for seed in answers], [seed[:2] for seed in others])
    assert not same_answers([seed[2:] for seed in answers], [seed[2:] for seed in others])


def test_training_notices_noise_at_a_single_visible_node(dataset: NodeDataset, small: Small) -> None:
    # The check above has teeth: one visible node among the noisy ones is enough to fail it.
    context = prepare(small(), [3], dataset, CPU)
    seen = np.flatnonzero(context.scenarios[0].validation.arrived(0))
    noisy = replace(context, graph=Graph(with_noise_at(dataset, seen[:1]), CPU))
    packs = [pretrain(each, None, no_progress) for each in (context, noisy)]
    assert not same_parameters(*packs)


def test_held_out_classes_are_invisible_and_unlabelled_in_training(
    dataset: NodeDataset, small: Small
) -> None:
    context = prepare(small(val_classes=2), [0], dataset, CPU)
    scenario = context.scenarios[0]
    held_out = scenario.split.novel_train[-2:]
    assert not np.isin(held_out, scenario.meta_classes).any()
    assert not scenario.validation.arrived(0)[np.isin(dataset.labels, held_out)].any()
    noisy = replace(
        context, graph=Graph(with_noise_at(dataset, np.flatnonzero(~scenario.validation.arrived(0))), CPU)
    )
    assert same_parameters(pretrain(context, None, no_progress), pretrain(noisy, None, no_progress))
