"""The graph attention network of Velickovic et al. (2018)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hagmeta.common.errors import UserError
from hagmeta.common.settings.domains import Whole
from hagmeta.common.settings.setting import BY_METHOD, setting
from hagmeta.layers.encoders.base import Embedding, Encoder, EveryNode, LayerSettings
from hagmeta.packs.randomness import Rate, dropout
from hagmeta.sparse.graph import Graph, View
from hagmeta.sparse.products import attend, matmul, row_maximum


@dataclass(frozen=True, kw_only=True)
class GatSettings(LayerSettings):
    """Settings of the layers, including the attention heads of the first."""

    heads: int = setting(
        4,
        "attention heads in the first layer of the GAT encoder; must divide hidden",
        Whole(at_least=1, at_most=4096),
        scope="method",
    )


class GraphAttention(nn.Module):
    """One layer of attention over visible neighbours. The outputs of the heads are concatenated."""

    def __init__(self, inputs: int, outputs: int, heads: int, twice: bool = False) -> None:
        super().__init__()
        self.shape = (heads, outputs // heads)
        self.twice = twice  # the fused kernel has no second derivative
        self.weight = nn.Parameter(nn.init.xavier_uniform_(torch.empty(inputs, outputs)))
        self.source = nn.Parameter(nn.init.xavier_uniform_(torch.empty(self.shape)))
        self.target = nn.Parameter(nn.init.xavier_uniform_(torch.empty(self.shape)))
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, graph: Graph, view: View, hidden: Tensor | None = None) -> Tensor:
        mapped = graph.mapped(self.weight, view) if hidden is None else hidden @ self.weight
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
        # Softmax does not change under a shift. Subtracting the largest score of each target avoids overflow.
        largest = row_maximum(edges.into, score.detach())
        largest = torch.where(largest.isfinite(), largest, 0)
        weight = torch.exp(score - matmul(edges.into.transposed, largest))
        total = matmul(edges.into, weight).clamp(min=1e-12)  # (nodes, heads)
        message = matmul(edges.out_of.transposed, mapped).unflatten(-1, self.shape)
        gathered = matmul(edges.into, (weight.unsqueeze(-1) * message).flatten(-2))
        attended = gathered.unflatten(-1, self.shape) / total.unsqueeze(-1)
        return attended.flatten(-2) * visible + self.bias


class GAT(Encoder):
    """Two layers of graph attention, with ELU and dropout between them."""

    def __init__(self, num_features: int, settings: GatSettings, *, twice: bool = False) -> None:
        super().__init__(num_features, settings, twice=twice)
        self.first = GraphAttention(num_features, settings.hidden, settings.heads, twice)
        self.second = GraphAttention(settings.hidden, settings.embedding, 1, twice)
        self.dropout = Rate(settings.dropout)

    @classmethod
    def check(cls, settings: GatSettings) -> None:
        if settings.hidden is not BY_METHOD and settings.hidden % settings.heads:
            raise UserError(f"hidden is {settings.hidden}; expected a multiple of heads ({settings.heads}).")

    def propagate(self, graph: Graph, view: View, key: Tensor | None) -> Tensor:
        hidden = dropout(F.elu(self.first(graph, view)), self.dropout, key)
        attended: Tensor = self.second(graph, view, hidden)
        return attended

    def embedding(self, graph: Graph, view: View, propagated: Tensor) -> Embedding:
        return EveryNode(propagated)
