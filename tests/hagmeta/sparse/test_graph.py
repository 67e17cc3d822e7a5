from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
import torch
from torch import Tensor
from torch.func import vmap
from torch.utils._pytree import tree_leaves, tree_map
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.utils import subgraph, to_dense_adj, to_undirected

from hagmeta.datasets.base import Dataset
from hagmeta.sparse.graph import Graph
from hagmeta.sparse.matrices import DenseMatrix, SparseMatrix
from hagmeta.sparse.plain import PlainGraph
from hagmeta.sparse.products import matmul

CPU = torch.device("cpu")
NODES, FEATURES = 40, 6
LONELY = 39  # a node without neighbours


def tiny(dense_features: bool = False) -> Dataset:
    rng = np.random.default_rng(0)
    pairs = np.sort(rng.integers(LONELY, size=(90, 2)), axis=1)
    edges = np.unique(pairs[pairs[:, 0] != pairs[:, 1]], axis=0)
    features = rng.normal(size=(NODES, FEATURES)).astype(np.float32)
    labels = np.arange(NODES) % 4
    kept = features if dense_features else scipy.sparse.csr_matrix(features)
    return Dataset("tiny", edges, labels, kept, ("a", "b", "c", "d"))


def visibility(dataset: Dataset) -> np.ndarray:
    """Two seeds' views: class 0, then class 3 cannot be seen."""
    return np.stack([dataset.labels != 0, dataset.labels != 3])


def normalised_visible_subgraph(dataset: Dataset, visible: np.ndarray) -> Tensor:
    """The adjacency of what is visible, loops and all, as PyG normalises it; zero elsewhere."""
    edges = to_undirected(torch.from_numpy(dataset.edges.T), num_nodes=NODES)
    nodes = torch.from_numpy(np.flatnonzero(visible))
    inside, _ = subgraph(nodes, edges, relabel_nodes=True, num_nodes=NODES)
    index, weight = gcn_norm(inside, num_nodes=len(nodes), add_self_loops=True)
    result = torch.zeros(NODES, NODES)
    result[nodes[:, None], nodes] = to_dense_adj(index, edge_attr=weight, max_num_nodes=len(nodes))[0]
    return result


def test_a_view_normalises_the_visible_subgraph_as_pyg_does() -> None:
    dataset = tiny()
    graph, visible = Graph(dataset, CPU), visibility(dataset)
    view = graph.view(visible)
    hidden = torch.randn(2, NODES, 5, generator=torch.Generator().manual_seed(0))
    ours = vmap(graph.aggregate)(hidden, view)
    for index in range(2):
        expected = normalised_visible_subgraph(dataset, visible[index]) @ hidden[index]
        torch.testing.assert_close(ours[index], expected)


def test_a_view_counts_visible_neighbours_only() -> None:
    dataset = tiny()
    visible = visibility(dataset)
    view = Graph(dataset, CPU).view(visible)
    for index, seen in enumerate(visible):
        both = dataset.edges[seen[dataset.edges].all(axis=1)]
        neighbours = np.bincount(both.ravel(), minlength=NODES)[seen]
        assert torch.equal(view.visible[index], torch.from_numpy(seen).float())
        scale, log_degree = view.scale[index].numpy(), view.log_degree[index].numpy()
        np.testing.assert_allclose(scale[seen], 1 / np.sqrt(neighbours + 1), rtol=1e-6)
        np.testing.assert_allclose(log_degree[seen], np.log(neighbours + 1), rtol=1e-6, atol=1e-7)
        assert (scale[~seen] == 0).all()


