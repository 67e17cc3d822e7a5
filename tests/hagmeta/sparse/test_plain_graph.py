"""Plain mode's graph beside the graph of a pack, which here holds one seed."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
import scipy.sparse
import torch
from torch import Tensor
from torch.func import grad, vmap
from torch.utils._pytree import tree_map

from hagmeta.datasets.base import Dataset
from hagmeta.packs.randomness import keys
from hagmeta.sparse.graph import ClassMeans, Graph, View
from hagmeta.sparse.plain import PlainGraph
from hagmeta.sparse.plain_matrix import PlainSparseMatrix
from hagmeta.sparse.products import matmul, row_maximum

NODES, FEATURES, CLASSES, WIDTH = 40, 6, 4, 5
CPU = torch.device("cpu")
on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
DEVICES = [CPU, pytest.param(torch.device("cuda"), marks=on_gpu)]


def some_dataset(dense: bool = False) -> Dataset:
    """Small, with a node that has no neighbours."""
    rng = np.random.default_rng(0)
    pairs = np.sort(rng.integers(NODES - 1, size=(90, 2)), axis=1)
    edges = np.unique(pairs[pairs[:, 0] != pairs[:, 1]], axis=0)
    features = rng.normal(size=(NODES, FEATURES)) * (rng.random((NODES, FEATURES)) < 0.5)
    features = features.astype(np.float32)
    kept = features if dense else scipy.sparse.csr_matrix(features)
    return Dataset("some", edges, np.arange(NODES) % CLASSES, kept, tuple("abcd"))


VISIBLE = (np.arange(NODES) % CLASSES != 3)[None]  # class 3 cannot be seen


class Seen(NamedTuple):
    """What a seed has of its own; in a pack, with an axis for it."""

    view: View
    rows: Tensor
    key: Tensor


def seen(graph: Graph) -> Seen:
    """That of a pack of one."""
    rows = torch.tensor([[5, 7, 5, 39, 0]])  # one twice, one that cannot be seen, the one without neighbours
    return Seen(graph.view(VISIBLE), rows.to(graph.device), keys([3], "test").to(graph.device))


def class_means(graph: Graph) -> ClassMeans:
    members = (np.arange(NODES) % CLASSES == np.arange(CLASSES)[:, None]) & VISIBLE
    shares = members / members.sum(1, keepdims=True).clip(min=1)
    return graph.class_means([scipy.sparse.csr_matrix(shares.astype(np.float32))], VISIBLE)


Operation = Callable[[Graph, ClassMeans, Seen, Tensor], Tensor]
OPERATIONS: dict[str, tuple[int, Operation]] = {  # with the rows of what they are given; 0: the edges
    "features": (FEATURES, lambda graph, means, seen, x: matmul(graph.features, x)),
    "aggregate": (NODES, lambda graph, means, seen, x: graph.aggregate(x, seen.view)),
    "aggregate by a factor": (NODES, lambda graph, means, seen, x: graph.aggregate(x, seen.view, 1.7)),
    "aggregate at": (NODES, lambda graph, means, seen, x: graph.aggregate_at(x, seen.view, seen.rows)),
    "neighbour means": (NODES, lambda graph, means, seen, x: graph.neighbour_means(x, seen.view)),
    "neighbour means at": (
        NODES,
        lambda graph, means, seen, x: graph.neighbour_means_at(x, seen.view, seen.rows),
    ),
    # The last row is the bias.
    "training": (
        NODES + 1,
        lambda g, means, seen, x: g.hidden_layer(x[:-1], x[-1], seen.view, 0.4, seen.key),
    ),
    "evaluation": (NODES + 1, lambda g, means, seen, x: g.hidden_layer(x[:-1], x[-1], seen.view, 0.4, None)),
    "no dropout": (
        NODES + 1,
        lambda g, means, seen, x: g.hidden_layer(x[:-1], x[-1], seen.view, 0, seen.key),
    ),
    "means": (NODES, lambda graph, means, seen, x: matmul(means.direct, x)),
    "means aggregated": (NODES, lambda graph, means, seen, x: matmul(means.aggregated, x)),
    "means neighbouring": (NODES, lambda graph, means, seen, x: matmul(means.neighbouring, x)),
    "from targets": (NODES, lambda graph, means, seen, x: matmul(graph.edges.into.transposed, x)),
    "from sources": (NODES, lambda graph, means, seen, x: matmul(graph.edges.out_of.transposed, x)),
    "into": (0, lambda graph, means, seen, x: matmul(graph.edges.into, x)),
    "out of": (0, lambda graph, means, seen, x: matmul(graph.edges.out_of, x)),
}


def values_for(graph: Graph, rows: int) -> Tensor:
    values = torch.randn(rows or graph.loops.nnz, WIDTH, generator=torch.Generator().manual_seed(0))
    return values.to(graph.device).requires_grad_()


def packed(operation: Operation, graph: Graph) -> Callable[[Tensor], Tensor]:
    """As a pack of one seed runs it, the axis beside the columns."""
    means = class_means(graph)
    # On a GPU they are not to be made in the midst of vmap.
    _ = means.direct, means.aggregated, means.neighbouring, graph.edges
    one = vmap(lambda seen, x: operation(graph, means, seen, x), in_dims=(0, 1))
    return lambda x: one(seen(graph), x.unsqueeze(1))[0]


def plain(operation: Operation, graph: Graph) -> Callable[[Tensor], Tensor]:
    means, alone = class_means(graph), tree_map(lambda tensor: tensor[0], seen(graph))
    return lambda x: operation(graph, means, alone, x)


def derivatives(function: Callable[[Tensor], Tensor], variable: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Value, gradient of the sum of its cubes, and the second derivative along that gradient."""
    value = function(variable)
    (gradient,) = torch.autograd.grad((value**3).sum(), variable, create_graph=True)
    (second,) = torch.autograd.grad(gradient.square().sum(), variable)
    return value.detach(), gradient.detach(), second


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", OPERATIONS)
def test_values_and_both_derivatives_are_those_of_the_packed_graph(name: str, device: torch.device) -> None:
    rows, operation = OPERATIONS[name]
    ours, theirs = PlainGraph(some_dataset(), device), Graph(some_dataset(), device)
    variable = values_for(ours, rows)
    pairs = zip(
        derivatives(plain(operation, ours), variable),
        derivatives(packed(operation, theirs), variable),
        strict=True,
    )
    for one, other in pairs:
        # Rounding of float32, which is 6e-8; the largest differences seen were 4e-7.
        assert float((one - other).norm() / other.norm()) < 2e-6


