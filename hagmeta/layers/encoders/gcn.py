"""The graph convolutional network of Kipf and Welling (2017)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from hagmeta.layers.encoders.base import Embedding, Encoder, LayerSettings
from hagmeta.packs.randomness import Rate
from hagmeta.sparse.graph import AGGREGATED, ClassMeans, Graph, View
from hagmeta.sparse.products import matmul


class GraphConvolution(nn.Module):
    """The parameters of one layer."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(nn.init.xavier_uniform_(torch.empty(inputs, outputs)))
        self.bias = nn.Parameter(torch.zeros(outputs))


class HiddenConvolution(GraphConvolution):
    """The first layer, which is applied to the inputs, with ReLU and dropout."""

    def forward(
        self, graph: Graph, view: View, rate: float | Rate, key: Tensor | None, around: Tensor | None = None
    ) -> Tensor:
        return graph.input_layer(self.weight, self.bias, view, rate, key, around)


class LastConvolution(GraphConvolution):
    """The second layer, which is linear."""

    def forward(self, graph: Graph, view: View, hidden: Tensor) -> ConvolvedEmbedding:
        return ConvolvedEmbedding(self, graph, view, hidden)


@dataclass(frozen=True)
class ConvolvedEmbedding(Embedding):
    """The output of the second layer. A linear layer commutes with sums over nodes, so it runs after them."""

    layer: LastConvolution
    graph: Graph
    view: View
    hidden: Tensor  # (nodes, hidden)

    def all(self) -> Tensor:
        return self.graph.aggregate(self.hidden @ self.layer.weight, self.view) + self.layer.bias

    def at(self, nodes: Tensor) -> Tensor:
        if len(nodes) >= self.graph.num_nodes:  # selecting this many rows would copy every edge
            return self.all()[nodes]
        aggregated = self.graph.aggregate_at(self.hidden, self.view, nodes)
        return aggregated @ self.layer.weight + self.layer.bias

    def means(self, class_means: ClassMeans) -> Tensor:
        return matmul(class_means.aggregated, self.hidden) @ self.layer.weight + self.layer.bias


@dataclass(frozen=True)
class FewEmbedded(Embedding):
    """Embeddings that are requested for few nodes. Each request runs the first layer around its nodes."""

    encoder: GCN
    graph: Graph
    view: View
    key: Tensor | None

    def all(self) -> Tensor:
        return self.encoder(self.graph, self.view, self.key).all()

    def at(self, nodes: Tensor) -> Tensor:
        encoder = self.encoder
        hidden = encoder.first(self.graph, self.view, encoder.dropout, self.key, nodes)
        return encoder.embedding(self.graph, self.view, hidden).at(nodes)

    def means(self, class_means: ClassMeans) -> Tensor:
        return self.encoder(self.graph, self.view, self.key).means(class_means)


class GCN(Encoder):
    """Two graph convolutions with ReLU between them, as in the authors' code.

    The paper also has a ReLU after the second.
    """

    propagates = AGGREGATED

    def __init__(self, num_features: int, settings: LayerSettings, *, twice: bool = False) -> None:
        super().__init__(num_features, settings, twice=twice)
        self.first = HiddenConvolution(num_features, settings.hidden)
        self.second = LastConvolution(settings.hidden, settings.embedding)
        self.dropout = Rate(settings.dropout)

    def propagate(self, graph: Graph, view: View, key: Tensor | None) -> Tensor:
        hidden: Tensor = self.first(graph, view, self.dropout, key)
        return hidden

    def embedding(self, graph: Graph, view: View, propagated: Tensor) -> Embedding:
        embedding: Embedding = self.second(graph, view, propagated)
        return embedding

    def at_few_nodes(self, graph: Graph, view: View, key: Tensor | None) -> Embedding:
        """Return the same embeddings, for callers that request a few nodes. In training, they do so once."""
        some = key is not None and graph.computes_parts
        return FewEmbedded(self, graph, view, key) if some else self(graph, view, key)
