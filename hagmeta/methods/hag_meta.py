"""HAG-Meta (Tan et al., WSDM 2022): prototypes weighed by NLA, a loss weighed by TLA."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from hagmeta.config import RunConfig
from hagmeta.methods.base import Method, Scene, Sizes, Task
from hagmeta.nn.encoder import Embedding
from hagmeta.nn.node_attention import NodeAttention, NodeScores
from hagmeta.nn.prototypes import after_known, distance_logits, support_and_queries, weighted_prototypes
from hagmeta.nn.task_attention import TaskAttention
from hagmeta.packs.randomness import part, seeded
from hagmeta.sparse.graph import View


class Encoded(NamedTuple):
    """A pass over the graph: by the encoder, and by NLA where it is on."""

    embedding: Embedding
    scores: NodeScores | None


class HagMeta(Method):
    """With NLA, TLA and GPIL off it is the paper's Proto-GNN."""

    doubles = True

    def __init__(self, config: RunConfig, sizes: Sizes, seed: int) -> None:
        super().__init__(config, sizes, seed)
        self.node_attention = self.task_attention = None
        if config.nla:
            self.node_attention = seeded(seed, "init/nla", lambda: NodeAttention(sizes.features, config))
        if config.tla:
            self.task_attention = seeded(
                seed, "init/tla", lambda: TaskAttention(sizes.base_classes, sizes.n_way, config.dropout)
            )
        self.criterion = {"categorical": categorical_loss, "binary": binary_loss}[config.loss]

    def encode(self, scene: Scene, view: View, key: Tensor | None) -> Encoded:
        embedding = self.encoder(scene.graph, view, part(key, 0))
        attention = self.node_attention
        scores = attention(scene.graph, view, part(key, 1)) if attention is not None else None
        return Encoded(embedding, scores)

    def classify(self, scene: Scene, encoded: Encoded, task: Task) -> Tensor:
        return self._answer(scene, encoded, task)[0]

    def loss(
        self, scene: Scene, view: View, task: Task, target: Tensor, key: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        logits, prototypes = self._answer(scene, self.encode(scene, view, key), task)
        weights = torch.ones_like(logits[0])
        if self.task_attention is not None:
            weights = weights + self.task_attention(prototypes, scene.task_sizes, part(key, 2))  # Eq. 13
        return self.criterion(logits, target, weights), logits

    def _answer(self, scene: Scene, encoded: Encoded, task: Task) -> tuple[Tensor, Tensor]:
        """Logits (queries, classes) and the prototypes (classes, width) behind them."""
        support, query = support_and_queries(encoded.embedding, task.support, task.query)
        if encoded.scores is None:
            few = support.mean(-2)  # Eq. 2
        else:
            few = weighted_prototypes(support, encoded.scores.weights(task.support))
        prototypes = after_known(few, encoded.embedding, scene.class_means, task.many)
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
