"""CEC (Zhang et al., CVPR 2021): continually evolved classifiers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor

from hagmeta.common.settings.domains import HIGHEST_WEIGHT, Number
from hagmeta.common.settings.setting import setting
from hagmeta.common.traits import MethodTraits
from hagmeta.layers.attention.classifier_attention import ClassifierAttention
from hagmeta.layers.encoders.base import Embedding
from hagmeta.layers.prototypes import after_known, support_and_queries
from hagmeta.methods.base import COMMON, MethodSettings, SessionLearning, Shared, Sizes, Task
from hagmeta.methods.prototypes.base import FrozenEncoder
from hagmeta.packs.randomness import seeded
from hagmeta.sparse.graph import View


@dataclass(frozen=True, kw_only=True)
class CecSettings(MethodSettings):
    """Settings of CEC."""

    cosine_scale: float = setting(
        16.0,
        "multiply the classifier's cosines by this factor",
        Number(at_most=HIGHEST_WEIGHT, above=0),
        scope="method",
    )


class Cec(FrozenEncoder):
    """A frozen encoder, and graph attention that adapts all classifier vectors to each other.

    We made these choices to adapt CEC to graphs:

    - Episodes are those of GPIL. CEC creates pseudo-novel classes by rotating images of base classes; here
      the novel-train classes take that role.
    - The vector of a class is the mean of its labelled nodes, scaled to unit length. Attention runs over the
      classes only, as in the text of the paper. Its code also includes the query.
    - The frozen encoder has no dropout. The attention has dropout.

    Sessions take no gradient steps. New vectors are added, and attention adapts all of them again. Vectors of
    earlier classes are means over the labels that `rehearsal` allows. With `rehearsal: none` they stay as
    computed in their session, before attention. Under `released` the attention takes that protocol's step on
    the queries.
    """

    own_settings = CecSettings
    differs: ClassVar = (*COMMON, "cosine_scale")
    traits: ClassVar = MethodTraits(
        title="CEC",
        citation="Chi Zhang, Nan Song, Guosheng Lin, Yun Zheng, Pan Pan and Yinghui Xu. Few-Shot Incremental"
        " Learning with Continually Evolved Classifiers. CVPR 2021.",
    )
    session_learning = SessionLearning.NONE
    cosine_scale: Tensor

    def __init__(self, settings: CecSettings, sizes: Sizes, seed: int) -> None:
        super().__init__(settings, sizes, seed)
        self.evolution = seeded(
            seed, "init/cec", lambda: ClassifierAttention(settings.embedding, settings.dropout)
        )

    def classify(self, shared: Shared, encoded: Embedding, task: Task) -> Tensor:
        return self._cosines(shared, encoded, task, None)

    def loss(
        self, shared: Shared, view: View, task: Task, target: Tensor, key: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        logits = self._cosines(shared, self.encode(shared, view, key), task, key)
        return F.cross_entropy(logits, target), logits

    def _cosines(self, shared: Shared, embedding: Embedding, task: Task, key: Tensor | None) -> Tensor:
        """Return scaled cosines (queries, classes) to the adapted vectors."""
        support, query = support_and_queries(embedding, task.support, task.query)
        means = after_known(
            support.mean(-2), embedding, shared.class_means, task.averaged, task.class_statistics
        )
        vectors = self.evolution(F.normalize(means, dim=-1), key)
        return self.cosine_scale * F.normalize(query, dim=-1) @ F.normalize(vectors, dim=-1).mT
