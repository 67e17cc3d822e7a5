"""Smooth the scores of all nodes over the visible graph."""

from __future__ import annotations

from torch import Tensor

from hagmeta.sparse.graph import Graph, View

ROUNDS = 5


def smoothed_scores(
    graph: Graph, view: View, scores: Tensor, labelled: Tensor, position: Tensor, share: float | Tensor
) -> Tensor:
    """Return smoothed scores (nodes, classes) after some rounds of ``F <- share S F + (1 - share) F_0``.

    ``F_0`` are the given `scores`, and ``S`` is the normalised adjacency of the encoders. In ``F_0`` and
    after every round, the scores of `labelled` nodes are set to 1 at their class `position`, and 0 elsewhere.
    """
    _hold(scores, labelled, position)
    own = scores * (1 - share)
    for _ in range(ROUNDS):
        scores = graph.aggregate(scores, view, share).add_(own)
        _hold(scores, labelled, position)
    return scores


def _hold(scores: Tensor, labelled: Tensor, position: Tensor) -> None:
    scores[labelled] = 0.0
    scores[labelled, position] = 1.0
