"""HAG-Meta (Tan et al., WSDM 2022): prototypes weighed by NLA, a loss weighed by TLA."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from hagmeta.common.settings import setting
from hagmeta.methods.base import MetaTraining, Method, MethodSettings, Shared, Sizes, Task
from hagmeta.nn.encoder import Embedding
from hagmeta.nn.node_attention import NodeAttention, NodeScores
from hagmeta.nn.prototypes import after_known, distance_logits, support_and_queries, weighted_prototypes
from hagmeta.nn.task_attention import TaskAttention
from hagmeta.packs.randomness import part, seeded
from hagmeta.sparse.graph import View


@dataclass(frozen=True, kw_only=True)
class HagMetaSettings(MethodSettings):
    """The three parts of the method, each of which can be turned off, and its loss."""

    gpil: bool = setting(True, "meta-train by graph pseudo-incremental learning")
    instead_of_gpil: str = setting(
        "nothing",
        "without gpil: go on to the sessions, or learn supervised, from the labels that gpil would have",
        choices=("nothing", "supervised"),
        only_with=("gpil", False),
        birth="nothing",
    )
    nla: bool = setting(True, "weigh support nodes by node-level attention")
    tla: bool = setting(True, "weigh the loss by task-level attention")
    loss: str = setting(
        "categorical",
        "cross-entropy, or the binary form the paper prints",
        choices=("categorical", "binary"),
    )
    nla_degree: str = setting(
        "visible",
        "neighbours whose logarithm multiplies NLA's scores: the visible ones + 1, or all there will be",
        choices=("visible", "whole"),
        birth="visible",
    )
    nla_weights: str = setting(
        "softmax",
        "NLA's scores become weights by a softmax, or as shares of their sum",
        choices=("softmax", "share"),
        birth="softmax",
    )
    tla_layers: str = setting(
        "three",
        "linear layers of TLA over the prototypes of the base classes",
        choices=("three", "two"),
        birth="three",
    )
    tla_tasks: str = setting(
        "transposed",
        "TLA's matrix of an earlier task's prototypes: transposed, or reshaped, which mixes up its numbers",
        choices=("transposed", "reshaped"),
        birth="transposed",
    )
    tla_vectors: str = setting(
        "linear",
        "TLA's vector of a task: linear, or under ReLU and dropout, which for the newest is drawn twice",
        choices=("linear", "relu"),
        birth="linear",
    )
    tla_gradients: str = setting(
        "fresh",
        "gradients of TLA: each step's own, or summed over all steps so far",
        choices=("fresh", "summed"),
        birth="fresh",
    )


class Encoded(NamedTuple):
    """A pass over the graph: by the encoder, and by NLA where it is on."""

    embedding: Embedding
    scores: NodeScores | None


class HagMeta(Method):
    """With NLA, TLA and GPIL off it is the paper's Proto-GNN.

    What GPIL is worth can only be told beside a training on the same labels, `instead_of_gpil: supervised`:
    as many steps of the same loss, stopped by the same validation, on batches of train nodes of all base and
    novel-train classes at once, each known by the average over its train nodes. The base classes are TLA's
    first task there, and the others, N by N, its later ones. There are no supports for NLA to weigh: its
    parameters stay as they began, and learn in the sessions alone.

    Labels: prototypes and fine-tuning read, in a session, its supports, and of classes met earlier what
    `rehearsal` allows: train nodes and supports, all or M a class. With none their prototypes stay as their
    session left them, NLA's weights in them, and the held-out supports of the session are all that is asked.
    """

    own_settings = HagMetaSettings
    has_prototypes = True

    def __init__(self, settings: HagMetaSettings, sizes: Sizes, seed: int) -> None:
        super().__init__(settings, sizes, seed)
        self.node_attention = self.task_attention = None
        if settings.nla:
            self.node_attention = seeded(
                seed,
                "init/nla",
                lambda: NodeAttention(
                    sizes.features, settings, degree=settings.nla_degree, weights=settings.nla_weights
                ),
            )
        if settings.tla:
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
                ),
            )
        self.criterion = {"categorical": categorical_loss, "binary": binary_loss}[settings.loss]

    @classmethod
    def training_of(cls, settings: HagMetaSettings) -> MetaTraining:
        if settings.gpil:
            return cls.meta_training
        return MetaTraining.SUPERVISED if settings.instead_of_gpil == "supervised" else MetaTraining.NONE

    @classmethod
    def passes(cls, settings: HagMetaSettings) -> int:
        return 1 + settings.nla

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

    def _answer(self, shared: Shared, encoded: Encoded, task: Task) -> tuple[Tensor, Tensor]:
        """Logits (queries, classes) and the prototypes (classes, width) behind them."""
        support, query = support_and_queries(encoded.embedding, task.support, task.query)
        if encoded.scores is None or not len(task.support):  # no zero gradient either, which would decay NLA
            few = support.mean(-2)  # Eq. 2
        else:
            few = weighted_prototypes(support, encoded.scores.weights(task.support))
        prototypes = after_known(few, encoded.embedding, shared.class_means, task.averaged, task.kept)
        return distance_logits(query, prototypes), prototypes


def categorical_loss(logits: Tensor, target: Tensor, weights: Tensor) -> Tensor:
    """Cross-entropy of each query, times its class's weight."""
    return (weights[target] * F.cross_entropy(logits, target, reduction="none")).mean()


def binary_loss(logits: Tensor, target: Tensor, weights: Tensor) -> Tensor:
    """The form that the paper prints (Eqs. 12 and 13): every class is a yes or no of its own."""
    log_yes = logits.log_softmax(-1)
    log_no = torch.log1p(-log_yes.exp().clamp(max=1 - 1e-6))
    truth = F.one_hot(target, logits.shape[-1])
    return -(weights * torch.where(truth.bool(), log_yes, log_no)).sum(-1).mean()
