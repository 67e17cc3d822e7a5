from __future__ import annotations

from itertools import pairwise, product

import networkx as nx
import numpy as np
import pytest
import torch

from hagmeta.datasets.base import Dataset
from hagmeta.layers.walks import backward_factors, pagerank, walks_to
from hagmeta.sparse.graph import Graph, View

CPU = torch.device("cpu")
EDGES = np.array([[0, 1], [0, 2], [1, 2], [2, 3], [3, 4], [3, 6], [4, 6], [0, 5]])
NODES = 8  # node 7 has no edges
HIDDEN = 6


@pytest.fixture
def graph() -> Graph:
    features = np.ones((NODES, 1), dtype=np.float32)
    return Graph(Dataset("tiny", EDGES, np.zeros(NODES, dtype=np.int64), features, ("one",)), CPU)


@pytest.fixture
def view(graph: Graph) -> View:
    visible, scale, log_degree = (part[0] for part in graph.view(np.arange(NODES)[None] != HIDDEN)[:3])
    return View(visible, scale, log_degree)


@pytest.fixture
def known() -> nx.Graph:
    known = nx.Graph(EDGES.tolist())
    known.add_node(7)
    known.remove_node(HIDDEN)
    return known


def test_pagerank_is_that_of_networkx_on_the_visible_graph(graph: Graph, view: View, known: nx.Graph) -> None:
    expected = nx.pagerank(known, alpha=0.85, tol=1e-10, max_iter=1000)
    found = pagerank(graph, view)
    assert found[HIDDEN] == 0
    np.testing.assert_allclose([found[node] for node in expected], list(expected.values()), atol=1e-5)


def probability(known: nx.Graph, path: tuple[int, ...]) -> float:
    """The probability that a walk takes this path, or 0 if there is no such path."""
    edges = pairwise(path)
    return float(
        np.prod([1 / known.degree[one] if known.has_edge(one, other) else 0 for one, other in edges])
    )


def test_walks_are_the_sum_over_all_paths_in_both_directions(
    graph: Graph, view: View, known: nx.Graph
) -> None:
    ends = torch.tensor([2, 5, 7])
    start, end = backward_factors(view)
    for length, forward in enumerate(walks_to(graph, view, ends, 3), 1):
        backward = forward * start.unsqueeze(-1) * end[ends]
        for (place, last), first in product(enumerate(ends.tolist()), known):
            between = list(product(known, repeat=length - 1))
            there = sum(probability(known, (first, *nodes, last)) for nodes in between)
            back = sum(probability(known, (last, *nodes, first)) for nodes in between)
            assert float(forward[first, place]) == pytest.approx(there, abs=1e-6)
            assert float(backward[first, place]) == pytest.approx(back, abs=1e-6)
        assert not forward[HIDDEN].any()