@pytest.mark.parametrize("kind", [Graph, PlainGraph])
def test_degrees_of_the_whole_graph_leave_what_is_visible_as_it_was_normalised(kind: type[Graph]) -> None:
    dataset = tiny()
    graph, visible = kind(dataset, CPU, "whole"), visibility(dataset)[:1]
    whole = normalised_visible_subgraph(dataset, np.ones(NODES, dtype=bool)).numpy()
    masked = torch.from_numpy(whole * np.outer(visible, visible))
    view = tree_map(lambda tensor: tensor[0], graph.view(visible))
    hidden = torch.randn(NODES, 5, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(graph.aggregate(hidden, view), masked @ hidden)
    members = (np.eye(4, dtype=np.float32)[:, dataset.labels] * visible) / 10
    means = graph.class_means([scipy.sparse.csr_matrix(members)], visible)
    expected = torch.from_numpy(members) @ masked @ hidden
    if kind is Graph:  # of a pack
        (aggregated,) = vmap(lambda h: matmul(means.aggregated, h))(hidden[None])
    else:
        aggregated = matmul(means.aggregated, hidden)
    torch.testing.assert_close(aggregated, expected)
    assert not torch.allclose(view.scale, Graph(dataset, CPU).view(visible).scale[0])


def test_the_logarithm_of_the_whole_graph_s_degree_counts_no_loop_and_is_finite() -> None:
    dataset = tiny()
    neighbours = np.bincount(dataset.edges.ravel(), minlength=NODES)
    assert neighbours[LONELY] == 0
    expected = np.log(np.maximum(neighbours, 1))
    np.testing.assert_allclose(Graph(dataset, CPU).log_degree, expected, rtol=1e-6)


def test_a_node_without_visible_neighbours_keeps_its_own_embedding() -> None:
    graph = Graph(tiny(), CPU)
    hidden = torch.randn(NODES, 5, generator=torch.Generator().manual_seed(0))
    alone = np.arange(NODES) == 5  # it has neighbours, but none of them can be seen
    view = graph.view(np.stack([alone, np.ones(NODES, dtype=bool), np.zeros(NODES, dtype=bool)]))
    for tensor in tree_leaves(view):
        assert tensor.isfinite().all()
    seen = vmap(graph.aggregate)(hidden.expand(3, -1, -1), view)
    assert torch.equal(seen[0, 5], hidden[5])
    assert torch.equal(seen[1, LONELY], hidden[LONELY])
    assert seen[0].count_nonzero() == 5 and seen[2].count_nonzero() == 0


@pytest.mark.parametrize("dense", [False, True])
def test_features_keep_their_kind_and_values(dense: bool) -> None:
    graph = Graph(tiny(dense), CPU)
    assert isinstance(graph.features, DenseMatrix if dense else SparseMatrix)
    expected = torch.from_numpy(tiny(dense_features=True).features)
    torch.testing.assert_close(matmul(graph.features, torch.eye(FEATURES)), expected)


def test_class_means_before_and_after_aggregation() -> None:
    dataset = tiny()
    graph, visible = Graph(dataset, CPU), visibility(dataset)
    members = []
    for seen in visible:
        mean = (dataset.labels == np.arange(4)[:, None]) & seen
        mean = mean / mean.sum(axis=1, keepdims=True).clip(min=1)
        members.append(scipy.sparse.csr_matrix(mean.astype(np.float32)))
    means = graph.class_means(members, visible)
    hidden = torch.randn(2, NODES, 5, generator=torch.Generator().manual_seed(0))
    plain = vmap(lambda h: matmul(means.direct, h))(hidden)
    aggregated = vmap(lambda h: matmul(means.aggregated, h))(hidden)
    for index, seen in enumerate(visible):
        average = torch.from_numpy(members[index].toarray())
        torch.testing.assert_close(plain[index], average @ hidden[index])
        expected = average @ normalised_visible_subgraph(dataset, seen) @ hidden[index]
        torch.testing.assert_close(aggregated[index], expected)


def test_every_edge_enters_one_node_and_leaves_another() -> None:
    dataset = tiny()
    edges = Graph(dataset, CPU).edges
    numbers = torch.arange(NODES, dtype=torch.float32).unsqueeze(-1)
    target = matmul(edges.into.transposed, numbers).squeeze(-1).long().tolist()
    source = matmul(edges.out_of.transposed, numbers).squeeze(-1).long().tolist()
    loops = [(node, node) for node in range(NODES)]
    pairs = [tuple(pair) for pair in dataset.edges.tolist()]
    expected = sorted([*loops, *pairs, *((b, a) for a, b in pairs)])
    assert sorted(zip(source, target, strict=True)) == expected
