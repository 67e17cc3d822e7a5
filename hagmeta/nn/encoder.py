"""The graph encoders: two layers from features to embeddings, dropout between them.

An encoder returns an `Embedding`, which computes what is asked of it: a training step needs a few hundred
nodes and the means of some classes, not every node of the graph.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hagmeta.config import RunConfig
from hagmeta.packs.randomness import dropout
from hagmeta.sparse.graph import ClassMeans, Graph, View
from hagmeta.sparse.products import attend, matmul, row_maximum


class Embedding(ABC):
    """Embeddings of a graph's nodes."""

    @abstractmethod
    def all(self) -> Tensor:
        """Of every node: (nodes, width)."""

    @abstractmethod
    def at(self, nodes: Tensor) -> Tensor:
        """Of some nodes: (nodes, width)."""

    @abstractmethod
    def means(self, class_means: ClassMeans) -> Tensor:
        """Averages over the nodes that classes are known by: (classes, width)."""


class GraphConvolution(nn.Module):
    """One layer of Kipf and Welling (2017)."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(nn.init.xavier_uniform_(torch.empty(inputs, outputs)))
        self.bias = nn.Parameter(torch.zeros(outputs))


class HiddenConvolution(GraphConvolution):
    """The first layer, over the graph's own features, with ReLU and dropout."""

    def forward(self, graph: Graph, view: View, rate: float, key: Tensor | None) -> Tensor:
        return graph.hidden_layer(matmul(graph.features, self.weight), self.bias, view, rate, key)


class LastConvolution(GraphConvolution):
    """The second layer, linear."""

    def forward(self, graph: Graph, view: View, hidden: Tensor) -> ConvolvedEmbedding:
        return ConvolvedEmbedding(self, graph, view, hidden)


@dataclass(frozen=True)
class ConvolvedEmbedding(Embedding):
    """A linear layer commutes with sums over nodes, and runs after them."""

    layer: LastConvolution
    graph: Graph
    view: View
    hidden: Tensor  # (nodes, hidden)

    def all(self) -> Tensor:
        return self.graph.aggregate(self.hidden @ self.layer.weight, self.view) + self.layer.bias

    def at(self, nodes: Tensor) -> Tensor:
        aggregated = self.graph.aggregate_at(self.hidden, self.view, nodes)
        return aggregated @ self.layer.weight + self.layer.bias

    def means(self, class_means: ClassMeans) -> Tensor:
        return matmul(class_means.aggregated, self.hidden) @ self.layer.weight + self.layer.bias


class Encoder(nn.Module, ABC):
    """What runs over every node, and after it what is asked for."""

    @abstractmethod
    def propagate(self, graph: Graph, view: View, key: Tensor | None) -> Tensor:
        """A row a node: (nodes, columns). It stays the same while view, key and parameters do."""

    @abstractmethod
    def embedding(self, graph: Graph, view: View, propagated: Tensor) -> Embedding:
        """The embeddings that such rows stand for."""

    def forward(self, graph: Graph, view: View, key: Tensor | None) -> Embedding:
        return self.embedding(graph, view, self.propagate(graph, view, key))


class GCN(Encoder):
    """Two graph convolutions, ReLU between them (the authors' code; the paper names one after, too)."""

    def __init__(self, num_features: int, config: RunConfig) -> None:
        super().__init__()
        self.first = HiddenConvolution(num_features, config.hidden)
        self.second = LastConvolution(config.hidden, config.embedding)
        self.dropout = config.dropout

    def propagate(self, graph: Graph, view: View, key: Tensor | None) -> Tensor:
        hidden: Tensor = self.first(graph, view, self.dropout, key)
        return hidden

    def embedding(self, graph: Graph, view: View, propagated: Tensor) -> Embedding:
        embedding: Embedding = self.second(graph, view, propagated)
        return embedding


class GraphAttention(nn.Module):
    """One layer of Velickovic et al. (2018), attention among visible neighbours; heads side by side."""

    def __init__(self, inputs: int, outputs: int, heads: int, twice: bool = False) -> None:
        super().__init__()
        self.shape = (heads, outputs // heads)
        self.twice = twice  # it is differentiated twice
        self.weight = nn.Parameter(nn.init.xavier_uniform_(torch.empty(inputs, outputs)))
        self.source = nn.Parameter(nn.init.xavier_uniform_(torch.empty(self.shape)))
        self.target = nn.Parameter(nn.init.xavier_uniform_(torch.empty(self.shape)))
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, graph: Graph, view: View, hidden: Tensor | None = None) -> Tensor:
        mapped = matmul(graph.features, self.weight) if hidden is None else hidden @ self.weight
        by_head = mapped.unflatten(-1, self.shape)
        source, target = ((by_head * weight).sum(-1) for weight in (self.source, self.target))
        if graph.attends_in_one_pass(mapped.shape[-1], self.shape[0]) and not self.twice:
            return attend(graph.adjacency, view.visible, mapped, source, target) + self.bias
        edges = graph.edges
        score = F.leaky_relu(
            matmul(edges.out_of.transposed, source) + matmul(edges.into.transposed, target),
            negative_slope=0.2,
        )  # (edges, heads)
        visible = view.visible.unsqueeze(-1)
        seen = matmul(edges.out_of.transposed, visible) * matmul(edges.into.transposed, visible)
        score = torch.where(seen > 0, score, -torch.inf)
        # A softmax is the same after any shift; by each target's largest score, none overflows or vanishes.
        largest = row_maximum(edges.into, score.detach())
        largest = torch.where(largest.isfinite(), largest, 0)
        weight = torch.exp(score - matmul(edges.into.transposed, largest))
        total = matmul(edges.into, weight).clamp(min=1e-12)  # (nodes, heads)
        message = matmul(edges.out_of.transposed, mapped).unflatten(-1, self.shape)
        gathered = matmul(edges.into, (weight.unsqueeze(-1) * message).flatten(-2))
        attended = gathered.unflatten(-1, self.shape) / total.unsqueeze(-1)
        return attended.flatten(-2) * visible + self.bias


@dataclass(frozen=True)
class AttendedEmbedding(Embedding):
    """Attention runs for every node, whatever is asked of it."""

    embeddings: Tensor  # (nodes, width)

    def all(self) -> Tensor:
        return self.embeddings

    def at(self, nodes: Tensor) -> Tensor:
        return self.embeddings[nodes]

    def means(self, class_means: ClassMeans) -> Tensor:
        return matmul(class_means.plain, self.embeddings)


class GAT(Encoder):
    """Two layers of graph attention."""

    def __init__(self, num_features: int, config: RunConfig) -> None:
        super().__init__()
        twice = config.applies("first_order") and not config.first_order
        self.first = GraphAttention(num_features, config.hidden, config.heads, twice)
        self.second = GraphAttention(config.hidden, config.embedding, 1, twice)
        self.dropout = config.dropout

    def propagate(self, graph: Graph, view: View, key: Tensor | None) -> Tensor:
        hidden = dropout(F.elu(self.first(graph, view)), self.dropout, key)
        attended: Tensor = self.second(graph, view, hidden)
        return attended

    def embedding(self, graph: Graph, view: View, propagated: Tensor) -> Embedding:
        return AttendedEmbedding(propagated)


def make_encoder(num_features: int, config: RunConfig) -> Encoder:
    """The configured encoder."""
    kinds: dict[str, type[GCN] | type[GAT]] = {"gcn": GCN, "gat": GAT}
    return kinds[config.encoder](num_features, config)
