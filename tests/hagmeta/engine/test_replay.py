"""What ER-GNN and iCaRL keep of the classes they met, and how they learn from it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from hagmeta.config.run_config import RunConfig
from hagmeta.datasets.base import Dataset
from hagmeta.engine.context import Context
from hagmeta.engine.hooks import add_classes, add_trained_classes
from hagmeta.engine.known.batches import ReplayBatches
from hagmeta.engine.known.memory import Memory
from hagmeta.engine.run import prepare, pretrain
from hagmeta.layers.head import LinearHead
from hagmeta.layers.prototypes import distance_logits
from hagmeta.methods.classifiers.distillation import distillation_loss
from hagmeta.methods.replay.er_gnn import coverage, influence, mean_of_feature, replay_weights
from hagmeta.methods.replay.icarl import herding
from hagmeta.packs.pack import Pack
from hagmeta.packs.randomness import keys
from hagmeta.scenarios.scenario import TRAIN

CPU = torch.device("cpu")
SEEDS = [0, 5]
Small = Callable[..., RunConfig]


def column(*values: float) -> np.ndarray:
    return np.array(values)[:, None]


def test_herding_brings_the_mean_of_the_chosen_nearest_to_that_of_all() -> None:
    nodes = column(0, 1, 2, 9)  # their mean is 3
    # 2 is the nearest to 3; then (2 + x) / 2 is nearest with 1 (1.5); then (3 + x) / 3 with 9 (4).
    assert herding(nodes, 3).tolist() == [2, 1, 3]
    assert herding(nodes, 1).tolist() == [2]
    assert sorted(herding(nodes, 10).tolist()) == [0, 1, 2, 3]


def test_mean_of_feature_keeps_the_nodes_nearest_to_their_class_mean() -> None:
    kept = mean_of_feature([column(0, 4, 5, 11), column(7, 7.5, 9)], [], 2)  # the means are 5 and 7.83
    assert [rows.tolist() for rows in kept] == [[2, 1], [1, 0]]


def test_coverage_keeps_the_nodes_with_the_fewest_of_other_classes_around() -> None:
    first, second = column(0, 5, 9.9), column(10, 10.2, 20)  # nodes are 4.0 from their class means on average
    assert [rows.tolist() for rows in coverage([first, second], [], 2)] == [[0, 1], [2, 0]]
    assert [rows.tolist() for rows in coverage([first], [], 2)] == [[0, 1]]  # nothing else is around


def test_influence_is_the_change_of_a_classifier_fitted_without_the_node() -> None:
    # One step of Newton's method from a fitted classifier, as leaving out a node would take.
    rng = np.random.default_rng(1)
    embeddings = [rng.normal(size=(6, 3)) + shift for shift in (0, 1)]
    logits = [rng.normal(size=(6, 2)) for _ in embeddings]
    inputs = np.concatenate([np.concatenate([c, np.ones((6, 1))], axis=1) for c in embeddings])
    share = torch.from_numpy(np.concatenate(logits)).softmax(-1).numpy()
    truth = np.repeat(np.eye(2), 6, axis=0)
    changes = np.zeros(12)
    for c in range(2):
        weights = np.diag(share[:, c] * (1 - share[:, c]))
        hessian = inputs.T @ weights @ inputs / 12 + 0.01 * np.eye(4)
        for node in range(12):
            gradient = (share[node, c] - truth[node, c]) * inputs[node]
            changes[node] += np.square(np.linalg.inv(hessian) @ gradient).sum()
    expected = [np.argsort(-part)[:3].tolist() for part in (changes[:6], changes[6:])]
    assert [rows.tolist() for rows in influence(embeddings, logits, 3)] == expected


def test_new_and_replayed_nodes_weigh_the_same() -> None:
    weights = replay_weights(torch.tensor([False] * 8 + [True] * 2))
    assert weights.tolist() == [0.0625] * 8 + [0.25] * 2


def prepared(config: RunConfig, dataset: Dataset) -> tuple[Context, Pack]:
    context = prepare(config, SEEDS, dataset, CPU)
    pack = pretrain(context)
    add_trained_classes(context, pack, context.known.training())
    return context, pack


@pytest.mark.parametrize("size", [2, 5])
@pytest.mark.parametrize(
    ("method", "selection"),
    [("icarl", "mean"), ("er-gnn", "mean"), ("er-gnn", "coverage"), ("er-gnn", "influence")],
)
def test_memory_keeps_so_many_train_nodes_or_supports_a_class(
    dataset: Dataset, small: Small, method: str, selection: str, size: int
) -> None:
    context, pack = prepared(small(method=method, selection=selection, memory=size), dataset)
    streams = [scenario.test for scenario in context.scenarios]
    memory = Memory(context, streams)
    for session in range(3):
        memory.keep(pack, context.known.session(streams, session), session)
    for scenario, stream, (known, *later) in zip(context.scenarios, streams, memory.kept, strict=True):
        assert known.shape == (9, size) and [rows.shape for rows in later] == [(2, min(size, 3))] * 2
        assert (scenario.labels[known] == stream.known[:, None]).all()
        assert (scenario.split.role[known] == TRAIN).all()
        assert all(len(set(row)) == len(row) for row in known)
        for rows, support in zip(later, stream.support[1:], strict=True):
            assert all(set(row) <= set(nodes) for row, nodes in zip(rows, support, strict=True))
    nodes, targets = memory.nodes(), memory.targets()
    met = [stream.met(2)[targets] for stream in streams]
    assert all(
        (scenario.labels[kept] == c).all()
        for scenario, kept, c in zip(context.scenarios, nodes, met, strict=True)
    )


def test_a_class_smaller_than_the_memory_keeps_all_its_nodes(dataset: Dataset, small: Small) -> None:
    context, pack = prepared(small(method="icarl", memory=200), dataset)
    streams = [scenario.test for scenario in context.scenarios]
    memory = Memory(context, streams)
    memory.keep(pack, context.known.session(streams, 0), 0)
    for scenario, stream, (known,) in zip(context.scenarios, streams, memory.kept, strict=True):
        for row, c in zip(known, stream.known, strict=True):
            assert set(row) == set(scenario.nodes_of(np.array([c]), TRAIN))


def batches_at(context: Context, pack: Pack, session: int) -> ReplayBatches:
    streams = [scenario.test for scenario in context.scenarios]
    memory = Memory(context, streams)
    for number in range(session):
        memory.keep(pack, context.known.session(streams, number), number)
    known = context.known.session(streams, session)
    add_classes(context, pack, known, streams, session)
    batches = ReplayBatches(context, memory)
    shared = context.tasks.shared(known, streams[0].sizes(session))
    batches.begin(pack, shared, known.view, streams, session)
    return batches


@pytest.mark.parametrize("method", ["er-gnn", "icarl"])
def test_a_session_replays_what_is_kept_beside_its_supports(
    dataset: Dataset, small: Small, method: str
) -> None:
    context, pack = prepared(small(method=method, memory=4), dataset)
    task, target = batches_at(context, pack, 2).task(2)
    assert task.query.shape == (2, 9 * 4 + 2 * 3 + 2 * 3)  # known, session 1, session 2
    for seed, scenario in enumerate(context.scenarios):
        assert list(task.classes[seed]) == list(scenario.test.met(2))
        assert list(task.query[seed, -6:]) == list(scenario.test.support[2].ravel())
        truth = scenario.labels[task.query[seed].numpy()]
        assert (scenario.test.met(2)[target[seed].numpy()] == truth).all()


def test_distillation_has_no_gradient_where_nothing_has_changed() -> None:
    before = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    logits = before.clone().requires_grad_()
    loss = distillation_loss(logits, before, 2.0)
    (gradient,) = torch.autograd.grad(loss, logits)
    assert loss.abs() < 1e-6 and gradient.abs().max() < 1e-6
    moved = (before + torch.arange(4.0)).requires_grad_()
    loss = distillation_loss(moved, before, 2.0)
    (gradient,) = torch.autograd.grad(loss, moved)
    assert loss > 0 and gradient.abs().max() > 1e-3
    # With the old model's answers as targets it is their cross-entropy, less what no answer could avoid.
    expected = F.cross_entropy(moved / 2, (before / 2).softmax(-1)) - F.cross_entropy(
        before / 2, (before / 2).softmax(-1)
    )
    torch.testing.assert_close(loss, 4 * expected)


def test_a_session_of_icarl_starts_without_distillation_loss(dataset: Dataset, small: Small) -> None:
    # The model still is the previous one, and without dropout its answers are those recalled.
    losses = []
    for weight in (0.0, 5.0):
        context, pack = prepared(small(method="icarl", distillation=weight, dropout=0.0), dataset)
        task, target = batches_at(context, pack, 1).task(1)
        assert task.before_steps[0].shape == (2, task.query.shape[1], 9)
        streams = [scenario.test for scenario in context.scenarios]
        known = context.known.session(streams, 1)
        shared = context.tasks.shared(known, streams[0].sizes(1))
        key = keys(SEEDS, "dropout")
        losses.append(pack.run("session_loss", (shared,), known.view, task, target, key)[0])
    torch.testing.assert_close(losses[0], losses[1])


def test_the_first_rows_of_the_head_classify_by_distance_to_the_means() -> None:
    generator = torch.Generator().manual_seed(0)
    head, means = LinearHead(6, 4), torch.randn(3, 4, generator=generator)
    nodes, classes = torch.randn(5, 4, generator=generator), torch.tensor([4, 0, 2])
    with torch.no_grad():
        weight, bias = head.started(classes, means, classes[:0])
        head.weight.copy_(weight)
        head.bias.copy_(bias)
        torch.testing.assert_close(head(nodes, classes), distance_logits(nodes, means))
        assert (head(nodes, torch.tensor([1, 3, 5])) == 0).all()


def test_later_rows_of_the_head_are_as_long_as_trained_ones() -> None:
    head, trained, arriving = LinearHead(4, 2), torch.tensor([3, 0]), torch.tensor([2])
    with torch.no_grad():
        head.weight.copy_(torch.tensor([[0.0, 2.0], [7.0, 7.0], [7.0, 7.0], [4.0, 0.0]]))
        head.bias.copy_(torch.tensor([1.0, 7.0, 7.0, 2.0]))
        weight, bias = head.started(arriving, torch.tensor([[0.3, 0.4]]), trained)
    torch.testing.assert_close(weight[2], torch.tensor([1.8, 2.4]))  # of length (2 + 4) / 2
    assert bias.tolist() == [1.0, 7.0, 1.5, 2.0]
    assert torch.equal(weight[[0, 1, 3]], head.weight[[0, 1, 3]])


@pytest.mark.parametrize("method", ["er-gnn", "icarl"])
def test_no_class_is_started_twice(dataset: Dataset, small: Small, method: str) -> None:
    context, pack = prepared(small(method=method), dataset)
    streams = [scenario.test for scenario in context.scenarios]
    for session in range(3):
        before = pack.snapshot()["head.weight"]
        add_classes(context, pack, context.known.session(streams, session), streams, session)
        moved = (pack.snapshot()["head.weight"] != before).any(-1)  # (classes, pack)
        for seed, stream in enumerate(streams):
            arrived = stream.arriving[session] if session else []
            assert set(torch.nonzero(moved[:, seed]).ravel().tolist()) == set(arrived)
