"""The graph encoders: two layers from features to embeddings, dropout between them."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hagmeta.config import RunConfig
from hagmeta.graph import Graph, View
from hagmeta.matrix import matmul
from hagmeta.randomness import dropout


class GraphConvolution(nn.Module):
    """One layer of Kipf and Welling (2017); the first one multiplies the graph's own features."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(nn.init.xavier_uniform_(torch.empty(inputs, outputs)))
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, graph: Graph, view: View, hidden: Tensor | None = None) -> Tensor:
        mapped = matmul(graph.features, self.weight) if hidden is None else hidden @ self.weight
        return graph.aggregate(mapped, view) + self.bias


class GCN(nn.Module):
    """Two graph convolutions, ReLU between them (the authors' code; the paper also names one after)."""

    def __init__(self, num_features: int, config: RunConfig) -> None:
        super().__init__()
        self.first = GraphConvolution(num_features, config.hidden)
        self.second = GraphConvolution(config.hidden, config.embedding)
        self.dropout = config.dropout

    def forward(self, graph: Graph, view: View, key: Tensor | None) -> Tensor:
        hidden = dropout(F.relu(self.first(graph, view)), self.dropout, key)
        embeddings: Tensor = self.second(graph, view, hidden)
        return embeddings  # (nodes, embedding)


class GraphAttention(nn.Module):
    """One layer of Velickovic et al. (2018), attention among visible neighbours; heads are averaged."""

    def __init__(self, inputs: int, outputs: int, heads: int) -> None:
        super().__init__()
        self.heads, self.outputs = heads, outputs
        self.weight = nn.Parameter(nn.init.xavier_uniform_(torch.empty(inputs, heads * outputs)))
        self.source = nn.Parameter(nn.init.xavier_uniform_(torch.empty(heads, outputs)))
        self.target = nn.Parameter(nn.init.xavier_uniform_(torch.empty(heads, outputs)))
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, graph: Graph, view: View, hidden: Tensor | None = None) -> Tensor:
        edges = graph.edges
        mapped = matmul(graph.features, self.weight) if hidden is None else hidden @ self.weight
        by_head = mapped.unflatten(-1, (self.heads, self.outputs))
        score = F.leaky_relu(
            matmul(edges.out_of.transposed, (by_head * self.source).sum(-1))
            + matmul(edges.into.transposed, (by_head * self.target).sum(-1)),
            negative_slope=0.2,
        )  # (edges, heads)
        seen = matmul(edges.out_of.transposed, view.visible.unsqueeze(-1))
        score = torch.where(seen > 0, score, -torch.inf)
        # Any shift leaves a softmax as it is; the largest visible score keeps the exponentials finite.
        weight = torch.exp(score - score.detach().amax(0))
        total = matmul(edges.into, weight).clamp(min=1e-12)  # (nodes, heads)
        message = matmul(edges.out_of.transposed, mapped).unflatten(-1, (self.heads, self.outputs))
        gathered = matmul(edges.into, (weight.unsqueeze(-1) * message).flatten(-2))
        attended = gathered.unflatten(-1, (self.heads, self.outputs)) / total.unsqueeze(-1)
        return attended.mean(-2) * view.visible.unsqueeze(-1) + self.bias


class GAT(nn.Module):
    """Two layers of graph attention."""

    def __init__(self, num_features: int, config: RunConfig) -> None:
        super().__init__()
        self.first = GraphAttention(num_features, config.hidden, config.heads)
        self.second = GraphAttention(config.hidden, config.embedding, heads=1)
        self.dropout = config.dropout

    def forward(self, graph: Graph, view: View, key: Tensor | None) -> Tensor:
        hidden = dropout(F.elu(self.first(graph, view)), self.dropout, key)
        embeddings: Tensor = self.second(graph, view, hidden)
        return embeddings  # (nodes, embedding)


def make_encoder(num_features: int, config: RunConfig) -> nn.Module:
    kinds = {"gcn": GCN, "gat": GAT}
    return kinds[config.encoder](num_features, config)
