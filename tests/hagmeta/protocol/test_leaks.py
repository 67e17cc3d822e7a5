"""Nothing that a model may not know changes anything that it does: to the bit.

Each check is also run on `released`, the authors' procedure, where it must find the leak.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse
import torch

from hagmeta.config import RunConfig
from hagmeta.datasets.base import NodeDataset
from hagmeta.methods import METHODS
from hagmeta.packs.pack import Pack, no_progress
from hagmeta.phases import released
from hagmeta.phases.context import Stage
from hagmeta.phases.meta_training import meta_train
from hagmeta.phases.sessions import play
from hagmeta.pipeline import prepare, pretrain
from hagmeta.protocol.splits import TEST, TRAIN
from hagmeta.protocol.streams import World
from hagmeta.sparse.graph import Graph

CPU = torch.device("cpu")
SEEDS = [0, 5]
VARIANTS = [("hag-meta", "gat"), *((method, "gcn") for method in METHODS)]
Small = Callable[..., RunConfig]


def live(stage: Stage) -> tuple[Pack, list[list[np.ndarray]]]:
    """A whole run: the final parameters, and every answer of every seed and session."""
    pack = pretrain(stage, None, no_progress)
    if stage.config.protocol == "released":
        evaluators = released.meta_train_and_play(stage, pack, no_progress)
    else:
        meta_train(stage, pack, no_progress)
        evaluators = play(stage, pack, [world.test for world in stage.worlds], "test", no_progress)
    return pack, [evaluator.answers for evaluator in evaluators]


def same_parameters(one: Pack, other: Pack) -> bool:
    return all(torch.equal(value, other.parameters[name]) for name, value in one.parameters.items())


def same_answers(one: list[list[np.ndarray]], other: list[list[np.ndarray]]) -> bool:
    pairs = zip(one, other, strict=True)
    return all(np.array_equal(a, b) for left, right in pairs for a, b in zip(left, right, strict=True))


def forbidden_nodes(stage: Stage, world: World) -> np.ndarray:
    """Test nodes of every class, and all nodes of the novel-test classes but their supports.

    An oracle may know the train nodes of novel-test classes, too: of those, but of no others.
    """
    forbidden = (world.split.role == TEST) | np.isin(world.labels, world.split.novel_test)
    forbidden[world.test.support.ravel()] = False
    if stage.method.oracle:
        forbidden[world.split.role == TRAIN] = False
    return np.flatnonzero(forbidden)


def with_other_labels(stage: Stage, kind: str) -> Stage:
    """The same worlds, but what is forbidden to know is permuted or garbage."""
    rng = np.random.default_rng(0)
    worlds = []
    for world in stage.worlds:
        nodes, labels = forbidden_nodes(stage, world), world.labels.copy()
        if kind == "permuted":
            labels[nodes] = rng.permutation(labels[nodes])
        else:
            labels[nodes] = rng.integers(world.num_classes, size=len(nodes))
        assert (labels != world.labels).sum() > 100
        worlds.append(replace(world, labels=labels))
    return replace(stage, worlds=worlds)


@pytest.mark.parametrize(("method", "encoder"), VARIANTS)
def test_strict_ignores_the_labels_of_test_and_unsupported_novel_nodes(
    dataset: NodeDataset, small: Small, method: str, encoder: str
) -> None:
    config = small(method=method, encoder=encoder, episodes=6, validate_every=3)
    stage = prepare(config, SEEDS, dataset, CPU)
    pack, answers = live(stage)
    for kind in ("permuted", "garbage"):
        other_pack, other_answers = live(with_other_labels(stage, kind))
        assert same_parameters(pack, other_pack), kind
        assert same_answers(answers, other_answers), kind


def test_an_oracle_is_one_because_other_labels_change_it(dataset: NodeDataset, small: Small) -> None:
    # What it is allowed beyond the others does matter: with those labels replaced too, it answers otherwise.
    oracles = [name for name, method in METHODS.items() if method.oracle]
    assert oracles == ["joint"]
    stage = prepare(small(method="joint"), SEEDS, dataset, CPU)
    honest = prepare(small(method="frozen"), SEEDS, dataset, CPU)
    others = replace(stage, worlds=with_other_labels(honest, "permuted").worlds)
    assert not same_answers(live(stage)[1], live(others)[1])


def test_an_oracle_knows_no_class_before_it_is_met(dataset: NodeDataset, small: Small) -> None:
    stage = prepare(small(method="joint"), SEEDS, dataset, CPU)
    worlds = []
    for world in stage.worlds:
        labels = world.labels.copy()
        late = np.flatnonzero(world.test.arrival > 1)
        labels[late] = np.random.default_rng(0).integers(world.num_classes, size=len(late))
        assert np.isin(labels[late], world.test.met(1)).any()
        worlds.append(replace(world, labels=labels))
    answers, others = live(stage)[1], live(replace(stage, worlds=worlds))[1]
    assert same_answers([seed[:2] for seed in answers], [seed[:2] for seed in others])
    assert not same_answers([seed[2:] for seed in answers], [seed[2:] for seed in others])


@pytest.mark.parametrize("method", METHODS)
def test_released_learns_from_the_labels_that_strict_ignores(
    dataset: NodeDataset, small: Small, method: str
) -> None:
    # The same check, on the authors' procedure: it must fail there, or it proves nothing.
    stage = prepare(small(method=method, protocol="released", episodes=4), SEEDS, dataset, CPU)
    pack, answers = live(stage)
    other_pack, other_answers = live(with_other_labels(stage, "permuted"))
    assert same_parameters(pack, other_pack) == (method == "frozen")  # in which nothing learns
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


@pytest.mark.parametrize(("method", "encoder"), VARIANTS)
def test_training_ignores_features_and_edges_of_invisible_nodes(
    dataset: NodeDataset, small: Small, method: str, encoder: str
) -> None:
    stage = prepare(small(method=method, encoder=encoder, episodes=4), [3], dataset, CPU)
    hidden = np.flatnonzero(~stage.worlds[0].validation.visible(0))
    assert len(hidden) > 100
    noisy = replace(stage, graph=Graph(with_noise_at(dataset, hidden), CPU))
    packs = []
    for each in (stage, noisy):
        pack = pretrain(each, None, no_progress)
        meta_train(each, pack, no_progress)
        packs.append(pack)
    assert same_parameters(*packs)


@pytest.mark.parametrize("method", METHODS)
def test_sessions_ignore_features_and_edges_of_classes_still_to_come(
    dataset: NodeDataset, small: Small, method: str
) -> None:
    stage = prepare(small(method=method, episodes=2, validate_every=2), [3], dataset, CPU)
    late = np.flatnonzero(stage.worlds[0].test.arrival > 1)
    noisy = replace(stage, graph=Graph(with_noise_at(dataset, late), CPU))
    answers, others = live(stage)[1], live(noisy)[1]
    assert same_answers([seed[:2] for seed in answers], [seed[:2] for seed in others])
    assert not same_answers([seed[2:] for seed in answers], [seed[2:] for seed in others])


def test_training_notices_noise_at_a_single_visible_node(dataset: NodeDataset, small: Small) -> None:
    # The check above has teeth: one visible node among the noisy ones is enough to fail it.
    stage = prepare(small(), [3], dataset, CPU)
    seen = np.flatnonzero(stage.worlds[0].validation.visible(0))
    noisy = replace(stage, graph=Graph(with_noise_at(dataset, seen[:1]), CPU))
    packs = [pretrain(each, None, no_progress) for each in (stage, noisy)]
    assert not same_parameters(*packs)


def test_held_out_classes_are_invisible_and_unlabelled_in_training(
    dataset: NodeDataset, small: Small
) -> None:
    stage = prepare(small(val_classes=2), [0], dataset, CPU)
    world = stage.worlds[0]
    held_out = world.split.novel_train[-2:]
    assert not np.isin(held_out, world.meta_classes).any()
    assert not world.validation.visible(0)[np.isin(dataset.labels, held_out)].any()
    noisy = replace(
        stage, graph=Graph(with_noise_at(dataset, np.flatnonzero(~world.validation.visible(0))), CPU)
    )
    assert same_parameters(pretrain(stage, None, no_progress), pretrain(noisy, None, no_progress))