def test_gradients_taken_inside_a_function_are_those_taken_outside() -> None:
    # MAML's inner steps are such: torch.func.grad, and then backwards through it.
    graph = PlainGraph(some_dataset(), CPU)
    compute, variable = plain(OPERATIONS["aggregate at"][1], graph), values_for(graph, NODES)

    def energy(x: Tensor) -> Tensor:
        return (compute(x) ** 3).sum()

    (outside,) = torch.autograd.grad(energy(variable), variable, create_graph=True)
    inside = grad(energy)(variable)
    torch.testing.assert_close(inside, outside)
    (through_inside,) = torch.autograd.grad(inside.square().sum(), variable)
    (through_outside,) = torch.autograd.grad(outside.square().sum(), variable)
    torch.testing.assert_close(through_inside, through_outside)


@pytest.mark.parametrize("device", DEVICES)
def test_the_largest_of_each_row_is_exact_and_has_no_gradient(device: torch.device) -> None:
    ours, theirs = PlainGraph(some_dataset(), device), Graph(some_dataset(), device)
    values = values_for(ours, 0)
    largest = row_maximum(ours.edges.into, values)
    assert torch.equal(largest, row_maximum(theirs.edges.into, values.detach()))
    assert not largest.requires_grad


def test_a_row_without_entries_sums_to_zero_and_has_no_largest() -> None:
    matrix = PlainSparseMatrix(scipy.sparse.csr_matrix(np.array([[0, 0], [0, 2]], dtype=np.float32)), CPU)
    values = torch.tensor([[3.0], [5.0]])
    assert matrix.product(values).tolist() == [[0], [10]]
    assert matrix.row_maximum(values).tolist() == [[-np.inf], [5]]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dense", [False, True])
def test_views_and_features_are_those_of_the_packed_graph(dense: bool, device: torch.device) -> None:
    ours, theirs = PlainGraph(some_dataset(dense), device), Graph(some_dataset(dense), device)
    for one, other in zip(ours.view(VISIBLE)[:3], theirs.view(VISIBLE)[:3], strict=True):
        torch.testing.assert_close(one, other)
    identity = torch.eye(FEATURES, device=device)
    torch.testing.assert_close(matmul(ours.features, identity), matmul(theirs.features, identity))
