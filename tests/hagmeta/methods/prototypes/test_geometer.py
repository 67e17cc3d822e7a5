from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy.spatial.distance import cdist
from torch import nn

from hagmeta.config.run_config import RunConfig
from hagmeta.datasets.base import Dataset
from hagmeta.engine.context import Context
from hagmeta.engine.run import prepare, pretrain
from hagmeta.engine.sessions import evaluate_streams
from hagmeta.layers.attention.prototype_attention import PrototypeAttention
from hagmeta.layers.losses import balanced_cross_entropy
from hagmeta.methods.prototypes.geometer import separability_loss, uniformity_loss
from hagmeta.packs.pack import Pack

CPU = torch.device("cpu")
Small = Callable[..., RunConfig]


@pytest.mark.parametrize("classes", [2, 3, 4])
def test_prototypes_of_a_simplex_are_as_uniform_as_possible(classes: int) -> None:
    # No directions are farther apart than those of a regular simplex, whose cosines are -1 / (classes - 1).
    simplex = 5 + 3 * torch.eye(classes)
    torch.testing.assert_close(uniformity_loss(simplex), torch.tensor(-1 / (classes - 1)))
    moved = simplex + torch.randn(classes, classes, generator=torch.Generator().manual_seed(0))
    assert uniformity_loss(moved) > uniformity_loss(simplex) + 1e-3 or classes == 2


def test_uniformity_takes_the_nearest_direction_of_each_class() -> None:
    square = torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])
    torch.testing.assert_close(uniformity_loss(square + 7), torch.tensor(0.0))
    flat = torch.tensor([[4.0, 1.0], [4.0, -1.0], [-4.0, 1.0], [-4.0, -1.0]])
    torch.testing.assert_close(uniformity_loss(flat), torch.tensor(15 / 17))


def test_separability_is_of_the_nearest_old_prototype() -> None:
    old = torch.tensor([[0.0, 0.0], [10.0, 0.0]])
    new = torch.tensor([[1.0, 0.0], [10.0, 2.0]])
    expected = (math.exp(-1) + math.exp(-4)) / 2
    assert separability_loss(new, old).item() == pytest.approx(expected)
    rng = np.random.default_rng(0)
    new_rows, old_rows = rng.normal(size=(3, 4)), rng.normal(size=(5, 4))
    nearest = np.exp(-cdist(new_rows, old_rows, "sqeuclidean").min(1)).mean()
    assert separability_loss(*map(torch.from_numpy, (new_rows, old_rows))).item() == pytest.approx(nearest)


def test_every_class_has_the_same_weight_in_a_session() -> None:
    logits = torch.randn(7, 4, generator=torch.Generator().manual_seed(0))
    target = torch.tensor([0, 0, 0, 0, 1, 1, 3])
    by_class = [F.cross_entropy(logits[target == c], target[target == c]) for c in (0, 1, 3)]
    torch.testing.assert_close(balanced_cross_entropy(logits, target), torch.stack(by_class).mean())


def trained_attention(width: int) -> PrototypeAttention:
    torch.manual_seed(0)
    attention = PrototypeAttention(width)
    nn.init.normal_(attention.last.weight)
    return attention


def test_attention_is_that_of_torch() -> None:
    attention = trained_attention(4)
    means, support = torch.randn(3, 4), torch.randn(3, 5, 4)
    nodes = torch.arange(15).view(3, 5)
    members = torch.cat([means[:, None], support], 1)
    query, key, value = (
        layer(rows).unflatten(-1, (2, 4)).transpose(1, 2)
        for layer, rows in (
            (attention.query, means[:, None]),
            (attention.key, members),
            (attention.value, members),
        )
    )
    found = F.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(1)
    torch.testing.assert_close(attention(means, support, nodes), means + attention.last(found))


def test_untrained_attention_changes_nothing_and_repeated_supports_count_once() -> None:
    means, support, nodes = torch.randn(3, 4), torch.randn(3, 2, 4), torch.arange(6).view(3, 2)
    assert torch.equal(PrototypeAttention(4)(means, support, nodes), means)
    attention = trained_attention(4)
    twice = attention(means, support.repeat_interleave(2, 1), nodes.repeat_interleave(2, 1))
    torch.testing.assert_close(twice, attention(means, support, nodes))
    assert not torch.allclose(twice, means)


def started(context: Context) -> tuple[Pack, Any, Any, Any]:
    """The pack after pre-training, and the arguments of a step in session 1."""
    pack = pretrain(context)
    streams = [scenario.test for scenario in context.scenarios]
    known = context.known.session(streams, 1)
    shared = context.tasks.shared(known, streams[0].sizes(1))
    return pack, shared, known.view, context.tasks.session(streams, 1)


@torch.no_grad()
def test_first_prototypes_are_means_weighted_by_visible_degree(dataset: Dataset, small: Small) -> None:
    context = prepare(small(method="geometer"), [0], dataset, CPU)
    pack, shared, view, task = started(context)
    (found,) = pack.run("class_statistics", (shared,), view, task)
    new, support = found[0, -2:], task.support[0]
    embedded = pack.run("embeddings", (shared,), view, task.support.flatten(1))[0].view(2, 3, -1)
    visible = view.visible[0].numpy()
    degree = dataset.adjacency @ visible  # `adjacency` has self-loops
    expected = [
        np.average(rows.numpy(), axis=0, weights=degree[nodes.numpy()])
        for rows, nodes in zip(embedded, support, strict=True)
    ]
    np.testing.assert_allclose(new.numpy(), expected, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_the_teacher_agrees_with_itself(dataset: Dataset, small: Small) -> None:
    """Without other losses, a model that has not moved is at the minimum of the distillation."""
    losses = []
    for weight in (0.0, 5.0):
        context = prepare(small(method="geometer", teacher=weight), [0], dataset, CPU)
        pack, shared, view, task = started(context)
        settled = pack.run("session_statistics", (shared,), view, task)
        target = torch.zeros_like(task.query)
        step = (task, target)
        losses.append(pack.run(_loss, (shared,), view._replace(session_statistics=settled), *step))
        # Another teacher is not agreed with.
        other = (30 * settled[0].flip(1), settled[1])
        losses.append(pack.run(_loss, (shared,), view._replace(session_statistics=other), *step))
    torch.testing.assert_close(losses[2], losses[0])
    assert losses[3] > losses[0] + 0.01 and torch.equal(losses[1], losses[0])


def _loss(module: Any, shared: Any, view: Any, task: Any, target: Any) -> Any:
    return module.session_loss(shared, view, task, target, None)[0]


@pytest.mark.parametrize("rehearsal", ["all", "none"])
def test_sessions_move_encoder_and_attention(dataset: Dataset, small: Small, rehearsal: str) -> None:
    context = prepare(small(method="geometer", rehearsal=rehearsal), [0, 5], dataset, CPU)
    pack = pretrain(context)
    before = pack.snapshot()
    evaluate_streams(context, pack, [scenario.test for scenario in context.scenarios], "test")
    moved = {name for name, value in pack.snapshot().items() if not torch.equal(value, before[name])}
    assert moved == set(before)
