"""A multilayer perceptron that ignores the edges."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from hagmeta.layers.encoders.base import Embedding, Encoder, LayerSettings
from hagmeta.packs.randomness import Rate, dropout_scale, relu_dropout
from hagmeta.sparse.graph import ClassMeans, Graph, View
from hagmeta.sparse.products import matmul


@dataclass(frozen=True)
class LinearEmbedding(Embedding):
    """The output of a linear layer over hidden rows."""

    layer: nn.Linear
    hidden: Tensor  # (nodes, hidden)

    def all(self) -> Tensor:
        return self._of(self.hidden)

    def at(self, nodes: Tensor) -> Tensor:
        return self._of(self.hidden[nodes])

    def means(self, class_means: ClassMeans) -> Tensor:
        return self._of(matmul(class_means.direct, self.hidden))

    def _of(self, rows: Tensor) -> Tensor:
        embedded: Tensor = self.layer(rows)
        return embedded


class MLP(Encoder):
    """Two layers with the widths of the graph encoders, but without edges, as a control."""

    def __init__(self, num_features: int, settings: LayerSettings, *, twice: bool = False) -> None:
        super().__init__(num_features, settings, twice=twice)
        self.weight = nn.Parameter(nn.init.xavier_uniform_(torch.empty(num_features, settings.hidden)))
        self.bias = nn.Parameter(torch.zeros(settings.hidden))
        self.second = nn.Linear(settings.hidden, settings.embedding)
        self.dropout = Rate(settings.dropout)

    def propagate(self, graph: Graph, view: View, key: Tensor | None) -> Tensor:
        scale = dropout_scale(self.dropout, key)
        # Factors come second: a product has the memory layout of its first operand.
        mapped = graph.mapped(self.weight * scale, view) * view.visible.unsqueeze(-1)
        return relu_dropout(mapped, self.bias * scale, self.dropout, key)

    def embedding(self, graph: Graph, view: View, propagated: Tensor) -> Embedding:
        return LinearEmbedding(self.second, propagated)
