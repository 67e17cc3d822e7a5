"""Correct and smooth (Huang et al., ICLR 2021): spread the errors at labelled nodes, then the scores."""

from __future__ import annotations

import torch
from torch import Tensor

from hagmeta.layers.scores.smoothing import hold, sources_of
from hagmeta.sparse.graph import Graph, View

ROUNDS = 50  # of each part, as in the authors' scripts
LARGEST = 1000.0  # factor of errors; larger ones become 1, as in the authors' code


def corrected_scores(
    graph: Graph, view: View, scores: Tensor, labelled: Tensor, position: Tensor, share: float | Tensor
) -> Tensor:
    """Return corrected and smoothed scores (nodes, classes). The arguments are as for `smoothed_scores`.

    Both parts take 50 rounds of ``F <- share S F + (1 - share) F_0``. `S` is the normalised adjacency of the
    encoders, with self-loops.

    1. Correct: ``F_0`` is the error of the scores, 0 for unlabelled nodes. After the rounds, the error of
       each node is scaled to the mean size of the errors at `labelled` nodes, and added to its scores.
    2. Smooth: ``F_0`` are the corrected scores, with 1 at the class `position` of labelled nodes.
    """
    sources = sources_of(view, labelled)

    def spread(first: Tensor, least: float) -> Tensor:
        """Return `first` (nodes, classes) after all rounds. Values stay from `least` to 1."""
        own, now = first * (1 - share), first
        for _ in range(ROUNDS):
            sent = now if sources is None else now * sources
            now = (graph.aggregate(sent, view, share) + own).clamp(least, 1)
        return now

    true, given = torch.zeros_like(scores), torch.zeros_like(scores[:, :1])
    hold(true, labelled, position)
    given[labelled] = 1.0
    error = given * (true - scores)
    found = spread(error, -1.0)
    # `labelled` may have a node twice, so that seeds have equally many.
    factor = error.abs().sum() / given.sum() / found.abs().sum(-1, keepdim=True)
    corrected = scores + torch.where(factor <= LARGEST, factor, 1.0) * found
    return spread(torch.where(given > 0, true, corrected), 0.0)
