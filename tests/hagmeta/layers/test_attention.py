from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import nnls
from torch import Tensor, nn
from torch.func import vmap

from hagmeta.layers.attention.node_attention import (
    NodeScores,
    copies,
    nearest_weights,
    relative_entropy,
    to_the_next,
)
from hagmeta.layers.attention.task_attention import TaskAttention, UniformTaskAttention
from hagmeta.layers.encoders.base import Embedding
from hagmeta.layers.prototypes import weighted_prototypes
from hagmeta.packs.randomness import seeded
from hagmeta.sparse.graph import ClassMeans, View

NODES, WIDTH = 20, 6
SUPPORT = torch.tensor([[4, 9, 1], [0, 19, 7]])  # two classes of three


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@dataclass(frozen=True)
class Given(Embedding):
    """Embeddings that are known beforehand."""

    values: Tensor

    def all(self) -> Tensor:
        return self.values

    def at(self, nodes: Tensor) -> Tensor:
        return self.values[nodes]

    def means(self, class_means: ClassMeans) -> Tensor:
        raise NotImplementedError


def scores(values: Tensor, last: nn.Linear, degree: Tensor) -> NodeScores:
    return NodeScores(Given(values), last, View(torch.ones(NODES), torch.ones(NODES), torch.log(degree)))


@torch.no_grad()
def test_equal_node_scores_give_the_plain_mean() -> None:
    last = seeded(0, "test", lambda: nn.Linear(WIDTH, 1))
    values = normal(NODES, WIDTH)
    equal = scores(values[:1].expand(NODES, -1), last, torch.full((NODES,), 5.0)).weights(SUPPORT)
    torch.testing.assert_close(equal, torch.full((2, 3), 1 / 3))
    torch.testing.assert_close(weighted_prototypes(values[SUPPORT], equal), values[SUPPORT].mean(1))


AUTHORS = {"layers": "two", "earlier": "reshaped", "vectors": "relu"}


def task_attention(base: int = 5, n_way: int = 2, rate: float = 0.5, **form: Any) -> TaskAttention:
    return seeded(0, "test", lambda: TaskAttention(base, n_way, rate, **form))


def linear(layer: nn.Linear, values: np.ndarray) -> np.ndarray:
    result: np.ndarray = values @ layer.weight.detach().numpy().T + layer.bias.detach().numpy()
    return result


@torch.no_grad()
def test_task_weights_follow_the_equations() -> None:
    module, sizes = task_attention(), (5, 2, 2, 2)
    prototypes = normal(11, WIDTH)
    base, *later = np.split(prototypes.numpy(), np.cumsum(sizes)[:-1])
    hidden = np.maximum(linear(module.second, np.maximum(linear(module.first, base.T), 0)), 0)
    tasks = [np.maximum(linear(module.third, hidden), 0), *(task.T for task in later)]
    vectors = np.stack([linear(module.shared, task)[:, 0] for task in tasks])
    power = np.exp(vectors @ vectors[-1])
    expected = np.repeat(power / power.sum() / sizes, sizes)
    np.testing.assert_allclose(module(prototypes, sizes, None), expected, rtol=1e-4)


@torch.no_grad()
def test_the_newest_task_s_vector_is_dropped_out_a_second_time() -> None:
    module, tasks = task_attention(**AUTHORS), normal(3, 64, 2)
    plain = torch.relu(module.shared(tasks).squeeze(-1))
    vectors, newest = module._vectors(tasks, torch.tensor(1))
    for dropped, whole in ((vectors, plain), (newest, plain[-1])):
        kept = dropped != 0
        assert 0.3 < kept[whole > 0].float().mean() < 0.7
        torch.testing.assert_close(dropped[kept], 2 * whole[kept])
    assert not torch.equal(vectors[-1], newest)
    vectors, newest = module._vectors(tasks, None)
    assert torch.equal(vectors, plain) and torch.equal(newest, plain[-1])


@pytest.mark.parametrize("form", [{}, AUTHORS])
@pytest.mark.parametrize("sizes", [(5, 2), (5, 2, 2, 2), (5, 2, 1), (5, 1, 2), (5,)])
@torch.no_grad()
def test_task_weights_sum_to_one_over_all_classes(sizes: tuple[int, ...], form: dict[str, Any]) -> None:
    weights = task_attention(**form)(normal(sum(sizes), WIDTH), sizes, None)
    assert weights.sum().item() == pytest.approx(1, abs=1e-6)
    for task in weights.split(sizes):
        assert (task == task[0]).all(), "a task's classes share its weight"


@torch.no_grad()
def test_a_smaller_task_is_filled_up_with_its_mean_prototype() -> None:
    module = task_attention(n_way=3)
    base, first, small, last = (
        normal(5, WIDTH),
        normal(3, WIDTH, seed=1),
        normal(2, WIDTH, seed=2),
        normal(3, WIDTH),
    )
    filled = torch.cat([small, small.mean(0, keepdim=True)])
    padded = module(torch.cat([base, first, small, last]), (5, 3, 2, 3), None)
    whole = module(torch.cat([base, first, filled, last]), (5, 3, 3, 3), None)
    # The task weighs the same, and divides its weight among fewer classes.
    torch.testing.assert_close(padded[8:10] * 2, whole[8:10] * 3)
    torch.testing.assert_close(padded[:8], whole[:8])
    torch.testing.assert_close(padded[10:], whole[11:])


