"""LwF (Li and Hoiem, ECCV 2016): learning without forgetting."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from hagmeta.common.settings.domains import Choice
from hagmeta.common.settings.setting import setting
from hagmeta.common.traits import MethodTraits
from hagmeta.layers.encoders.base import Embedding
from hagmeta.methods.base import COMMON, Shared, Sizes, Task
from hagmeta.methods.classifiers.base import GrowingClassifier, loss_among_new
from hagmeta.methods.classifiers.distillation import DistillationSettings, divergence
from hagmeta.packs.values import like
from hagmeta.sparse.graph import View


@dataclass(frozen=True, kw_only=True)
class LwfSettings(DistillationSettings):
    """Settings of LwF."""

    distil_on: str = setting(
        "supports",
        "nodes to distil on: the new supports (supports), or all visible nodes (visible)",
        Choice(("supports", "visible")),
        scope="method",
    )


class Lwf(GrowingClassifier):
    """A growing linear classifier. Sessions learn the new supports and distil the model before the session.

    LwF has one classifier per task and knows the task of each query. We made these choices to adapt it:

    - The base and novel-train classes are the first task, learnt from all their train nodes. Each session is
      another task, with K supports per class.
    - One classifier predicts among all classes seen so far. As in the paper, the new supports are learnt
      among the classes of their session only, or among all classes if N is 1. The earlier classes share one
      softmax in the distillation.
    - The paper trains the new outputs alone before all parameters. Here, a new row starts in the
      direction of the mean of its supports, with the mean length of the other rows.
    - The model before the session is run once, without dropout.

    No earlier node is learnt again. So nothing corrects new rows that score too high compared with trained
    ones, as they do on Debian even before the first step. With `self_training`, the second round of steps
    distils the model after the first.

    Labels: a session reads only its own K labels per class, whatever `rehearsal` allows. Distillation reads
    no labels. With `distil_on: visible`, it uses all visible nodes, and predictions are transductive.

    Under `released`, the labelled queries of earlier classes are distilled but not learnt. A session has one
    step, which starts at the model that is distilled, so distillation only reduces the noise of dropout.

    The public code of the benchmark CGLB learns new labels among all classes seen so far. This forgot more on
    held-out classes of Debian.
    """

    own_settings = LwfSettings
    differs: ClassVar = (*COMMON, "distillation", "temperature")
    traits: ClassVar = MethodTraits(
        title="LwF",
        citation="Zhizhong Li and Derek Hoiem. Learning without Forgetting. ECCV 2016.",
    )

    distillation: Tensor
    temperature: Tensor

    def __init__(self, settings: LwfSettings, sizes: Sizes, seed: int) -> None:
        super().__init__(settings, sizes, seed)
        self.distils_on_visible = settings.distil_on == "visible"

    @classmethod
    def traits_of(cls, settings: LwfSettings) -> MethodTraits:
        clause = "visible unlabelled nodes, including queries, are distilled on"
        transductive = clause if settings.distil_on == "visible" else ""
        return replace(super().traits_of(settings), transductive=transductive)

    def session_loss(
        self, shared: Shared, view: View, task: Task, target: Tensor, key: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        encoded = self.encode(shared, view, key)
        logits, (before,) = self.classify(shared, encoded, task), task.before_steps
        moved = divergence(self._of_earlier(shared, encoded, task), before, self.temperature)
        share = view.learnable if self.distils_on_visible else torch.ones_like(moved)
        forgotten = (share * moved).sum() / share.sum()
        learnt = loss_among_new(logits, target, shared.task_sizes[-1])
        return learnt + like(self.distillation, forgotten) * forgotten, logits

    def before_steps(self, shared: Shared, view: View, task: Task) -> tuple[Tensor, ...]:
        """Return logits (nodes, earlier classes) of the model before the session."""
        return (self._of_earlier(shared, self.encode(shared, view, None), task),)

    def _of_earlier(self, shared: Shared, encoded: Embedding, task: Task) -> Tensor:
        """Return logits (nodes, earlier classes) of the nodes to distil on."""
        embedded = encoded.all() if self.distils_on_visible else encoded.at(task.query)
        logits: Tensor = self.head(embedded, task.classes[: -shared.task_sizes[-1]])
        return logits
