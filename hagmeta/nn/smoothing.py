"""Scores of all nodes, smoothed over what can be seen of the graph."""

from __future__ import annotations

from torch import Tensor

from hagmeta.sparse.graph import Graph, View

ROUNDS = 5


def smoothed_scores(
    graph: Graph, view: View, scores: Tensor, labelled: Tensor, position: Tensor, share: float
) -> Tensor:
    """F <- share S F + (1 - share) F_0, from ``scores`` F_0 (nodes, classes), with S of the encoders.

    In F_0 and after every round a labelled node has one at its class's position and zero elsewhere.
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
