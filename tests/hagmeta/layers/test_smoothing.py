from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import scipy.sparse
import torch
from torch import Tensor
from torch.func import vmap

from hagmeta.datasets.base import Dataset
from hagmeta.layers.scores.smoothing import ROUNDS, smoothed_scores
from hagmeta.sparse.graph import Graph, View
from hagmeta.sparse.plain import PlainGraph

CPU = torch.device("cpu")
RING = np.array([[0, 1], [1, 2], [2, 3], [0, 3], [0, 4], [1, 4], [2, 4]])  # of four; the fifth is not seen


def graph_of(edges: np.ndarray, nodes: int, kind: type[Graph] = Graph) -> Graph:
    features = scipy.sparse.csr_matrix(np.ones((nodes, 1), dtype=np.float32))
    return kind(Dataset("made", edges, np.zeros(nodes, dtype=np.int64), features, ("a",)), CPU)


def smoothed(
    graph: Graph, visible: np.ndarray, scores: Tensor, labelled: Tensor, position: Tensor, share: float
) -> Tensor:
    """Of a pack: a row a seed of each."""

    def one(*seed: Tensor) -> Tensor:
        return smoothed_scores(graph, *seed, share)  # type: ignore[arg-type]

    return vmap(one)(graph.view(visible), scores.clone(), labelled, position)


def smoothed_plainly(
    graph: Graph, visible: np.ndarray, scores: Tensor, labelled: Tensor, position: Tensor, share: float
) -> Tensor:
    """The same without packs."""
    view = View(*(part[0] for part in graph.view(visible)[:3]))
    return smoothed_scores(graph, view, scores[0].clone(), labelled[0], position[0], share).unsqueeze(0)


WAYS = [(Graph, smoothed), (PlainGraph, smoothed_plainly)]


@pytest.mark.parametrize(("kind", "way"), WAYS)
def test_five_rounds_on_five_nodes_are_those_worked_out_by_hand(
    kind: type[Graph], way: Callable[..., Tensor]
) -> None:
    # Of the ring each has three neighbours, itself included. Node 0 is known to be of the first class, the
    # others begin undecided: x of its two neighbours and y of the node opposite follow
    #   x <- (1 + x + y) / 6 + 1 / 4,   y <- (2 x + y) / 6 + 1 / 4,   from 1 / 2 each.
    visible = np.array([[True, True, True, True, False]])
    scores = torch.tensor([[0.5, 0.5]] * 4 + [[0.0, 1.0]]).unsqueeze(0)  # nobody hears of the fifth
    found = way(graph_of(RING, 5, kind), visible, scores, torch.tensor([[0]]), torch.tensor([[0]]), 0.5)
    x, y = 9455 / 15552, 8436 / 15552
    expected = torch.tensor([[1, 0], [x, 1 - x], [y, 1 - y], [x, 1 - x]])
    torch.testing.assert_close(found[0, :4], expected, rtol=0, atol=1e-6)
    assert ROUNDS == 5 and found[0, 0].tolist() == [1, 0]


def random_pack(nodes: int = 30, classes: int = 4, seeds: int = 3) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(0)
    edges = np.unique(np.sort(rng.integers(nodes, size=(60, 2)), axis=1), axis=0)
    edges = edges[edges[:, 0] != edges[:, 1]]
    visible = rng.random((seeds, nodes)) < 0.8
    scores = rng.dirichlet(np.ones(classes), size=(seeds, nodes)).astype(np.float32)
    labelled = np.stack([rng.choice(np.flatnonzero(seen), 5, replace=False) for seen in visible])
    return edges, visible, scores, labelled, rng.integers(classes, size=labelled.shape)


@pytest.mark.parametrize("share", [0.25, 0.75, 1.0])
def test_neighbours_count_by_the_encoders_normalisation_of_what_is_visible(share: float) -> None:
    edges, visible, scores, labelled, position = random_pack()
    graph = graph_of(edges, 30)
    found = smoothed(graph, visible, *map(torch.from_numpy, (scores, labelled, position)), share)
    for seed in range(3):
        seen = visible[seed].astype(float)
        adjacency = graph.loops.toarray() * np.outer(seen, seen)
        degree = np.maximum(adjacency.sum(1), 1)
        propagation = adjacency / np.sqrt(np.outer(degree, degree))
        truth = np.eye(4)[position[seed]]
        first = scores[seed].astype(float)
        first[labelled[seed]] = truth
        now = first
        for _ in range(5):
            now = share * propagation @ now + (1 - share) * first
            now[labelled[seed]] = truth
        np.testing.assert_allclose(found[seed][visible[seed]], now[visible[seed]], rtol=0, atol=1e-6)


def test_what_is_not_visible_changes_nothing() -> None:
    edges, visible, scores, labelled, position = random_pack()
    graph, rest = graph_of(edges, 30), [torch.from_numpy(part) for part in (labelled, position)]
    other = np.where(visible[..., None], scores, np.float32(0.3))
    found = [smoothed(graph, visible, torch.from_numpy(each), *rest, 0.5) for each in (scores, other)]
    seen = torch.from_numpy(visible)
    assert torch.equal(found[0][seen], found[1][seen])
    # One visible node among them is enough to be noticed.
    changed = torch.from_numpy(scores).clone()
    changed[0, np.setdiff1d(np.flatnonzero(visible[0]), labelled[0])[0]] = 0.3
    assert not torch.equal(smoothed(graph, visible, changed, *rest, 0.5)[0][seen[0]], found[0][0][seen[0]])
