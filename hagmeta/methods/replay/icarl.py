"""iCaRL (Rebuffi et al., CVPR 2017): incremental classifier and representation learning."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import torch.nn.functional as F
from torch import Tensor

from hagmeta.common.traits import MethodTraits
from hagmeta.layers.encoders.base import Embedding
from hagmeta.layers.prototypes import after_known, support_and_queries
from hagmeta.methods.base import COMMON, Shared, Task
from hagmeta.methods.classifiers.base import GrowingMethod
from hagmeta.methods.classifiers.distillation import DistillationSettings, distillation_loss
from hagmeta.packs.values import like
from hagmeta.sparse.graph import View

Arrays = list[np.ndarray]  # one per class, with a row per candidate


class ICarl(GrowingMethod):
    """Exemplars chosen by herding, cross-entropy with distillation, and the nearest mean of exemplars.

    We made these choices to adapt iCaRL to graphs with K labels per class:

    - The base and novel-train classes are learnt together from all their train nodes. Then `memory` nodes per
      class are kept. iCaRL divides one memory among a growing number of classes; here K labels per class are
      the limit.
    - Training uses a linear softmax classifier with Hinton's distillation at a temperature. The paper has one
      logistic unit per class. The classifier only trains the encoder; exemplar means make the predictions.
    - Means and queries are compared at unit length. Means are computed before this scaling, not after it.

    Labels: the memory holds at most as many exemplars per class as `rehearsal` allows. With `rehearsal: none`
    nothing is replayed, and a session distils on its own supports. A class mean is then the mean of its train
    nodes or supports at the end of its session.

    Under `released` a class is known by all its nodes instead of exemplars. A session has one step, which
    starts at the model that is distilled, so distillation only reduces the noise of dropout.
    """

    own_settings = DistillationSettings
    differs: ClassVar = (*COMMON, "distillation", "temperature")
    traits: ClassVar = MethodTraits(
        title="iCaRL",
        citation="Sylvestre-Alvise Rebuffi, Alexander Kolesnikov, Georg Sperl and Christoph H. Lampert."
        " iCaRL: Incremental Classifier and Representation Learning. CVPR 2017.",
        revision=2,  # since 2, new rows are as long as trained ones, not twice the mean
    )

    distillation: Tensor
    temperature: Tensor

    def classify(self, shared: Shared, encoded: Embedding, task: Task) -> Tensor:
        return self._nearest_mean(shared, encoded, task)[0]

    def loss(
        self, shared: Shared, view: View, task: Task, target: Tensor, key: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        answers, embedded = self._nearest_mean(shared, self.encode(shared, view, key), task)
        return F.cross_entropy(self.head(embedded, task.classes), target), answers

    def session_loss(
        self, shared: Shared, view: View, task: Task, target: Tensor, key: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        answers, embedded = self._nearest_mean(shared, self.encode(shared, view, key), task)
        logits = self.head(embedded, task.classes)
        (before,) = task.before_steps
        forgotten = distillation_loss(logits[:, : before.shape[1]], before, self.temperature)
        return F.cross_entropy(logits, target) + like(self.distillation, forgotten) * forgotten, answers

    def before_steps(self, shared: Shared, view: View, task: Task) -> tuple[Tensor, ...]:
        """Return logits (queries, old classes) of the model before the session."""
        embedded = self.encode(shared, view, None).at(task.query)
        return (self.head(embedded, task.classes[: -shared.task_sizes[-1]]),)

    @classmethod
    def exemplars(
        cls, settings: DistillationSettings, embeddings: Arrays, logits: Arrays, size: int
    ) -> Arrays:
        return [herding(nodes, size) for nodes in embeddings]

    def _nearest_mean(self, shared: Shared, embedding: Embedding, task: Task) -> tuple[Tensor, Tensor]:
        """Return cosines (queries, classes) to the class means, and the embeddings of the queries."""
        support, query = support_and_queries(embedding, task.support, task.query)
        means = after_known(
            support.mean(-2), embedding, shared.class_means, task.averaged, task.class_statistics
        )
        return F.normalize(query, dim=-1) @ F.normalize(means, dim=-1).mT, query


def herding(nodes: np.ndarray, size: int) -> np.ndarray:
    """Return positions of up to `size` of `nodes` (nodes, width), chosen greedily.

    Each chosen node brings the mean of the chosen nodes as close as possible to the mean of all nodes.
    """
    mean, total = nodes.mean(0), np.zeros(nodes.shape[1])
    chosen: list[int] = []
    for count in range(1, min(size, len(nodes)) + 1):
        distance = np.linalg.norm(mean - (total + nodes) / count, axis=1)
        distance[chosen] = np.inf
        chosen.append(int(distance.argmin()))
        total = total + nodes[chosen[-1]]
    return np.array(chosen)