@pytest.mark.parametrize("form", [{}, AUTHORS])
def test_task_attention_runs_for_a_pack_and_drops_only_in_training(form: dict[str, Any]) -> None:
    module, sizes = task_attention(base=40, **form), (40, 2)
    prototypes, keys = normal(3, 42, WIDTH), torch.tensor([1, 2, 3])
    evaluated = vmap(lambda p: module(p, sizes, None))(prototypes)
    trained = vmap(lambda p, k: module(p, sizes, k))(prototypes, keys)
    for index in range(3):
        torch.testing.assert_close(evaluated[index], module(prototypes[index], sizes, None))
        torch.testing.assert_close(trained[index], module(prototypes[index], sizes, keys[index]))
    assert not torch.allclose(evaluated, trained)


def weights_of(form: str, values: Tensor, degree: Tensor) -> Tensor:
    last = seeded(0, "test", lambda: nn.Linear(WIDTH, 1))
    return replace(scores(values, last, degree), form=form).weights(SUPPORT).detach()


def test_node_weights_without_sigmoids_permuted_and_by_degree_alone() -> None:
    values, degree = normal(NODES, WIDTH) * 3, torch.arange(1.0, NODES + 1)
    last = seeded(0, "test", lambda: nn.Linear(WIDTH, 1))
    raw = (last(values[SUPPORT].relu()).squeeze(-1) * degree[SUPPORT].log()).detach()
    torch.testing.assert_close(weights_of("plain", values, degree), raw.softmax(-1))
    learnt = weights_of("softmax", values, degree)
    torch.testing.assert_close(weights_of("permuted", values, degree), learnt.roll(1, -1))
    alone = NodeScores(None, None, View(torch.ones(NODES), torch.ones(NODES), degree.log()), "degree")
    expected = degree[SUPPORT].log().sigmoid().softmax(-1)
    torch.testing.assert_close(alone.weights(SUPPORT), expected)


def test_repeated_supports_count_as_one_support() -> None:
    support, weights = torch.tensor([[4, 9, 1], [0, 19, 7]]), torch.tensor([[0.5, 0.3, 0.2], [0.8, 0.1, 0.1]])
    twice, halves = support.repeat_interleave(2, -1), weights.repeat_interleave(2, -1) / 2
    assert (copies(twice) == 2).all() and (copies(support) == 1).all()
    torch.testing.assert_close(relative_entropy(halves, twice), relative_entropy(weights, support))
    expected = -(weights * weights.log()).sum(-1) / np.log(3)
    torch.testing.assert_close(relative_entropy(weights, support), expected)
    torch.testing.assert_close(
        to_the_next(halves, twice), to_the_next(weights, support).repeat_interleave(2, -1) / 2
    )


@pytest.mark.parametrize("shots", [2, 5, 10])
def test_nearest_weights_are_as_near_as_convex_weights_can_be(shots: int) -> None:
    support, means = normal(40, shots, 16), 0.3 * normal(40, 16, seed=1)
    weights = nearest_weights(support, means)
    assert (weights >= 0).all()
    torch.testing.assert_close(weights.sum(-1), torch.ones(40))

    def distance(weights: np.ndarray) -> np.ndarray:
        return np.square((weights[..., None] * support.numpy()).sum(-2) - means.numpy()).sum(-1)

    # To weigh well and to sum to one, by non-negative least squares.
    best = np.stack(
        [
            nnls(np.vstack([s.T, 1e3 * np.ones(shots)]), np.append(m, 1e3))[0]
            for s, m in zip(support.double().numpy(), means.double().numpy(), strict=True)
        ]
    )
    lost = (distance(weights.numpy()) - distance(best)).mean()
    assert lost < 0.01 * (distance(np.full((40, shots), 1 / shots)) - distance(best)).mean()


@torch.no_grad()
def test_other_task_weights_are_uniform_or_times_the_size_of_the_task() -> None:
    sizes, prototypes = (5, 2, 2, 1), normal(10, WIDTH)
    learnt = task_attention()(prototypes, sizes, None)
    counts = torch.tensor(sizes).repeat_interleave(torch.tensor(sizes))
    torch.testing.assert_close(task_attention(weights="sizes")(prototypes, sizes, None), learnt * counts)
    for form in ("stopped", "flipped"):
        assert torch.equal(task_attention(weights=form)(prototypes, sizes, None), learnt)
    uniform = vmap(lambda p: UniformTaskAttention()(p, sizes, None))(normal(3, 10, WIDTH))
    torch.testing.assert_close(uniform, (0.25 / counts).expand(3, -1))
    assert not list(UniformTaskAttention().parameters())
