"""Meta-GNN (Zhou et al., CIKM 2019) with sessions that go on from one another."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import functional_call

from hagmeta.config import RunConfig
from hagmeta.graph import View
from hagmeta.methods.base import Scene, Sizes, Task
from hagmeta.methods.growing import started_head
from hagmeta.methods.meta_gnn import MetaGnn
from hagmeta.nn.head import LinearHead
from hagmeta.pack import State


class MetaGnnOnward(MetaGnn):
    """Meta-GNN that keeps what its inner steps change, under a linear classifier that grows.

    It is meta-trained as Meta-GNN is, each task with a classifier of its own. What is decided after that:
    - a class known by many starts at its mean, without inner steps: before the first session it answers as
      Meta-GNN does;
    - a session adds N rows, at the means of its supports as the encoder then embeds them, and takes its inner
      steps on those supports alone, among all classes met. The encoder and the rows of all classes move;
    - these steps drop nothing out, as those of Meta-GNN when it answers.
    Under `released` the inner steps of a session come first and are kept. That protocol's step on the queries
    starts where they end, and is kept too, where Meta-GNN's goes back through them.
    """

    grows = True

    def __init__(self, config: RunConfig, sizes: Sizes, seed: int) -> None:
        super().__init__(config, sizes, seed)
        self.head = LinearHead(sizes.classes, config.embedding)

    def classify(self, scene: Scene, encoded: View, task: Task) -> Tensor:
        return self._by_head(scene, encoded, task, None)

    def session_loss(
        self, scene: Scene, view: View, task: Task, target: Tensor, key: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        logits = self._by_head(scene, view, task, key)
        return F.cross_entropy(logits, target), logits

    def meet(self, scene: Scene, new: int, view: View, task: Task) -> State:
        started = started_head(self.head, self.encoder(scene.graph, view, None), scene, new, task)
        if not len(task.support):
            return started
        classes, shots = len(task.classes), task.support.shape[1]
        lesson = task._replace(query=task.support[-new:].flatten())
        target = torch.arange(classes - new, classes, device=lesson.query.device).repeat_interleave(shots)

        def support_loss(parameters: State, key: Tensor | None) -> Tensor:
            arguments = ("session_loss", scene, view, lesson, target, key)
            loss: Tensor = functional_call(self, parameters, arguments)[0]
            return loss

        return self._after_inner_steps(support_loss, {**dict(self.named_parameters()), **started}, None)

    def _by_head(self, scene: Scene, view: View, task: Task, key: Tensor | None) -> Tensor:
        logits: Tensor = self.head(self.embed(scene, view, task.query, key), task.classes)
        return logits
