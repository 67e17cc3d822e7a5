"""Meta-GNN (Zhou et al., CIKM 2019): model-agnostic meta-learning (MAML) of a graph neural network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import functional_call, grad

from hagmeta.common.settings import HIGHEST_RATE, setting
from hagmeta.common.traits import MethodTraits
from hagmeta.methods.base import MetaTraining, Method, MethodSettings, SessionLearning, Shared, Sizes, Task
from hagmeta.nn.encoder import Embedding, Encoder
from hagmeta.nn.encoders import make_encoder
from hagmeta.nn.prototypes import mean_prototypes
from hagmeta.packs.pack import Parameters
from hagmeta.packs.randomness import part
from hagmeta.sparse.graph import View


@dataclass(frozen=True, kw_only=True)
class MetaGnnSettings(MethodSettings):
    """The inner steps of MAML."""

    inner_steps: int = setting(5, "inner gradient steps on the supports of a task", at_least=0, at_most=1000)
    inner_rate: float = setting(0.02, "learning rate of the inner steps", above=0, at_most=HIGHEST_RATE)
    first_order: bool = setting(False, "do not differentiate through the inner steps (first-order MAML)")


class MetaGnn(Method):
    """An encoder from which a few gradient steps on the supports of a task answer its queries.

    What had to be decided, since Meta-GNN knows one N-way task at a time:
    - tasks of training are of novel-train classes, and start from the pre-trained encoder;
    - the classifier of a task starts at the means of what its classes are known by, where MAML meta-learns
      N rows: so it can grow by N in a session, and old and new classes start alike;
    - the task of a session is all classes met. Each starts again from what was meta-learnt, as MAML's tasks
      do, and takes its inner steps on all supports met so far. (To go on from the session before, on the new
      supports alone, was no better on Debian's held-out classes: 70.8 % against 71.4 %, each the best of
      16 samples.)
    Labels: rows start, and inner steps are taken, from the supports of the session and from those of earlier
    ones that `rehearsal` allows, every class with the same weight. With none the inner steps are on the
    session's own, and older rows start at the means that were kept, by the meta-learnt encoder.
    Nothing is learnt for good in a session. Under `released` it takes that protocol's step on the queries,
    through the inner steps on the new supports.
    """

    own_settings = MetaGnnSettings
    traits: ClassVar = MethodTraits(
        title="Meta-GNN",
        citation="Fan Zhou, Chengtai Cao, Kunpeng Zhang, Goce Trajcevski, Ting Zhong and Ji Geng. Meta-GNN:"
        " On Few-shot Node Classification in Graph Meta-learning. CIKM 2019.",
        revision=2,  # where N is 1, tasks have two classes
    )
    meta_training = MetaTraining.FEW_SHOT
    session_learning = SessionLearning.NONE

    def __init__(self, settings: MetaGnnSettings, sizes: Sizes, seed: int) -> None:
        super().__init__(settings, sizes, seed)
        self.steps, self.rate, self.first_order = (
            settings.inner_steps,
            settings.inner_rate,
            settings.first_order,
        )

    @classmethod
    def new_encoder(cls, settings: MetaGnnSettings, sizes: Sizes) -> Encoder:
        """Return an encoder that can be differentiated twice, where steps descend through inner ones."""
        return make_encoder(sizes.features, settings, twice=not settings.first_order)

    @classmethod
    def passes(cls, settings: MetaGnnSettings) -> int:
        return 1 + settings.inner_steps

    def encode(self, shared: Shared, view: View, key: Tensor | None) -> View:
        return view  # each task has passes of its own over the graph

    def classify(self, shared: Shared, encoded: View, task: Task) -> Tensor:
        return self._answer(shared, encoded, task, None)

    def loss(
        self, shared: Shared, view: View, task: Task, target: Tensor, key: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """The loss on the queries after the inner steps, to be descended through them."""
        logits = self._answer(shared, view, task, key)
        return F.cross_entropy(logits, target), logits

    def embed(self, shared: Shared, view: View, nodes: Tensor, key: Tensor | None) -> Tensor:
        embedding: Embedding = self.encoder(shared.graph, view, key)
        return embedding.at(nodes)

    def _answer(self, shared: Shared, view: View, task: Task, key: Tensor | None) -> Tensor:
        """Logits (queries, classes) after the inner steps on the supports, if there are any."""
        embedding = self.encoder(shared.graph, view, None)
        means = mean_prototypes(embedding, shared.class_means, task.averaged, task.support, task.kept)
        # By this row and bias a class is as near as its mean.
        parameters = {**dict(self.named_parameters()), "row": 2 * means, "bias": -means.square().sum(-1)}
        known, shots = len(means) - len(task.support), task.support.shape[1]
        target = torch.arange(known, len(means), device=means.device).repeat_interleave(shots)

        def support_loss(parameters: Parameters, key: Tensor | None) -> Tensor:
            return F.cross_entropy(
                self._logits(parameters, shared, view, task.support.flatten(), key), target
            )

        for step in range(self.steps if len(task.support) else 0):
            with torch.set_grad_enabled(torch.is_grad_enabled() and not self.first_order):
                slope = grad(support_loss)(parameters, part(key, step))
            parameters = {name: value - self.rate * slope[name] for name, value in parameters.items()}
        return self._logits(parameters, shared, view, task.query, part(key, self.steps))

    def _logits(
        self, parameters: Parameters, shared: Shared, view: View, nodes: Tensor, key: Tensor | None
    ) -> Tensor:
        """Logits (nodes, classes) of an encoder and a classifier with these parameters."""
        encoder = {name: parameters[name] for name, _ in self.named_parameters()}
        embedded: Tensor = functional_call(self, encoder, ("embed", shared, view, nodes, key))
        return embedded @ parameters["row"].mT + parameters["bias"]
