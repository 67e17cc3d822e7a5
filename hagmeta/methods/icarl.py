"""iCaRL (Rebuffi et al., CVPR 2017): incremental classifier and representation learning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch.nn.functional as F
from torch import Tensor

from hagmeta.common.settings import HIGHEST_WEIGHT, setting
from hagmeta.common.traits import MethodTraits
from hagmeta.methods.base import MethodSettings, Shared, Sizes, Task
from hagmeta.methods.growing import GrowingMethod
from hagmeta.nn.encoder import Embedding
from hagmeta.nn.prototypes import after_known, support_and_queries
from hagmeta.sparse.graph import View

Arrays = list[np.ndarray]  # one a class, a row a candidate


@dataclass(frozen=True, kw_only=True)
class ICarlSettings(MethodSettings):
    """How what was known is kept."""

    distillation: float = setting(1.0, "weight of the distillation loss", at_least=0, at_most=HIGHEST_WEIGHT)
    temperature: float = setting(2.0, "temperature of the distillation", above=0, at_most=HIGHEST_WEIGHT)


class ICarl(GrowingMethod):
    """Exemplars by herding, cross-entropy with distillation, and the nearest mean of exemplars.

    What had to be decided on graphs and with K labels:
    - the base and novel-train classes are learnt at once, from all their train nodes; then `memory` of each
      are kept, where iCaRL divides one memory among ever more classes: here K labels a class are the limit;
    - a linear classifier under softmax is trained, with Hinton's distillation at a temperature, where
      the publication has a logistic unit a class; it only shapes the encoder: exemplars' means answer;
    - means and queries are compared at unit length, and means taken before that, not after.
    Labels: no more exemplars are kept of a class than `rehearsal` allows. With none nothing is replayed, a
    session distils on its own supports, and a class's mean is that of its train nodes or supports when its
    session ended.
    Under `released` a class is known by all its nodes instead of exemplars, and the one step a session starts
    from the very model that is distilled, so that distillation only steadies dropout.
    """

    own_settings = ICarlSettings
    traits: ClassVar = MethodTraits(
        title="iCaRL",
        citation="Sylvestre-Alvise Rebuffi, Alexander Kolesnikov, Georg Sperl and Christoph H. Lampert."
        " iCaRL: Incremental Classifier and Representation Learning. CVPR 2017.",
    )

    def __init__(self, settings: ICarlSettings, sizes: Sizes, seed: int) -> None:
        super().__init__(settings, sizes, seed)
        self.distillation, self.temperature = settings.distillation, settings.temperature

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
        (before,) = task.recalled
        forgotten = distillation_loss(logits[:, : before.shape[1]], before, self.temperature)
        return F.cross_entropy(logits, target) + self.distillation * forgotten, answers

    def recall(self, shared: Shared, view: View, task: Task) -> tuple[Tensor, ...]:
        """Logits (queries, old classes) of the model as it was before the session."""
        embedded = self.encode(shared, view, None).at(task.query)
        return (self.head(embedded, task.classes[: -shared.task_sizes[-1]]),)

    @classmethod
    def select(cls, settings: ICarlSettings, embeddings: Arrays, logits: Arrays, size: int) -> Arrays:
        return [herding(nodes, size) for nodes in embeddings]

    def _nearest_mean(self, shared: Shared, embedding: Embedding, task: Task) -> tuple[Tensor, Tensor]:
        """Cosines (queries, classes) to the classes' means, and the queries' embeddings."""
        support, query = support_and_queries(embedding, task.support, task.query)
        means = after_known(support.mean(-2), embedding, shared.class_means, task.averaged, task.kept)
        return F.normalize(query, dim=-1) @ F.normalize(means, dim=-1).mT, query


def distillation_loss(logits: Tensor, before: Tensor, temperature: float) -> Tensor:
    """How far answers (nodes, classes) went from what they were, both softened by the temperature."""
    now, then = (values.div(temperature).log_softmax(-1) for values in (logits, before))
    return temperature**2 * (then.exp() * (then - now)).sum(-1).mean()


def herding(nodes: np.ndarray, size: int) -> np.ndarray:
    """Positions among ``nodes`` (nodes, width): each brings the mean of the chosen nearest to that of all."""
    mean, total = nodes.mean(0), np.zeros(nodes.shape[1])
    chosen: list[int] = []
    for count in range(1, min(size, len(nodes)) + 1):
        distance = np.linalg.norm(mean - (total + nodes) / count, axis=1)
        distance[chosen] = np.inf
        chosen.append(int(distance.argmin()))
        total = total + nodes[chosen[-1]]
    return np.array(chosen)
