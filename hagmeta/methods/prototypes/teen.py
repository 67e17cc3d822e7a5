"""TEEN (Wang et al., NeurIPS 2023): training-free calibration of new prototypes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from hagmeta.common.settings.domains import HIGHEST_WEIGHT, Number
from hagmeta.common.settings.setting import BY_METHOD, setting
from hagmeta.common.traits import MethodTraits
from hagmeta.layers.encoders.base import Embedding
from hagmeta.layers.head import cosine_logits
from hagmeta.layers.prototypes import calibrated, support_and_queries
from hagmeta.methods.base import COMMON, MetaTraining, MethodSettings, SessionLearning, Shared, Task
from hagmeta.methods.prototypes.base import FrozenEncoder
from hagmeta.sparse.graph import View


@dataclass(frozen=True, kw_only=True)
class TeenSettings(MethodSettings):
    """Settings of TEEN."""

    calibration: float | None = setting(
        BY_METHOD,
        "move the prototypes of new classes towards known classes by this share (default: 0.5 for teen, 0.1"
        " for fscil-calibration)",
        Number(at_least=0, at_most=1),
        scope="method",
    )
    calibration_scale: float = setting(
        16.0,
        "multiply cosines by this factor in the softmax that weights the known classes",
        Number(at_most=HIGHEST_WEIGHT, above=0),
        scope="method",
    )


class Teen(FrozenEncoder):
    """A frozen encoder and cosine prototypes. Those of new classes move towards similar known classes.

    K supports give a poor mean, and queries of new classes are often mistaken for known classes. TEEN mixes
    each new prototype with an average of the prototypes of known classes, weighted by cosine similarity.

    We made these choices to adapt TEEN to graphs:

    - The encoder is pre-trained with `classifier: cosine`, on base and novel-train classes.
    - All classes known by many labels are base classes of the calibration: under `strict` those known at the
      start. Under `released` these are all earlier classes, because each is known by all its nodes.
    - With `rehearsal: none`, prototypes stay as computed in their session, after calibration. With other
      values, all are computed again on the graph of the current session.
    - `calibration` is 0.5 by default, as in the public code. Its scripts set 0.5 for one dataset and 0.1 for
      another.

    Labels: a class is known by its train nodes or supports, as far as `rehearsal` allows. Sessions take no
    gradient steps, under `released` as well. The public code stops pre-training by test accuracy. Here
    validation nodes decide.
    """

    own_settings = TeenSettings
    differs: ClassVar = (*COMMON, "calibration", "calibration_scale")
    defaults: ClassVar = {"classifier": "cosine", "calibration": 0.5}
    traits: ClassVar = MethodTraits(
        title="TEEN",
        citation="Qi-Wei Wang, Da-Wei Zhou, Yi-Kai Zhang, De-Chuan Zhan and Han-Jia Ye. Few-Shot"
        " Class-Incremental Learning via Training-Free Prototype Calibration. NeurIPS 2023.",
    )
    meta_training = MetaTraining.NONE
    session_learning = SessionLearning.NONE
    calibration: Tensor
    calibration_scale: Tensor

    def classify(self, shared: Shared, encoded: Embedding, task: Task) -> Tensor:
        support, query = support_and_queries(encoded, task.support, task.query)
        return cosine_logits(query, torch.cat(self._prototypes(shared, encoded, task, support)))

    def class_statistics(self, shared: Shared, view: View, task: Task) -> tuple[Tensor, ...]:
        embedding = self.encode(shared, view, None)
        support, _ = support_and_queries(embedding, task.support, task.query[:0])
        return self._prototypes(shared, embedding, task, support)

    def _prototypes(
        self, shared: Shared, embedding: Embedding, task: Task, support: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return prototypes (classes, width): those of base classes, and those of later classes.

        `support` has the embeddings (classes, shots, width) of the supports.
        """
        means = support.mean(-2)
        base, later = task.class_statistics or (embedding.means(shared.class_means)[task.averaged], means[:0])
        return base, torch.cat([later, calibrated(means, base, self.calibration, self.calibration_scale)])
