"""Label spreading, compared with scikit-learn's."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.semi_supervised import LabelSpreading
from torch.func import vmap

from hagmeta.methods.transductive.label_spreading import spread
from tests.hagmeta.layers.test_smoothing import graph_of, random_pack

CLASSES = 4


@pytest.mark.parametrize("share", [0.2, 0.9, 0.99])
def test_scores_are_those_of_scikit_learn_on_the_visible_graph(share: float) -> None:
    edges, visible, *_ = random_pack()
    graph, sources = graph_of(edges, 30), torch.ones(3, 30, 1)
    known = np.stack([np.flatnonzero(seen)[:8] for seen in visible])
    labels = torch.zeros(3, 30, CLASSES)
    for seed, nodes in enumerate(known):
        labels[seed, nodes, torch.arange(8) % CLASSES] = 0.5  # columns sum to 1

    def one(view: tuple[torch.Tensor, ...], given: torch.Tensor, sent: torch.Tensor) -> torch.Tensor:
        return spread(graph, view, given, share, sent)  # type: ignore[arg-type]

    found = vmap(one)(graph.view(visible), labels, sources)
    for seed, seen in enumerate(visible):
        affinity = graph.loops.toarray() * np.outer(seen, seen)
        np.fill_diagonal(affinity, 0)
        target = np.full(30, -1)
        target[known[seed]] = np.arange(8) % CLASSES
        model = LabelSpreading(kernel=lambda a, b, w=affinity: w, alpha=share, max_iter=100_000, tol=1e-12)
        model.fit(np.arange(30.0)[:, None], target)
        reached = found[seed].sum(-1).numpy() > 1e-6  # the others get NaN from scikit-learn
        assert reached.sum() > 15
        shares = found[seed] / found[seed].sum(-1, keepdim=True)
        expected = model.label_distributions_[reached]
        np.testing.assert_allclose(shares[reached], expected, rtol=0, atol=2e-5)


def test_nodes_that_are_no_sources_receive_but_do_not_send() -> None:
    graph = graph_of(np.array([[0, 1], [1, 2]]), 3)
    view = type(graph.view(np.ones((1, 3), bool)))(
        *(part[0] for part in graph.view(np.ones((1, 3), bool))[:3])
    )
    labels = torch.tensor([[1.0], [0.0], [0.0]])
    for middle in (0.0, 1.0):
        sources = torch.tensor([[1.0], [middle], [1.0]])
        found = spread(graph, view, labels, 0.5, sources)
        assert found[1] > 0 and (found[2] > 0) == bool(middle)
