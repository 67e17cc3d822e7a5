"""Mecoin (Li et al., NeurIPS 2024): a memory of class keys, and votes that are learnt by distillation."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hagmeta.common.settings import HIGHEST_WEIGHT, setting
from hagmeta.common.traits import MethodTraits
from hagmeta.methods.base import COMMON, MetaTraining, MethodSettings, Shared, Sizes, Task
from hagmeta.methods.parts import CachesFeatures, Grows, HasOwnSteps, OwnSteps, Replays
from hagmeta.nn.encoder import Embedding, EveryNode
from hagmeta.nn.head import LABEL_SMOOTHING, LinearHead
from hagmeta.nn.prototypes import mean_prototypes
from hagmeta.packs.pack import Parameters
from hagmeta.packs.randomness import Rate, dropout, seeded
from hagmeta.packs.values import hold, like
from hagmeta.sparse.graph import Graph, View

MLP_WIDTH = 64  # as published
# With it, 20 steps of 0.005 move a logit as far as 2000 steps of 0.0005, the published number and rate.
VALUE_STEPS = 10


@dataclass(frozen=True, kw_only=True)
class MecoinSettings(MethodSettings):
    """Settings of Mecoin."""

    codebooks: int = setting(100, "number of random projections that vote", at_least=1, at_most=10_000)
    key_width: int = setting(14, "width of a random projection", at_least=1, at_most=4096)
    key_decay: float = setting(
        0.95,
        "weight of the old key when a session updates the key of an earlier class",
        at_least=0,
        at_most=1,
    )
    value_start: float = setting(
        1.0, "logit of its own class in the value of a new key", at_least=0, at_most=HIGHEST_WEIGHT
    )
    interaction: float = setting(
        1.0, "weight of the distillation between memory and MLP", at_least=0, at_most=HIGHEST_WEIGHT
    )


class Mecoin(CachesFeatures, Grows, HasOwnSteps, Replays):
    """A frozen encoder, and a memory of keys and values that predicts.

    A key is a class prototype. Every codebook has a random projection. In it, a node retrieves the value of
    the nearest key, and the mean of the retrieved values is the prediction. A value holds a logit per class.
    Values learn only by distillation, from and to an MLP that learns the labels.

    We made these choices to adapt it:

    - Every class has one key: the mean of its labelled nodes. Projections are linear, so one mean serves all
      codebooks. Keys are moving averages, with one update per session. At 0.95 per epoch, 2000 epochs leave
      nothing of an old key, so `key_decay` is 0 by default.
    - Values and MLP first learn from all train nodes of base and novel-train classes. The published code
      gives these classes five labels each, like all others.
    - The value of a new key starts with a logit for its own class. Published values start at 0 and learn for
      2000 epochs per session. Here they take few steps, with ten times the common learning rate.
    - The output row of the MLP for a new class starts at the mean of its nodes, as in ER-GNN and iCaRL.
    - There is no self-attention between nodes and keys. In the published code it gets no gradient, so it
      stays a random map. It also makes predictions depend on the other queries.
    - Only classes that have arrived have outputs. The published values and MLP have outputs for all classes
      of the stream from the start.
    - The last step of a session counts. The published code chooses the best epoch by validation nodes of
      novel classes. These are a fifth of each class, and their labels are not available here.

    The published code also differs from the paper in its keys. They are not class prototypes. It finds 800
    per codebook by vector quantisation of base-class nodes, and sessions do not change them.

    Labels: a session reads its supports, and nodes of earlier classes as far as `rehearsal` allows. With
    `rehearsal: none` nothing is replayed, and earlier keys do not move.
    """

    own_settings = MecoinSettings
    differs: ClassVar = (*COMMON, "key_decay", "value_start", "interaction")
    traits: ClassVar = MethodTraits(
        title="Mecoin",
        citation="Dong Li, Aijia Zhang, Junqi Gao and Biqing Qi. An Efficient Memory Module for Graph"
        " Few-Shot Class-Incremental Learning. NeurIPS 2024.",
    )
    meta_training = MetaTraining.SUPERVISED
    freezes_encoder = True
    key_decay: Tensor
    value_start: Tensor
    interaction: Tensor

    def __init__(self, settings: MecoinSettings, sizes: Sizes, seed: int) -> None:
        super().__init__(settings, sizes, seed)
        books, width, classes = settings.codebooks, settings.embedding, sizes.classes
        drawn = seeded(seed, "init/mecoin", lambda: torch.randn(books, width, settings.key_width))
        self.projections = nn.Parameter(drawn / settings.key_width**0.5, requires_grad=False)
        self.keys = nn.Parameter(torch.zeros(classes, width), requires_grad=False)
        self.values = nn.Parameter(torch.zeros(classes, classes, books))  # key, predicted class, codebook
        self.hidden = seeded(seed, "init/mecoin-mlp", lambda: nn.Linear(width, MLP_WIDTH))
        self.head = LinearHead(classes, MLP_WIDTH)
        self.dropout = Rate(settings.dropout)
        hold(
            self,
            key_decay=settings.key_decay,
            value_start=settings.value_start,
            interaction=settings.interaction,
        )

    @classmethod
    def own_steps(cls, settings: Any) -> dict[str, OwnSteps]:
        """Let values take larger steps, without weight decay for values that no node retrieves."""
        return {"values": OwnSteps(rate=VALUE_STEPS * settings.learning_rate, weight_decay=0.0)}

    def propagate(self, graph: Graph, view: View) -> Tensor:
        """Return the frozen encoder's rows (nodes, columns)."""
        return self.encoder.propagate(graph, view, None)

    def encode(self, shared: Shared, view: View, key: Tensor | None) -> Embedding:
        (propagated,) = view.propagated or (self.propagate(shared.graph, view),)
        return self.encoder.embedding(shared.graph, view, propagated)

    def classify(self, shared: Shared, encoded: Embedding, task: Task) -> Tensor:
        return votes(encoded.at(task.query), *self._memory(task.classes), at_once=1)

    def loss(
        self, shared: Shared, view: View, task: Task, target: Tensor, key: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        rows = self.encode(shared, view, None).at(task.query)
        answers = votes(rows, *self._memory(task.classes), at_once=len(self.projections))
        learnt = self.head(self._hidden(dropout(rows, self.dropout, key)), task.classes)
        mistakes = F.cross_entropy(learnt, target, label_smoothing=LABEL_SMOOTHING)
        distance = interaction_loss(answers, learnt)
        return mistakes + like(self.interaction, distance) * distance, answers

    def meet(self, shared: Shared, new: int, view: View, task: Task) -> Parameters:
        embedding = self.encode(shared, view, None)
        readable = task.classes[-(len(task.averaged) + len(task.support)) :]
        arriving = task.classes[-new:]
        means = mean_prototypes(embedding, shared.class_means, task.averaged, task.support)
        keys = updated_keys(self.keys[readable], means, new, self.key_decay)
        own = F.one_hot(arriving, len(self.keys)).unsqueeze(-1) * torch.ones_like(self.values[0, 0])
        hidden = EveryNode(self._hidden(embedding.all()))
        starts = mean_prototypes(hidden, shared.class_means, task.averaged, task.support)[-new:]
        weight, bias = self.head.started(arriving, starts)
        return {
            "keys": self.keys.index_copy(0, readable, keys),
            "values": self.values.index_copy(0, arriving, own * self.value_start),
            "head.weight": weight,
            "head.bias": bias,
        }

    def keep(self, shared: Shared, view: View, task: Task) -> tuple[Tensor, ...]:
        """Return nothing, because keys and values are parameters."""
        return ()

    def describe(self, shared: Shared, view: View, task: Task) -> tuple[Tensor, Tensor]:
        embedded = self.encode(shared, view, None).all()
        return embedded, self._hidden(embedded)[:, :1]  # `select` reads neither

    @classmethod
    def select(
        cls, settings: MecoinSettings, embeddings: list[np.ndarray], logits: list[np.ndarray], size: int
    ) -> list[np.ndarray]:
        """Return evenly spaced positions, because the published choice is random."""
        counts = [(len(nodes), min(len(nodes), size)) for nodes in embeddings]
        return [np.arange(kept) * found // kept for found, kept in counts]

    def _hidden(self, rows: Tensor) -> Tensor:
        hidden: Tensor = F.relu(self.hidden(rows))
        return hidden

    def _memory(self, classes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the arguments of `votes` for some classes: projections, keys and values."""
        keys = self.keys[classes] @ self.projections
        values = self.values[classes.unsqueeze(-1), classes].permute(2, 0, 1)
        return self.projections, keys, values


def updated_keys(keys: Tensor, means: Tensor, new: int, decay: float | Tensor) -> Tensor:
    """Return keys (classes, width): averages of old keys and `means`, and the means of the last `new`."""
    old = len(keys) - new
    return torch.cat([decay * keys[:old] + (1 - decay) * means[:old], means[old:]])


def votes(rows: Tensor, projections: Tensor, keys: Tensor, values: Tensor, at_once: int) -> Tensor:
    """Return the mean (nodes, classes) of the values that `rows` retrieve from the codebooks.

    Args:
        rows: embeddings (nodes, embedding).
        projections: one per codebook: (codebooks, embedding, width).
        keys: projected keys (codebooks, classes, width).
        values: a row of logits per key (codebooks, classes, classes).
        at_once: number of codebooks per product. Few of them need little memory.
    """
    books = zip(*(part.split(at_once) for part in (projections, keys, values)), strict=True)
    parts = (retrieved(rows @ each, at, of).sum(0) for each, at, of in books)
    return functools.reduce(torch.add, parts) / len(projections)


def retrieved(rows: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Return the values of the keys that are nearest to `rows`, (codebooks, nodes, classes)."""
    closeness = 2 * rows @ keys.mT - keys.square().sum(-1).unsqueeze(-2)
    nearest = closeness.argmax(-1, keepdim=True)
    # A product with zeros and ones has a deterministic gradient, and its sums are exact.
    chosen = nearest == torch.arange(keys.shape[-2], device=keys.device)
    return chosen.to(values.dtype) @ values


def interaction_loss(one: Tensor, other: Tensor) -> Tensor:
    """Return the mean of both Kullback-Leibler divergences between two logits (nodes, classes)."""
    one, other = one.log_softmax(-1), other.log_softmax(-1)
    return 0.5 * ((one.exp() - other.exp()) * (one - other)).sum(-1).mean()
