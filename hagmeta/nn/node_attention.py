"""Node-level attention (NLA): how much each support node counts in its class's prototype."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hagmeta.nn.encoder import Embedding, LayerSettings
from hagmeta.nn.gcn import GCN
from hagmeta.sparse.graph import Graph, View


class NodeAttention(nn.Module):
    """Two graph convolutions and a linear layer score every node (Eqs. 7 and 8)."""

    def __init__(
        self,
        num_features: int,
        settings: LayerSettings,
        *,
        degree: str = "visible",
        weights: str = "softmax",
    ) -> None:
        super().__init__()
        self.degree, self.weights = degree, weights
        self.convolutions = GCN(num_features, settings)
        self.last = nn.Linear(settings.embedding, 1)

    def forward(self, graph: Graph, view: View, key: Tensor | None) -> NodeScores:
        embedding = self.convolutions(graph, view, key)
        if self.degree == "whole":
            view = view._replace(log_degree=graph.log_degree)
        return NodeScores(embedding, self.last, view, shares=self.weights == "share")


@dataclass(frozen=True)
class NodeScores:
    """Scores to be read at support nodes."""

    embedding: Embedding
    last: nn.Linear
    view: View
    shares: bool = False  # weights are shares of a sum, not a softmax

    def weights(self, support: Tensor) -> Tensor:
        """Weights (classes, shots) that sum to one within a class; the paper sums over all supports."""
        nodes = support.flatten()
        score = self.last(F.relu(self.embedding.at(nodes))).squeeze(-1)
        score = torch.sigmoid(score * self.view.log_degree[nodes])  # Eq. 9, with epsilon = 1
        score = score.view_as(support)
        return score / score.sum(-1, keepdim=True) if self.shares else score.softmax(-1)  # Eq. 10
