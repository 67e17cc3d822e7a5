"""Geometer (Lu et al., KDD 2022): prototypes with a geometry."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from hagmeta.common.settings.domains import HIGHEST_WEIGHT, Number
from hagmeta.common.settings.setting import setting
from hagmeta.common.traits import MethodTraits
from hagmeta.layers.attention.prototype_attention import PrototypeAttention
from hagmeta.layers.encoders.base import Embedding
from hagmeta.layers.losses import balanced_cross_entropy
from hagmeta.layers.prototypes import distance_logits, support_and_queries, weighted_prototypes
from hagmeta.methods.base import COMMON, Method, MethodSettings, Shared, Sizes, Task
from hagmeta.methods.classifiers.distillation import distillation_loss
from hagmeta.packs.randomness import seeded
from hagmeta.packs.values import like
from hagmeta.sparse.graph import View

PROXIMITY = 1.5  # weight of the cross-entropy in sessions


@dataclass(frozen=True, kw_only=True)
class GeometerSettings(MethodSettings):
    """Settings of Geometer: the weights of its losses."""

    base_uniformity: float = setting(
        0.1,
        "weight of the uniformity loss in meta-training",
        Number(at_least=0, at_most=HIGHEST_WEIGHT),
        scope="method",
    )
    uniformity: float = setting(
        1.0,
        "weight of the uniformity loss in sessions",
        Number(at_least=0, at_most=HIGHEST_WEIGHT),
        scope="method",
    )
    separability: float = setting(
        2.0,
        "weight of the loss that keeps new prototypes away from old ones",
        Number(at_least=0, at_most=HIGHEST_WEIGHT),
        scope="method",
    )
    teacher: float = setting(
        2.0,
        "weight of the distillation of the model before the session",
        Number(at_least=0, at_most=HIGHEST_WEIGHT),
        scope="method",
    )


class Geometer(Method):
    """Attention prototypes, with losses for their proximity, uniformity and separability.

    A prototype is the mean of the supports, weighted by their degrees. It then attends to itself and to the
    supports with two heads. Geometer is few-shot and class-incremental, but it has no novel-train classes.
    We made these choices to adapt it:

    - Episodes are those of GPIL. The paper plays episodes of all base classes, with 1 to 19 supports per
      class. GPIL also asks for all classes, and its novel-train classes have K supports, as in sessions.
    - Classes with many labels have the plain mean over these, which attends to itself only.
    - The attention has a residual connection that starts at zero. The pre-trained encoder thus starts with
      degree-weighted means. A degree is the number of visible neighbours plus one.
    - The encoder is the common one. Set `encoder: gat` for the encoder of the paper.
    - In sessions, all classes of a step have the same weight in the cross-entropy. This takes the place of
      the biased sampling in the paper.
    - The teacher is the model before the steps of a session. It classifies the step's queries among the old
      classes, and its temperature is 1.
    - Both parts have the common learning rates. The paper fine-tunes the encoder at a tenth of the
      attention's rate.

    Labels: sessions read their supports, and earlier labels as `rehearsal` allows. With `rehearsal: none`
    earlier prototypes stay as their session left them. Under `released` a session has one step, which starts
    at the teacher, so distillation only reduces the noise of dropout.

    The published code differs from the paper. Its teacher prefers distant classes, because the sign of the
    distances is missing. Dropout is on in tests, the "accuracy" is macro precision, and each session reports
    its best test score. We do none of this.
    """

    own_settings = GeometerSettings
    differs: ClassVar = (*COMMON, "base_uniformity", "uniformity", "separability", "teacher")
    traits: ClassVar = MethodTraits(
        title="Geometer",
        citation="Bin Lu, Xiaoying Gan, Lina Yang, Weinan Zhang, Luoyi Fu and Xinbing Wang. Geometer: Graph"
        " Few-Shot Class-Incremental Learning via Prototype Representation. KDD 2022.",
    )
    base_uniformity: Tensor
    uniformity: Tensor
    separability: Tensor
    teacher: Tensor

    def __init__(self, settings: GeometerSettings, sizes: Sizes, seed: int) -> None:
        super().__init__(settings, sizes, seed)
        self.attention = seeded(seed, "init/geometer", lambda: PrototypeAttention(settings.embedding))

    def encode(self, shared: Shared, view: View, key: Tensor | None) -> tuple[Embedding, Tensor]:
        """Return the embedding, and the degree of every node."""
        return self.encoder(shared.graph, view, key), view.log_degree.exp()

    def classify(self, shared: Shared, encoded: tuple[Embedding, Tensor], task: Task) -> Tensor:
        return self._answer(shared, encoded, task)[0]

    def loss(
        self, shared: Shared, view: View, task: Task, target: Tensor, key: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        logits, prototypes = self._answer(shared, self.encode(shared, view, key), task)
        crowded = uniformity_loss(prototypes)
        return F.cross_entropy(logits, target) + like(self.base_uniformity, crowded) * crowded, logits

    def session_loss(
        self, shared: Shared, view: View, task: Task, target: Tensor, key: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        embeddings, old_prototypes = view.session_statistics or self.session_statistics(shared, view, task)
        logits, prototypes = self._answer(shared, self.encode(shared, view, key), task)
        old = len(old_prototypes)
        before = distance_logits(embeddings[task.query], old_prototypes)
        crowded = uniformity_loss(prototypes)
        close = separability_loss(prototypes[old:], prototypes[:old])
        forgotten = distillation_loss(logits[:, :old], before, 1.0)
        loss = PROXIMITY * balanced_cross_entropy(logits, target)
        loss = loss + like(self.uniformity, crowded) * crowded + like(self.separability, close) * close
        return loss + like(self.teacher, forgotten) * forgotten, logits

    def session_statistics(self, shared: Shared, view: View, task: Task) -> tuple[Tensor, ...]:
        """Return the teacher: embeddings (nodes, width) and prototypes (old classes, width)."""
        encoded = self.encode(shared, view, None)
        _, prototypes = self._answer(shared, encoded, task)
        return encoded[0].all().detach(), prototypes[: -shared.task_sizes[-1]].detach()

    def class_statistics(self, shared: Shared, view: View, task: Task) -> tuple[Tensor, ...]:
        return (self._answer(shared, self.encode(shared, view, None), task)[1],)

    def _answer(self, shared: Shared, encoded: tuple[Embedding, Tensor], task: Task) -> tuple[Tensor, Tensor]:
        """Return logits (queries, classes), and the prototypes (classes, width) behind them."""
        embedding, degree = encoded
        support, query = support_and_queries(embedding, task.support, task.query)
        prototypes = [*task.class_statistics]
        if len(task.averaged):
            means = embedding.means(shared.class_means)[task.averaged]
            prototypes.append(self.attention(means, means[:, None][:, :0], task.averaged[:, None][:, :0]))
        if len(support):
            weights = degree[task.support]
            means = weighted_prototypes(support, weights / weights.sum(-1, keepdim=True))
            prototypes.append(self.attention(means, support, task.support))
        found = torch.cat(prototypes)
        return distance_logits(query, found), found


def uniformity_loss(prototypes: Tensor) -> Tensor:
    """Return the mean over classes of the largest cosine to another class, seen from the centre of all.

    `prototypes` is (classes, width).
    """
    directions = F.normalize(prototypes - prototypes.mean(0), dim=-1)
    itself = torch.eye(len(prototypes), device=prototypes.device)
    return (directions @ directions.mT - 3 * itself).amax(-1).mean()  # a cosine is at least -1


def separability_loss(new: Tensor, old: Tensor) -> Tensor:
    """Return the mean of exp(-squared distance) from `new` prototypes to the nearest `old` one."""
    distances = (new.unsqueeze(-2) - old).square().sum(-1)  # (new, old)
    return distances.amin(-1).neg().exp().mean()
