"""GraphSAGE with mean aggregation (Hamilton et al., 2017)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hagmeta.layers.encoders.base import Embedding, Encoder, LayerSettings
from hagmeta.packs.randomness import Rate, dropout
from hagmeta.sparse.graph import NEIGHBOURING, ClassMeans, Graph, View
from hagmeta.sparse.products import fixed_product, matmul


class SageLayer(nn.Module):
    """One layer: a linear map of the node, plus a linear map of the mean of its visible neighbours."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        maps = [nn.init.xavier_uniform_(torch.empty(inputs, outputs)) for _ in range(2)]
        # Both maps in one matrix, so that one product applies both.
        self.weight = nn.Parameter(torch.cat(maps, dim=1))
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, graph: Graph, view: View, mapped: Tensor) -> Tensor:
        """Return outputs (nodes, outputs), given rows after both maps (nodes, 2 x outputs)."""
        own, neighbour = mapped.chunk(2, dim=-1)
        return own + graph.neighbour_means(neighbour, view) + self.bias

    def of_inputs(self, graph: Graph, view: View) -> Tensor:
        """Return the outputs (nodes, outputs) for the inputs of every node."""
        visible = view.visible.unsqueeze(-1)
        if NEIGHBOURING not in graph.fixed:
            return self(graph, view, graph.mapped(self.weight, view) * visible)
        own_weight, neighbour_weight = self.weight.chunk(2, dim=-1)
        means = fixed_product(graph.fixed[NEIGHBOURING], neighbour_weight)
        return graph.mapped(own_weight, view) * visible + means + self.bias

    def combine(self, own: Tensor, neighbours: Tensor) -> Tensor:
        """Return outputs (rows, outputs), given rows (rows, inputs) and the means of their neighbours."""
        own_weight, neighbour_weight = self.weight.chunk(2, dim=-1)
        return own @ own_weight + neighbours @ neighbour_weight + self.bias


class SAGE(Encoder):
    """Two layers, ReLU and dropout between them.

    The paper samples neighbours; here all visible ones take part. As in PyG, embeddings are not scaled to
    unit length. Means divide by the number of visible neighbours. Under the `released` protocol they divide
    by the number in the whole graph, since that protocol normalises a GCN that way.
    """

    propagates = NEIGHBOURING

    def __init__(self, num_features: int, settings: LayerSettings, *, twice: bool = False) -> None:
        super().__init__(num_features, settings, twice=twice)
        self.first = SageLayer(num_features, settings.hidden)
        self.second = SageLayer(settings.hidden, settings.embedding)
        self.dropout = Rate(settings.dropout)

    def propagate(self, graph: Graph, view: View, key: Tensor | None) -> Tensor:
        return dropout(F.relu(self.first.of_inputs(graph, view)), self.dropout, key)

    def embedding(self, graph: Graph, view: View, propagated: Tensor) -> Embedding:
        return SageEmbedding(self.second, graph, view, propagated)


@dataclass(frozen=True)
class SageEmbedding(Embedding):
    """The output of the second layer. It is linear, so it runs after sums, for the requested nodes only."""

    layer: SageLayer
    graph: Graph
    view: View
    hidden: Tensor  # (nodes, hidden)

    def all(self) -> Tensor:
        embedded: Tensor = self.layer(self.graph, self.view, self.hidden @ self.layer.weight)
        return embedded

    def at(self, nodes: Tensor) -> Tensor:
        if len(nodes) >= self.graph.num_nodes:  # selecting this many rows would copy every edge
            return self.all()[nodes]
        neighbours = self.graph.neighbour_means_at(self.hidden, self.view, nodes)
        return self.layer.combine(self.hidden[nodes], neighbours)

    def means(self, class_means: ClassMeans) -> Tensor:
        own = matmul(class_means.direct, self.hidden)
        return self.layer.combine(own, matmul(class_means.neighbouring, self.hidden))
