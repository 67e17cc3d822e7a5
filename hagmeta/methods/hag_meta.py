"""HAG-Meta (Tan et al., WSDM 2022): prototypes weighed by NLA, a loss weighed by TLA."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from hagmeta.common.settings import HIGHEST_RATE, setting
from hagmeta.common.traits import MethodTraits
from hagmeta.methods.base import MetaTraining, MethodSettings, Shared, Sizes, Task
from hagmeta.methods.parts import HasOwnSteps, HasPrototypes, KnowsTrueMeans, OwnSteps
from hagmeta.nn.encoder import Embedding
from hagmeta.nn.node_attention import (
    LEARNT,
    NodeAttention,
    NodeScores,
    nearest_weights,
    relative_entropy,
)
from hagmeta.nn.prototypes import after_known, distance_logits, support_and_queries, weighted_prototypes
from hagmeta.nn.task_attention import TaskAttention, UniformTaskAttention
from hagmeta.packs.randomness import part, seeded
from hagmeta.sparse.graph import View


@dataclass(frozen=True, kw_only=True)
class HagMetaSettings(MethodSettings):
    """The three parts of the method, each of which can be turned off, and its loss."""

    gpil: bool = setting(True, "meta-train by graph pseudo-incremental learning (GPIL)")
    instead_of_gpil: str = setting(
        "nothing",
        "if gpil is off: start the sessions at once (nothing), or first train supervised on the labels that"
        " GPIL would use (supervised)",
        choices=("nothing", "supervised"),
        recorded_idle=False,
        birth="nothing",
    )
    nla: bool = setting(True, "weight support nodes by node-level attention (NLA)")
    tla: bool = setting(True, "weight the loss by task-level attention (TLA)")
    loss: str = setting(
        "categorical",
        "cross-entropy (categorical), or the binary form printed in the paper (binary)",
        choices=("categorical", "binary"),
    )
    nla_degree: str = setting(
        "visible",
        "multiply NLA's scores by log(visible neighbours + 1) (visible), or by log(neighbours in the whole"
        " graph) (whole)",
        choices=("visible", "whole"),
        birth="visible",
    )
    nla_weights: str = setting(
        "softmax",
        "how NLA's scores become weights: softmax of sigmoids (softmax), sigmoids divided by their sum"
        " (share), or softmax without sigmoids (plain). Controls: softmax weights shifted to the next support"
        " (permuted), constant scores times log-degree (degree), or the weights that bring the prototype"
        " closest to the mean of all train nodes of the class (oracle)",
        choices=("softmax", "share", "plain", "permuted", "degree", "oracle"),
        birth="softmax",
    )
    nla_rate: str = setting(
        "common",
        "learning rate of NLA in meta-training, or common (learning_rate); in sessions its ratio to"
        " finetune_rate is the same",
        words=("common",),
        fractions=True,
        above=0,
        at_most=HIGHEST_RATE,
        birth="common",
    )
    nla_decay: str = setting(
        "common",
        "weight decay of NLA in meta-training and sessions, or common (weight_decay)",
        words=("common",),
        fractions=True,
        at_least=0,
        at_most=HIGHEST_RATE,
        birth="common",
    )
    tla_weights: str = setting(
        "learnt",
        "how tasks are weighted: by TLA (learnt), equally (uniform), without gradients through the weights"
        " (stopped), with TLA's gradients reversed, so that hard tasks gain weight (flipped), or by TLA times"
        " the number of classes in the task (sizes)",
        choices=("learnt", "uniform", "stopped", "flipped", "sizes"),
        birth="learnt",
    )
    tla_layers: str = setting(
        "three",
        "number of linear layers that TLA applies to the base-class prototypes",
        choices=("three", "two"),
        birth="three",
    )
    tla_tasks: str = setting(
        "transposed",
        "how TLA arranges the prototypes of earlier tasks: transposed, or reshaped, which scrambles them",
        choices=("transposed", "reshaped"),
        birth="transposed",
    )
    tla_vectors: str = setting(
        "linear",
        "TLA's task vectors: linear, or with ReLU and dropout (relu), drawn twice for the newest task",
        choices=("linear", "relu"),
        birth="linear",
    )
    tla_gradients: str = setting(
        "fresh",
        "gradients of TLA: of the current step (fresh), or accumulated over all steps so far (summed)",
        choices=("fresh", "summed"),
        birth="fresh",
    )

    def without_effect(self) -> Mapping[str, str]:
        found = {"instead_of_gpil": "gpil"} if self.gpil else {}
        if not self.tla:
            found["tla_weights"] = "tla"
        if not self.nla:
            found["nla_weights"] = "nla"
        if not self.nla or self.nla_weights not in LEARNT:
            found |= dict.fromkeys(("nla_rate", "nla_decay"), "nla_weights" if self.nla else "nla")
        return found


class Encoded(NamedTuple):
    """A pass over the graph: by the encoder, and by NLA where it is on."""

    embedding: Embedding
    scores: NodeScores | None


class HagMeta(HasPrototypes, HasOwnSteps, KnowsTrueMeans):
    """With NLA, TLA and GPIL off it is the paper's Proto-GNN.

    What GPIL is worth can only be told beside a training on the same labels, `instead_of_gpil: supervised`:
    as many steps of the same loss, stopped by the same validation, on batches of train nodes of all base and
    novel-train classes at once, each known by the average over its train nodes. The base classes are TLA's
    first task there, and the others, N by N, its later ones. There are no supports for NLA to weigh: its
    parameters stay as they began, and learn in the sessions alone.

    Labels: prototypes and fine-tuning read, in a session, its supports, and of classes met earlier what
    `rehearsal` allows: train nodes and supports, all or M a class. With none their prototypes stay as their
    session left them, NLA's weights in them, and the held-out supports of the session are all that is asked.
    With `nla_weights: oracle` it reads the train labels of every class met, to weigh supports by: an oracle.
    """

    own_settings = HagMetaSettings
    traits: ClassVar = MethodTraits(
        title="HAG-Meta",
        citation="Zhen Tan, Kaize Ding, Ruocheng Guo and Huan Liu. Graph Few-shot Class-incremental Learning."
        " WSDM 2022.",
        role="studied",
    )

    def __init__(self, settings: HagMetaSettings, sizes: Sizes, seed: int) -> None:
        super().__init__(settings, sizes, seed)
        self.node_attention: NodeAttention | None = None
        self.task_attention: TaskAttention | UniformTaskAttention | None = None
        self.weighs_by_truth = self.knows_true_means(settings)
        if settings.nla and not self.weighs_by_truth:
            self.node_attention = seeded(
                seed,
                "init/nla",
                lambda: NodeAttention(
                    sizes.features, settings, degree=settings.nla_degree, weights=settings.nla_weights
                ),
            )
        if settings.tla and settings.tla_weights == "uniform":
            self.task_attention = UniformTaskAttention()
        elif settings.tla:
            self.task_attention = seeded(
                seed,
                "init/tla",
                lambda: TaskAttention(
                    sizes.base_classes,
                    sizes.n_way,
                    settings.dropout,
                    layers=settings.tla_layers,
                    earlier=settings.tla_tasks,
                    vectors=settings.tla_vectors,
                    weights=settings.tla_weights,
                ),
            )
        self.criterion = {"categorical": categorical_loss, "binary": binary_loss}[settings.loss]

    @classmethod
    def traits_of(cls, settings: HagMetaSettings) -> MethodTraits:
        traits = super().traits_of(settings)
        return replace(traits, oracle=traits.oracle or cls.knows_true_means(settings))

    @classmethod
    def training_of(cls, settings: HagMetaSettings) -> MetaTraining:
        if settings.gpil:
            return cls.meta_training
        return MetaTraining.SUPERVISED if settings.instead_of_gpil == "supervised" else MetaTraining.NONE

    @classmethod
    def passes(cls, settings: HagMetaSettings) -> int:
        return 1 + (settings.nla and settings.nla_weights in LEARNT)

    @classmethod
    def knows_true_means(cls, settings: HagMetaSettings) -> bool:
        return settings.nla and settings.nla_weights == "oracle"

    @classmethod
    def own_steps(cls, settings: HagMetaSettings) -> dict[str, OwnSteps]:
        rate, decay = (
            None if value == "common" else float(value) for value in (settings.nla_rate, settings.nla_decay)
        )
        return {} if rate is None and decay is None else {"node_attention.": OwnSteps(rate, decay)}

    @classmethod
    def sums_gradients(cls, settings: HagMetaSettings) -> tuple[str, ...]:
        return ("task_attention.",) if settings.tla_gradients == "summed" else ()

    def encode(self, shared: Shared, view: View, key: Tensor | None) -> Encoded:
        embedding = self.encoder(shared.graph, view, part(key, 0))
        attention = self.node_attention
        scores = attention(shared.graph, view, part(key, 1)) if attention is not None else None
        return Encoded(embedding, scores)

    def classify(self, shared: Shared, encoded: Encoded, task: Task) -> Tensor:
        return self._answer(shared, encoded, task)[0]

    def loss(
        self, shared: Shared, view: View, task: Task, target: Tensor, key: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        logits, prototypes = self._answer(shared, self.encode(shared, view, key), task)
        weights = torch.ones_like(logits[0])
        if self.task_attention is not None:
            weights = weights + self.task_attention(prototypes, shared.task_sizes, part(key, 2))  # Eq. 13
        return self.criterion(logits, target, weights), logits

    def prototypes(self, shared: Shared, view: View, task: Task) -> Tensor:
        return self._answer(shared, self.encode(shared, view, None), task)[1]

    def diagnostics(self, shared: Shared, view: View, task: Task) -> dict[str, Tensor]:
        """How near NLA's weights are to equal ones, and the base task's share of TLA's."""
        found: dict[str, Tensor] = {}
        if not self.weighs_by_truth and self.node_attention is None and self.task_attention is None:
            return found
        encoded = self.encode(shared, view, None)
        support, _ = support_and_queries(encoded.embedding, task.support, task.query)
        weights = self._weights(shared, encoded, task, support)
        if weights is not None:
            found["nla_entropy"] = relative_entropy(weights, task.support).mean()
        if self.task_attention is not None:
            prototypes = self._prototypes(shared, encoded, task, support)
            found["tla_base_share"] = self.task_attention.shares(prototypes, shared.task_sizes, None)[0]
            found["tla_equal_share"] = torch.full_like(found["tla_base_share"], 1 / len(shared.task_sizes))
        return found

    def _answer(self, shared: Shared, encoded: Encoded, task: Task) -> tuple[Tensor, Tensor]:
        """Logits (queries, classes) and the prototypes (classes, width) behind them."""
        support, query = support_and_queries(encoded.embedding, task.support, task.query)
        prototypes = self._prototypes(shared, encoded, task, support)
        return distance_logits(query, prototypes), prototypes

    def _prototypes(self, shared: Shared, encoded: Encoded, task: Task, support: Tensor) -> Tensor:
        """Of all classes of a task (classes, width), from embedded supports (classes, shots, width)."""
        weights = self._weights(shared, encoded, task, support)
        few = support.mean(-2) if weights is None else weighted_prototypes(support, weights)  # Eqs. 2 and 11
        return after_known(few, encoded.embedding, shared.class_means, task.averaged, task.kept)

    def _weights(self, shared: Shared, encoded: Encoded, task: Task, support: Tensor) -> Tensor | None:
        """Of the supports (classes, shots); None where all count alike, or none are there.

        (Without supports NLA gets no zero gradient either, which would decay it.)
        """
        if not len(support):
            return None
        if self.weighs_by_truth:
            classes = task.classes[len(task.classes) - len(support) :]
            means = encoded.embedding.means(shared.class_means)[classes]
            return nearest_weights(support.detach(), means.detach())
        return encoded.scores.weights(task.support) if encoded.scores is not None else None


def categorical_loss(logits: Tensor, target: Tensor, weights: Tensor) -> Tensor:
    """Cross-entropy of each query, times its class's weight."""
    return (weights[target] * F.cross_entropy(logits, target, reduction="none")).mean()


def binary_loss(logits: Tensor, target: Tensor, weights: Tensor) -> Tensor:
    """The form that the paper prints (Eqs. 12 and 13): every class is a yes or no of its own."""
    log_yes = logits.log_softmax(-1)
    log_no = torch.log1p(-log_yes.exp().clamp(max=1 - 1e-6))
    truth = F.one_hot(target, logits.shape[-1])
    return -(weights * torch.where(truth.bool(), log_yes, log_no)).sum(-1).mean()
