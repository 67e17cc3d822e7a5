"""Base classes of methods with a growing linear classifier."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from hagmeta.layers.encoders.base import Embedding
from hagmeta.layers.head import LinearHead
from hagmeta.layers.prototypes import means_of_new
from hagmeta.methods.base import MetaTraining, Method, MethodSettings, SessionLearning, Shared, Sizes, Task
from hagmeta.packs.pack import Parameters
from hagmeta.sparse.graph import View

IGNORED = -100  # the target of nodes that `F.cross_entropy` leaves out


class GrowingClassifier(Method):
    """An encoder with a linear classifier. The row of a new class starts in the direction of its mean.

    The steps of a session learn the new supports.
    """

    meta_training = MetaTraining.SUPERVISED
    session_learning = SessionLearning.SUPPORTS

    def __init__(self, settings: MethodSettings, sizes: Sizes, seed: int) -> None:
        super().__init__(settings, sizes, seed)
        self.head = LinearHead(sizes.classes, settings.embedding)

    def classify(self, shared: Shared, encoded: Embedding, task: Task) -> Tensor:
        logits: Tensor = self.head(encoded.at(task.query), task.classes)
        return logits

    def add_classes(self, shared: Shared, new: int, view: View, task: Task) -> Parameters:
        embedding = self.encode(shared, view, None)
        means = means_of_new(embedding, shared.class_means, task.averaged, task.support, new)
        weight, bias = self.head.started(task.classes[-new:], means, task.classes[:-new])
        return {"head.weight": weight, "head.bias": bias}


class GrowingMethod(GrowingClassifier):
    """A growing classifier that also learns stored nodes of earlier classes again."""

    session_learning = SessionLearning.REPLAY

    def describe(self, shared: Shared, view: View, task: Task) -> tuple[Tensor, Tensor]:
        embedded = self.encode(shared, view, None).all()
        return embedded, self.head(embedded, task.classes)

    @classmethod
    @abstractmethod
    def exemplars(
        cls, settings: Any, embeddings: list[np.ndarray], logits: list[np.ndarray], size: int
    ) -> list[np.ndarray]:
        """Return the positions of the nodes to keep, as `Method.exemplars`."""


def loss_among_new(logits: Tensor, target: Tensor, new: int) -> Tensor:
    """Return the cross-entropy among the last `new` classes, over the nodes that belong to them.

    A single new class is learnt among all classes: alone it would have no loss.
    """
    first = logits.shape[1] - new
    start = first if new > 1 else 0
    return F.cross_entropy(logits[:, start:], torch.where(target < first, IGNORED, target - start))
