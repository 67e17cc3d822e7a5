"""Meta-GNN (Zhou et al., CIKM 2019): model-agnostic meta-learning (MAML) of a graph neural network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import functional_call, grad

from hagmeta.common.settings.domains import HIGHEST_RATE, Number, Whole
from hagmeta.common.settings.setting import setting
from hagmeta.common.traits import MethodTraits
from hagmeta.layers.encoders.base import Embedding, Encoder
from hagmeta.layers.encoders.registry import make_encoder
from hagmeta.layers.prototypes import mean_prototypes
from hagmeta.methods.base import (
    COMMON,
    MetaTraining,
    Method,
    MethodSettings,
    SessionLearning,
    Shared,
    Sizes,
    Task,
)
from hagmeta.packs.pack import Parameters
from hagmeta.packs.randomness import part
from hagmeta.sparse.graph import View


@dataclass(frozen=True, kw_only=True)
class MetaGnnSettings(MethodSettings):
    """Settings of Meta-GNN: the inner steps of MAML."""

    inner_steps: int = setting(
        5,
        "inner gradient steps on the supports of a task",
        Whole(at_least=0, at_most=1000),
        scope="method",
    )
    inner_rate: float = setting(
        0.02,
        "learning rate of the inner steps",
        Number(at_most=HIGHEST_RATE, above=0),
        scope="method",
    )
    first_order: bool = setting(
        False, "do not differentiate through the inner steps (first-order MAML)", scope="method"
    )


class MetaGnn(Method):
    """A meta-learnt encoder that adapts to a task by a few gradient steps on its supports.

    Meta-GNN handles one N-way task at a time. We made these choices to adapt it:

    - Training tasks consist of novel-train classes and start from the pre-trained encoder.
    - The classifier of a task starts at the class means, whereas MAML meta-learns N rows. So it can grow by N
      in a session, and old and new classes start in the same way.
    - The task of a session contains all classes seen so far. As in MAML, each session starts again from the
      meta-learnt parameters, with inner steps on all supports seen so far. We also tried to continue from the
      previous session, on the new supports only. On held-out classes of Debian this was no better: 70.8 %
      against 71.4 %, each the best of 16 samples.

    Labels: classifier rows and inner steps use the supports of the session, and the earlier supports that
    `rehearsal` allows, with the same weight per class. With `rehearsal: none` the inner steps use only the
    supports of the session. Older rows start at the stored means, which the meta-learnt encoder computed.

    A session changes nothing permanently. Under `released` it takes that protocol's step on the queries,
    differentiated through the inner steps on the new supports.
    """

    own_settings = MetaGnnSettings
    differs: ClassVar = (*COMMON, "inner_rate")
    traits: ClassVar = MethodTraits(
        title="Meta-GNN",
        citation="Fan Zhou, Chengtai Cao, Kunpeng Zhang, Goce Trajcevski, Ting Zhong and Ji Geng. Meta-GNN:"
        " On Few-shot Node Classification in Graph Meta-learning. CIKM 2019.",
        revision=2,  # since 2, tasks have two classes if N is 1
    )
    meta_training = MetaTraining.FEW_SHOT
    session_learning = SessionLearning.NONE
    inner_rate: Tensor

    def __init__(self, settings: MetaGnnSettings, sizes: Sizes, seed: int) -> None:
        super().__init__(settings, sizes, seed)
        self.steps, self.first_order = settings.inner_steps, settings.first_order

    @classmethod
    def new_encoder(cls, settings: MetaGnnSettings, sizes: Sizes) -> Encoder:
        """Return an encoder that can be differentiated twice, unless `first_order` is set."""
        return make_encoder(sizes.features, settings, twice=not settings.first_order)

    @classmethod
    def passes(cls, settings: MetaGnnSettings) -> int:
        return 1 + settings.inner_steps

    def encode(self, shared: Shared, view: View, key: Tensor | None) -> View:
        return view  # the inner steps of each task change the encoder, so tasks cannot share a pass

    def classify(self, shared: Shared, encoded: View, task: Task) -> Tensor:
        return self._answer(shared, encoded, task, None)

    def loss(
        self, shared: Shared, view: View, task: Task, target: Tensor, key: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return the loss on the queries after the inner steps, and the logits."""
        logits = self._answer(shared, view, task, key)
        return F.cross_entropy(logits, target), logits

    def embed(self, shared: Shared, view: View, nodes: Tensor, key: Tensor | None) -> Tensor:
        embedding: Embedding = self.encoder(shared.graph, view, key)
        return embedding.at(nodes)

    def _answer(self, shared: Shared, view: View, task: Task, key: Tensor | None) -> Tensor:
        """Return logits (queries, classes) after the inner steps on the supports, if there are any."""
        embedding = self.encoder(shared.graph, view, None)
        means = mean_prototypes(
            embedding, shared.class_means, task.averaged, task.support, task.class_statistics
        )
        # With this row and bias a logit is the negative squared distance to the mean, up to a constant.
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
            parameters = {name: value - slope[name] * self.inner_rate for name, value in parameters.items()}
        return self._logits(parameters, shared, view, task.query, part(key, self.steps))

    def _logits(
        self, parameters: Parameters, shared: Shared, view: View, nodes: Tensor, key: Tensor | None
    ) -> Tensor:
        """Return logits (nodes, classes) of the encoder and classifier with `parameters`."""
        encoder = {name: parameters[name] for name, _ in self.named_parameters()}
        embedded: Tensor = functional_call(self, encoder, ("embed", shared, view, nodes, key))
        return embedded @ parameters["row"].mT + parameters["bias"]
