"""Mecoin (Li et al., NeurIPS 2024): a memory of class keys, and votes that are learnt by distillation."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hagmeta.common.settings.domains import HIGHEST_WEIGHT, Number, Whole
from hagmeta.common.settings.setting import setting
from hagmeta.common.traits import MethodTraits
from hagmeta.layers.encoders.base import Embedding, EveryNode
from hagmeta.layers.head import LABEL_SMOOTHING, LinearHead
from hagmeta.layers.losses import balanced_weights
from hagmeta.layers.prototypes import mean_prototypes, means_of_new
from hagmeta.methods.base import COMMON, MetaTraining, MethodSettings, OwnSteps, Shared, Sizes, Task
from hagmeta.methods.prototypes.base import FrozenEncoder
from hagmeta.packs.pack import Parameters
from hagmeta.packs.randomness import Rate, dropout, seeded
from hagmeta.sparse.graph import View

MLP_WIDTH = 64  # as published
# Times the common learning rate. Then 20 steps move a logit as far as the published 2000 steps of 0.0005.
VALUE_STEPS = 10


@dataclass(frozen=True, kw_only=True)
class MecoinSettings(MethodSettings):
    """Settings of Mecoin."""

    codebooks: int = setting(
        100,
        "number of random projections that vote",
        Whole(at_least=1, at_most=10_000),
        scope="method",
    )
    key_width: int = setting(
        14,
        "width of a random projection",
        Whole(at_least=1, at_most=4096),
        scope="method",
    )
    value_start: float = setting(
        1.0,
        "logit of its own class in the value of a new key",
        Number(at_least=0, at_most=HIGHEST_WEIGHT),
        scope="method",
    )
    interaction: float = setting(
        1.0,
        "weight of the distillation between memory and MLP",
        Number(at_least=0, at_most=HIGHEST_WEIGHT),
        scope="method",
    )


class MeCoin(FrozenEncoder):
    """A frozen encoder, and a memory of keys and values that predicts.

    A key is a class prototype. Every codebook has a random projection. In it, a node retrieves the value of
    the nearest key, and the mean of the retrieved values is the prediction. A value holds a logit per class.
    Values learn only by distillation, from and to an MLP that learns the labels.

    We made these choices to adapt it:

    - Every class has one key: the mean of its labelled nodes. Published keys are moving averages with decay
      0.95. Over the 2000 epochs of a published session, such an average ends at the mean.
    - Values and MLP first learn from all train nodes of base and novel-train classes. The published code
      gives these classes five labels each, like all others.
    - The value of a new key starts with a logit for its own class. Published values start at 0 and learn for
      2000 epochs per session. Here they take few steps, with ten times the common learning rate.
    - The output row of the MLP for a new class starts in the direction of its mean, as in ER-GNN and iCaRL.
    - There is no self-attention between nodes and keys. In the published code it gets no gradient, so it
      stays a random map. It also makes predictions depend on the other queries.
    - Only classes that have arrived have outputs. The published values and MLP have outputs for all classes
      of the stream from the start.
    - Steps predict one held-out support per class and train nodes of known classes, like other methods here.
      Classes have equal weight in the loss. In the published code all have five labels.
    - The last step of a session counts. The published code chooses the best epoch by validation nodes of
      novel classes. These are a fifth of each class, and their labels are not available here.

    The published code also differs from the paper in its keys. They are not class prototypes. It finds 800
    per codebook by vector quantisation of base-class nodes, and sessions do not change them.

    Labels: in a session, keys and steps read the supports of the session. Of earlier classes they read the
    train nodes and supports that `rehearsal` allows: all, or M per class. With `rehearsal: none` earlier keys
    stay as their session left them, and only the held-out supports of the session are predicted in its steps.
    """

    own_settings = MecoinSettings
    differs: ClassVar = (*COMMON, "value_start", "interaction")
    traits: ClassVar = MethodTraits(
        title="Mecoin",
        citation="Dong Li, Aijia Zhang, Junqi Gao and Biqing Qi. An Efficient Memory Module for Graph"
        " Few-Shot Class-Incremental Learning. NeurIPS 2024.",
    )
    meta_training = MetaTraining.SUPERVISED
    value_start: Tensor
    interaction: Tensor

    def __init__(self, settings: MecoinSettings, sizes: Sizes, seed: int) -> None:
        super().__init__(settings, sizes, seed)
        books, width, classes = settings.codebooks, settings.embedding, sizes.classes
        drawn = seeded(seed, "init/mecoin", lambda: torch.randn(books, width, settings.key_width))
        self.projections = nn.Parameter(drawn / settings.key_width**0.5, requires_grad=False)
        self.values = nn.Parameter(torch.zeros(classes, classes, books))  # key, predicted class, codebook
        self.hidden = seeded(seed, "init/mecoin-mlp", lambda: nn.Linear(width, MLP_WIDTH))
        self.head = LinearHead(classes, MLP_WIDTH)
        self.dropout = Rate(settings.dropout)

    @classmethod
    def own_steps(cls, settings: Any) -> dict[str, OwnSteps]:
        """Let values take larger steps, without weight decay for values that no node retrieves."""
        return {"values": OwnSteps(rate=VALUE_STEPS * settings.learning_rate, weight_decay=0.0)}

    def classify(self, shared: Shared, encoded: Embedding, task: Task) -> Tensor:
        keys, rows = self._keys(shared, encoded, task), encoded.at(task.query)
        return self._votes(rows, keys, task.classes, at_once=1)

    def loss(
        self, shared: Shared, view: View, task: Task, target: Tensor, key: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        embedding = self.encode(shared, view, None)
        keys, rows = self._keys(shared, embedding, task), embedding.at(task.query)
        answers = self._votes(rows, keys, task.classes, at_once=len(self.projections))
        learnt = self.head(self._hidden(dropout(rows, self.dropout, key)), task.classes)
        mistakes = F.cross_entropy(learnt, target, reduction="none", label_smoothing=LABEL_SMOOTHING)
        losses = mistakes + self.interaction * symmetric_divergence(answers, learnt)
        return (balanced_weights(target, answers.shape[-1]) * losses).sum(), answers

    def add_classes(self, shared: Shared, new: int, view: View, task: Task) -> Parameters:
        arriving = task.classes[-new:]
        own = F.one_hot(arriving, len(self.values)).unsqueeze(-1) * torch.ones_like(self.values[0, 0])
        hidden = EveryNode(self._hidden(self.encode(shared, view, None).all()))
        means = means_of_new(hidden, shared.class_means, task.averaged, task.support, new)
        weight, bias = self.head.started(arriving, means, task.classes[:-new])
        values = self.values.index_copy(0, arriving, own * self.value_start)
        return {"values": values, "head.weight": weight, "head.bias": bias}

    def class_statistics(self, shared: Shared, view: View, task: Task) -> tuple[Tensor, ...]:
        return (self._keys(shared, self.encode(shared, view, None), task),)

    def _hidden(self, rows: Tensor) -> Tensor:
        hidden: Tensor = F.relu(self.hidden(rows))
        return hidden

    def _keys(self, shared: Shared, embedding: Embedding, task: Task) -> Tensor:
        """Return the keys (classes, embedding) before projection."""
        return mean_prototypes(
            embedding, shared.class_means, task.averaged, task.support, task.class_statistics
        )

    def _votes(self, rows: Tensor, keys: Tensor, classes: Tensor, at_once: int) -> Tensor:
        """Return logits (nodes, classes) of `rows` (nodes, embedding)."""
        values = self.values[classes.unsqueeze(-1), classes].permute(2, 0, 1)
        return votes(rows, self.projections, keys @ self.projections, values, at_once)


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


def symmetric_divergence(one: Tensor, other: Tensor) -> Tensor:
    """Return the mean (nodes,) of both Kullback-Leibler divergences between two logits (nodes, classes)."""
    one, other = one.log_softmax(-1), other.log_softmax(-1)
    return 0.5 * ((one.exp() - other.exp()) * (one - other)).sum(-1)
