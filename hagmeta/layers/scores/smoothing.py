"""Smooth the scores of all nodes over the visible graph."""

from __future__ import annotations

from torch import Tensor

from hagmeta.sparse.graph import Graph, View

ROUNDS = 5
# Mean of the largest probability of a node before smoothing. Chosen on validation nodes of seven graphs.
CONFIDENCE = 0.7


def smoothed_scores(
    graph: Graph, view: View, scores: Tensor, labelled: Tensor, position: Tensor, share: float | Tensor
) -> Tensor:
    """Return smoothed scores (nodes, classes) after some rounds of ``F <- share S F + (1 - share) F_0``.

    ``F_0`` are the given `scores`, and ``S`` is the normalised adjacency of the encoders. In ``F_0`` and
    after every round, the scores of `labelled` nodes are set to 1 at their class `position`, and 0 elsewhere.
    Unlabelled nodes that may not be learnt from contribute nothing to their neighbours.
    """
    hold(scores, labelled, position)
    own, sources = scores * (1 - share), sources_of(view, labelled)
    for _ in range(ROUNDS):
        scores = graph.aggregate(scores if sources is None else scores * sources, view, share).add_(own)
        hold(scores, labelled, position)
    return scores


def sources_of(view: View, labelled: Tensor) -> Tensor | None:
    """Return 1 for nodes whose scores their neighbours use, otherwise 0: (nodes, 1); None means all."""
    if not view.pool:
        return None
    sources = view.learnable.clone()
    sources[labelled] = 1.0
    return sources.unsqueeze(-1)


def hold(scores: Tensor, labelled: Tensor, position: Tensor) -> None:
    """Set the scores of `labelled` nodes to 1 at their class `position`, and 0 elsewhere, in place."""
    scores[labelled] = 0.0
    scores[labelled, position] = 1.0
