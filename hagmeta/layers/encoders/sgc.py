"""The simplified graph convolution of Wu et al. (2019)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from hagmeta.layers.encoders.base import Embedding, Encoder, LayerSettings
from hagmeta.sparse.graph import AGGREGATED, ClassMeans, Graph, View
from hagmeta.sparse.products import matmul


class SGC(Encoder):
    """Propagate the inputs twice, then apply one linear map: a GCN without a non-linearity.

    The map runs first here. The result is the same, and far fewer columns are propagated. As in the paper,
    there is no hidden layer and no dropout, so the setting ``hidden`` has no effect on it.
    """

    propagates = AGGREGATED

    def __init__(self, num_features: int, settings: LayerSettings, *, twice: bool = False) -> None:
        super().__init__(num_features, settings, twice=twice)
        self.weight = nn.Parameter(nn.init.xavier_uniform_(torch.empty(num_features, settings.embedding)))
        self.bias = nn.Parameter(torch.zeros(settings.embedding))

    @classmethod
    def first_width(cls, settings: Any) -> int:
        width: int = settings.embedding
        return width

    def propagate(self, graph: Graph, view: View, key: Tensor | None) -> Tensor:
        return graph.aggregated_inputs(self.weight, view)

    def embedding(self, graph: Graph, view: View, propagated: Tensor) -> Embedding:
        return PropagatedEmbedding(graph, view, propagated, self.bias)


@dataclass(frozen=True)
class PropagatedEmbedding(Embedding):
    """Rows after the first propagation. The second one runs only for the requested nodes."""

    graph: Graph
    view: View
    rows: Tensor  # (nodes, width)
    bias: Tensor  # (width,)

    def all(self) -> Tensor:
        return self.graph.aggregate(self.rows, self.view) + self.bias

    def at(self, nodes: Tensor) -> Tensor:
        if len(nodes) >= self.graph.num_nodes:  # selecting this many rows would copy every edge
            return self.all()[nodes]
        return self.graph.aggregate_at(self.rows, self.view, nodes) + self.bias

    def means(self, class_means: ClassMeans) -> Tensor:
        return matmul(class_means.aggregated, self.rows) + self.bias
