"""AMM-GNN (Wang et al., CIKM 2020): Meta-GNN with inputs that are matched to each task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from hagmeta.common.settings.domains import HIGHEST_WEIGHT, Number
from hagmeta.common.settings.setting import setting
from hagmeta.common.traits import MethodTraits
from hagmeta.layers.encoders.base import Encoder
from hagmeta.layers.encoders.gcn import GCN
from hagmeta.methods.base import COMMON, Shared, Sizes, Task
from hagmeta.methods.meta_learning.meta_gnn import MetaGnn, MetaGnnSettings
from hagmeta.packs.sums import sum_rows
from hagmeta.packs.values import like
from hagmeta.sparse.graph import Graph, View

LEAST = 1e-6  # lengths below it count as this length in a cosine


@dataclass(frozen=True, kw_only=True)
class AmmGnnSettings(MetaGnnSettings):
    """Settings of AMM-GNN: those of Meta-GNN, and the attribute matching."""

    matching: float = setting(
        0.01,
        "multiply the scales and shifts of the inputs by this factor",
        Number(at_least=0, at_most=HIGHEST_WEIGHT),
        scope="method",
    )
    agreement: float = setting(
        0.01,
        "weight in the loss of how well two halves of the supports agree on scales and shifts",
        Number(at_least=0, at_most=HIGHEST_WEIGHT),
        scope="method",
    )


class MatchedGCN(GCN):
    """A GCN whose inputs can be scaled and shifted by column.

    The scale and the shift (inputs,) are in `View.session_statistics`. A scale of the inputs is a scale of
    the rows of the first weight. A shift adds the same row to all inputs after that weight. So the inputs
    stay as they are, and can be sparse.
    """

    def propagate(self, graph: Graph, view: View, key: Tensor | None) -> Tensor:
        if not view.session_statistics:
            return super().propagate(graph, view, key)
        (scale, shift), weight = view.session_statistics, self.first.weight
        mapped = graph.mapped(weight * scale.unsqueeze(-1), view, view.visible)
        shifted = mapped + sum_rows(weight * shift.unsqueeze(-1))
        return graph.hidden_layer(shifted, self.first.bias, view, self.dropout, key)


class AmmGnn(MetaGnn):
    """Meta-GNN on inputs X (1 + 0.01 alpha) + 0.01 beta, with a scale and a shift per input column.

    Alpha and beta are linear in the inputs of the task's supports. The same map serves all columns, so it
    also works for words that occur only in new classes. The authors published no code. We follow the
    re-implementation by the authors of TLP (Tan et al., LoG 2022), and the choices of Meta-GNN. We made these
    choices to adapt it:

    - Scales and shifts come from supports only. The re-implementation also draws queries.
    - The map has one weight for the mean of the supports. The re-implementation has ten weights for ten
      nodes, but their order is random, and our tasks have different numbers of supports.
    - Two halves of the supports are the two draws. The loss is reduced by the cosines between their scales
      and between their shifts, times `agreement`. Alpha and beta are the averages of both draws.
    - The shift is applied. The re-implementation computes it and does not use it.
    - The inner steps are those of Meta-GNN: 5 steps at 0.02, differentiated. The re-implementation takes 20
      first-order steps at 0.1. Inner steps do not change the map.
    - The encoder is a GCN, because the scale and the shift are applied in its first layer.
    - The map starts at 0, so training starts from Meta-GNN. A random shift would outweigh the few words of a
      node, because it enters thousands of columns.
    - A task without supports, such as session 0, gets the constant part of the map.

    With the published factor of 0.01, inputs change little, and results are close to those of Meta-GNN. Set
    `matching` to a larger value for a stronger effect.

    Labels are read as in Meta-GNN. With `rehearsal: none` the scale and the shift come from the supports of
    the session only, and stored means stay as computed with those of their session.
    """

    own_settings = AmmGnnSettings
    decides: ClassVar = {"encoder": "gcn"}
    differs: ClassVar = (*COMMON, "inner_rate", "matching", "agreement")
    traits: ClassVar = MethodTraits(
        title="AMM-GNN",
        citation="Ning Wang, Minnan Luo, Kaize Ding, Lingling Zhang, Jundong Li and Qinghua Zheng. Graph"
        " Few-shot Learning with Attribute Matching. CIKM 2020.",
    )
    matching: Tensor
    agreement: Tensor

    def __init__(self, settings: AmmGnnSettings, sizes: Sizes, seed: int) -> None:
        super().__init__(settings, sizes, seed)
        self.matcher = nn.Linear(1, 2)  # to alpha and beta
        for parameter in self.matcher.parameters():
            nn.init.zeros_(parameter)

    @classmethod
    def new_encoder(cls, settings: MetaGnnSettings, sizes: Sizes) -> Encoder:
        return MatchedGCN(sizes.features, settings, twice=not settings.first_order)

    @classmethod
    def propagations(cls, settings: Any) -> set[str]:
        return set()  # shifted inputs cannot be propagated once

    def classify(self, shared: Shared, encoded: View, task: Task) -> Tensor:
        return super().classify(shared, self._matched(encoded, self._drawn(shared, encoded, task)), task)

    def loss(
        self, shared: Shared, view: View, task: Task, target: Tensor, key: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return the loss on the queries after the inner steps, less the agreement, and the logits."""
        drawn = self._drawn(shared, view, task)
        loss, logits = super().loss(shared, self._matched(view, drawn), task, target, key)
        return loss - like(self.agreement, loss) * cosines(drawn).sum(), logits

    def class_statistics(self, shared: Shared, view: View, task: Task) -> tuple[Tensor, ...]:
        return super().class_statistics(shared, self._matched(view, self._drawn(shared, view, task)), task)

    def _drawn(self, shared: Shared, view: View, task: Task) -> Tensor:
        """Return alpha and beta (inputs, draws, 2) of both halves of the supports."""
        means = shared.graph.summed(half_shares(task.support.flatten(), shared.graph.num_nodes), view)
        drawn: Tensor = self.matcher(means.unsqueeze(-1))
        return drawn

    def _matched(self, view: View, drawn: Tensor) -> View:
        """Return `view` with the scale and the shift of the inputs."""
        alpha, beta = (drawn.mean(1) * self.matching).unbind(-1)
        return view._replace(session_statistics=(1 + alpha, beta))


def half_shares(support: Tensor, nodes: int) -> Tensor:
    """Return the weights (nodes, 2) that average over each half of `support` (supports,).

    A single support is in both halves. Without any, all weights are 0.
    """
    halves = (support[::2], support[1::2] if len(support) > 1 else support)
    none = torch.zeros(nodes, device=support.device)
    shares = [
        none.index_add(0, half, torch.full(half.shape, 1 / max(len(half), 1), device=half.device))
        for half in halves
    ]
    return torch.stack(shares, dim=-1)


def cosines(drawn: Tensor) -> Tensor:
    """Return the cosines (2,) between both draws of (inputs, draws, 2)."""
    first, second = drawn.unbind(1)
    product, *squares = (sum_rows(each) for each in (first * second, first.square(), second.square()))
    lengths = [square.clamp(min=LEAST**2).sqrt() for square in squares]
    return product / (lengths[0] * lengths[1])
