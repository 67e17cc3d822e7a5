"""Nearest class mean by cosine, as a plug-in: `cosine_mean.py:CosineMean` names it in every command."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

import hagmeta
from hagmeta.layers.prototypes import after_known, support_and_queries
from hagmeta.methods.base import Shared, Sizes, Task
from hagmeta.sparse.graph import View


@dataclass(frozen=True, kw_only=True)
class CosineMeanSettings(hagmeta.MethodSettings):
    """The settings of `CosineMean`."""

    cosine_start: float = hagmeta.setting(
        10.0, "scale of the logits before training", hagmeta.Number(above=0, at_most=1000), scope="method"
    )


class CosineMean(hagmeta.Method):
    """Compare nodes with class means by cosine, and learn the scale of the logits."""

    own_settings = CosineMeanSettings
    traits = hagmeta.MethodTraits(title="Cosine mean")

    def __init__(self, settings: CosineMeanSettings, sizes: Sizes, seed: int) -> None:
        super().__init__(settings, sizes, seed)  # makes self.encoder
        self.scale = torch.nn.Parameter(torch.tensor([settings.cosine_start]))

    def encode(self, shared: Shared, view: View, key: Tensor | None) -> Tensor:
        """Return the embedding of the visible graph; `key` draws dropout, None means evaluation."""
        return self.encoder(shared.graph, view, key)

    def classify(self, shared: Shared, embedding: Tensor, task: Task) -> Tensor:
        """Return logits (queries, classes)."""
        support, query = support_and_queries(embedding, task.support, task.query)
        means = after_known(
            support.mean(-2), embedding, shared.class_means, task.averaged, task.class_statistics
        )
        return self.scale * F.normalize(query, dim=-1) @ F.normalize(means, dim=-1).mT

    def loss(
        self, shared: Shared, view: View, task: Task, target: Tensor, key: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return the loss of a training step and its logits."""
        logits = self.classify(shared, self.encode(shared, view, key), task)
        return F.cross_entropy(logits, target), logits
