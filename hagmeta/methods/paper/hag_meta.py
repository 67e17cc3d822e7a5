"""HAG-Meta (Tan et al., WSDM 2022): prototypes weighted by NLA, and a loss weighted by TLA."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from hagmeta.common.settings.domains import HIGHEST_RATE, Choice, Number
from hagmeta.common.settings.setting import setting
from hagmeta.common.traits import MethodTraits
from hagmeta.layers.attention.node_attention import (
    LEARNT,
    NodeAttention,
    NodeScores,
    nearest_weights,
    relative_entropy,
)
from hagmeta.layers.attention.task_attention import TaskAttention, UniformTaskAttention
from hagmeta.layers.encoders.base import Embedding
from hagmeta.layers.encoders.gcn import GCN
from hagmeta.layers.prototypes import after_known, distance_logits, support_and_queries, weighted_prototypes
from hagmeta.methods.base import COMMON, MetaTraining, Method, MethodSettings, OwnSteps, Shared, Sizes, Task
from hagmeta.packs.randomness import part, seeded
from hagmeta.sparse.graph import View

# The attentions in the authors' code. In the paper TLA has three layers and transposes earlier prototypes.
NLA_OF_AUTHORS = {"degree": "whole"}
TLA_OF_AUTHORS = {"layers": "two", "earlier": "reshaped", "vectors": "relu"}


@dataclass(frozen=True, kw_only=True)
class HagMetaSettings(MethodSettings):
    """Settings of HAG-Meta: its three parts, each of which can be switched off, and its loss."""

    gpil: bool = setting(True, "meta-train by graph pseudo-incremental learning (GPIL)", scope="method")
    instead_of_gpil: str = setting(
        "nothing",
        "if gpil is off: start the sessions at once (nothing), or first train supervised on the labels that"
        " GPIL would use (supervised)",
        Choice(("nothing", "supervised")),
        scope="method",
    )
    nla: bool = setting(True, "weight support nodes by node-level attention (NLA)", scope="method")
    tla: bool = setting(True, "weight the loss by task-level attention (TLA)", scope="method")
    loss: str = setting(
        "categorical",
        "cross-entropy (categorical), or the binary form printed in the paper (binary)",
        Choice(("categorical", "binary")),
        scope="method",
    )
    nla_weights: str = setting(
        "softmax",
        "how NLA's scores become weights: softmax of sigmoids (softmax), sigmoids divided by their sum"
        " (share), or softmax without sigmoids (plain). Controls: softmax weights shifted to the next support"
        " (permuted), constant scores times log-degree (degree), or the weights that bring the prototype"
        " closest to the mean of all train nodes of the class (oracle)",
        Choice(("softmax", "share", "plain", "permuted", "degree", "oracle")),
        scope="method",
    )
    nla_rate: str = setting(
        "common",
        "learning rate of NLA in meta-training, or common (learning_rate); in sessions its ratio to"
        " finetune_rate is the same",
        Number(words=("common",), at_most=HIGHEST_RATE, above=0, as_text=True),
        scope="method",
    )
    nla_decay: str = setting(
        "common",
        "weight decay of NLA in meta-training and sessions, or common (weight_decay)",
        Number(words=("common",), at_least=0, at_most=HIGHEST_RATE, as_text=True),
        scope="method",
    )
    tla_weights: str = setting(
        "learnt",
        "how tasks are weighted: by TLA (learnt), equally (uniform), without gradients through the weights"
        " (stopped), with TLA's gradients reversed, so that hard tasks gain weight (flipped), or by TLA times"
        " the number of classes in the task (sizes)",
        Choice(("learnt", "uniform", "stopped", "flipped", "sizes")),
        scope="method",
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
    """The result of a pass over the graph by the encoder, and by NLA if it is on."""

    embedding: Embedding
    scores: NodeScores | None


class HagMeta(Method):
    """The method of the paper. Without NLA, TLA and GPIL it is the paper's Proto-GNN.

    `instead_of_gpil: supervised` is a control that trains on the same labels as GPIL. It separates the effect
    of GPIL from that of its labels. It takes as many steps of the same loss, with the same early stopping, on
    batches of train nodes from all base and novel-train classes. Each class is the average over its train
    nodes. For TLA, the base classes are the first task, and groups of N other classes are the later tasks.
    There are no supports for NLA to weight, so its parameters keep their initial values until the sessions.

    The methods page lists all differences from the paper in one table.

    Labels: in a session, prototypes and fine-tuning read the supports of the session. Of earlier classes they
    read the train nodes and supports that `rehearsal` allows: all, or M per class. With `rehearsal: none`
    earlier prototypes, with NLA's weights in them, stay as their session left them. Then only the held-out
    supports of the session are predicted in fine-tuning. With `nla_weights: oracle` the method is an oracle:
    it weights supports with the train labels of every class seen so far.
    """

    own_settings = HagMetaSettings
    differs: ClassVar = (*COMMON, "nla_rate", "nla_decay")
    second_prototypes = True
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
                    sizes.features,
                    settings,
                    **(NLA_OF_AUTHORS if settings.faithful else {}),
                    weights=settings.nla_weights,
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
                    **(TLA_OF_AUTHORS if settings.faithful else {}),
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
    def remarks(cls, settings: HagMetaSettings) -> list[str]:
        oracle = (
            "`nla_weights: oracle` makes this run an oracle: it weights supports with the train labels of "
            "every class seen so far"
        )
        return [oracle] if cls.knows_true_means(settings) else []

    @classmethod
    def passes(cls, settings: HagMetaSettings) -> int:
        return 1 + (settings.nla and settings.nla_weights in LEARNT)

    @classmethod
    def propagations(cls, settings: HagMetaSettings) -> set[str]:
        learns = settings.nla and settings.nla_weights in LEARNT
        return super().propagations(settings) | ({GCN.propagates} if learns else set())

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
        return ("task_attention.",) if settings.faithful else ()

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
            weights = weights + self.task_attention(prototypes, shared.task_sizes, part(key, 2))  # Eq. 8
        return self.criterion(logits, target, weights), logits

    def class_statistics(self, shared: Shared, view: View, task: Task) -> tuple[Tensor, ...]:
        return (self._answer(shared, self.encode(shared, view, None), task)[1],)

    def diagnostics(self, shared: Shared, view: View, task: Task) -> dict[str, Tensor]:
        """Return the relative entropy of NLA's weights, and the share of the base task in TLA's weights."""
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
        """Return logits (queries, classes), and the prototypes (classes, width) behind them."""
        support, query = support_and_queries(encoded.embedding, task.support, task.query)
        prototypes = self._prototypes(shared, encoded, task, support)
        return distance_logits(query, prototypes), prototypes

    def _prototypes(self, shared: Shared, encoded: Encoded, task: Task, support: Tensor) -> Tensor:
        """Return prototypes (classes, width), given embedded supports (classes, shots, width)."""
        weights = self._weights(shared, encoded, task, support)
        few = support.mean(-2) if weights is None else weighted_prototypes(support, weights)  # Eqs. 2 and 13
        return after_known(few, encoded.embedding, shared.class_means, task.averaged, task.class_statistics)

    def _weights(self, shared: Shared, encoded: Encoded, task: Task, support: Tensor) -> Tensor | None:
        """Return the weights of the supports (classes, shots), or None without weights or supports.

        Without supports NLA gets no gradient at all. With a gradient of zero, weight decay would change it.
        """
        if not len(support):
            return None
        if self.weighs_by_truth:
            classes = task.classes[len(task.classes) - len(support) :]
            means = encoded.embedding.means(shared.class_means)[classes]
            return nearest_weights(support.detach(), means.detach())
        return encoded.scores.weights(task.support) if encoded.scores is not None else None


def categorical_loss(logits: Tensor, target: Tensor, weights: Tensor) -> Tensor:
    """Return the mean cross-entropy of the queries, each times the weight of its class."""
    return (weights[target] * F.cross_entropy(logits, target, reduction="none")).mean()


def binary_loss(logits: Tensor, target: Tensor, weights: Tensor) -> Tensor:
    """Return the loss as printed in the paper (Eqs. 7 and 8): one binary decision per class."""
    log_yes = logits.log_softmax(-1)
    log_no = torch.log1p(-log_yes.exp().clamp(max=1 - 1e-6))
    truth = F.one_hot(target, logits.shape[-1])
    return -(weights * torch.where(truth.bool(), log_yes, log_no)).sum(-1).mean()
