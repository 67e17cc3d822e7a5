"""Node-level attention (NLA): how much each support node counts in its class's prototype."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hagmeta.config import RunConfig
from hagmeta.graph import Graph, View
from hagmeta.nn.encoder import GraphConvolution
from hagmeta.randomness import dropout


class NodeAttention(nn.Module):
    """Two graph convolutions and a linear layer score every node (Eqs. 7 and 8)."""

    def __init__(self, num_features: int, config: RunConfig) -> None:
        super().__init__()
        self.first = GraphConvolution(num_features, config.hidden)
        self.second = GraphConvolution(config.hidden, config.embedding)
        self.last = nn.Linear(config.embedding, 1)
        self.dropout = config.dropout

    def forward(self, graph: Graph, view: View, key: Tensor | None) -> Tensor:
        hidden = dropout(F.relu(self.first(graph, view)), self.dropout, key)
        hidden = F.relu(self.second(graph, view, hidden))
        score = self.last(hidden).squeeze(-1)
        return torch.sigmoid(score * view.log_degree)  # (nodes,) Eq. 9, with epsilon = 1


def attention_weights(scores: Tensor) -> Tensor:
    """Scores of the supports (classes, shots) to weights that sum to one within a class (Eq. 10)."""
    return scores.softmax(-1)
