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

    def __init__(self, num_features: int, settings: LayerSettings) -> None:
        super().__init__()
        self.convolutions = GCN(num_features, settings)
        self.last = nn.Linear(settings.embedding, 1)

    def forward(self, graph: Graph, view: View, key: Tensor | None) -> NodeScores:
        return NodeScores(self.convolutions(graph, view, key), self.last, view)


@dataclass(frozen=True)
class NodeScores:
    """Scores to be read at support nodes."""

    embedding: Embedding
    last: nn.Linear
    view: View

    def weights(self, support: Tensor) -> Tensor:
        """Weights (classes, shots) that sum to one within a class; the paper sums over all supports."""
        nodes = support.flatten()
        score = self.last(F.relu(self.embedding.at(nodes))).squeeze(-1)
        score = torch.sigmoid(score * self.view.log_degree[nodes])  # Eq. 9, with epsilon = 1
        return score.view_as(support).softmax(-1)  # Eq. 10
