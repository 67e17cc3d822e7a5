"""FACT (Zhou et al., CVPR 2022): forward compatible training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hagmeta.common.settings.domains import HIGHEST_WEIGHT, Number, Whole
from hagmeta.common.settings.setting import setting
from hagmeta.common.traits import MethodTraits
from hagmeta.layers.encoders.base import Embedding
from hagmeta.layers.head import cosine_logits
from hagmeta.layers.prototypes import after_known, means_of_new, support_and_queries
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
from hagmeta.packs.randomness import fold, part, seeded
from hagmeta.packs.values import like
from hagmeta.sparse.graph import View

LEAST = 1e-30  # minimum probability, so that its logarithm is finite
BITS = 24  # random bits of a mixing weight


@dataclass(frozen=True, kw_only=True)
class FactSettings(MethodSettings):
    """Settings of FACT."""

    virtual_classes: int = setting(
        8,
        "number of virtual prototypes; they are orthogonal unless there are more than `embedding`",
        Whole(at_least=1, at_most=4096),
        scope="method",
    )
    virtual_weight: float = setting(
        0.01,
        "weight of the three losses with virtual prototypes",
        Number(at_least=0, at_most=HIGHEST_WEIGHT),
        scope="method",
    )
    virtual_share: float = setting(
        0.1,
        "share of the path through virtual prototypes in the predictions",
        Number(at_least=0, at_most=1),
        scope="method",
    )


class Fact(Method):
    """Training that reserves space for future classes with virtual prototypes, then nearest class means.

    The classifier compares by cosine, times 16. Its virtual prototypes are drawn once and never change.
    Training adds three losses, with one weight, to the cross-entropy of the known classes:

    - With the true class left out, a node should belong to its closest virtual prototype.
    - A mixture of two nodes of different classes should belong to its closest virtual prototype.
    - With that prototype left out, the mixture should belong to its closest known class.

    We made these choices to adapt FACT to graphs:

    - The paper has one virtual prototype per future class. That number must not be known, so it is a setting.
      Its default is half the default width of the embedding.
    - Training is on batches of all base and novel-train classes. It starts at the pre-trained encoder, and
      the row of a class starts at its mean.
    - Embeddings are mixed, and the paper mixes hidden layers. For a GCN this is the same, because its last
      layer is linear. Each node is paired with a node of another class of the batch.
    - In sessions the encoder is frozen. All classes are known by their means, as in the authors' code, which
      replaces the trained rows after training.
    - Predictions mix the softmax over the classes with a path through the virtual prototypes: the sum over
      these of p(prototype | node) p(class | prototype). Both factors are softmaxes of scaled cosines.

    We do not follow three details of the authors' code. It trains a second copy of the virtual prototypes on
    the mixtures. It lets only three random base classes use each of them. Its path has unscaled cosines to
    the closest 40 prototypes.

    Labels: the train nodes of known classes, and the supports of new ones. Means of earlier classes are over
    the labels that `rehearsal` allows. With `rehearsal: none` they stay as computed in their session. Under
    `released` the trained rows answer in session 0. Later sessions take that protocol's step on the queries,
    by the cross-entropy of the predictions.
    """

    own_settings = FactSettings
    differs: ClassVar = (*COMMON, "virtual_weight", "virtual_share")
    defaults: ClassVar = {"classifier": "cosine"}
    traits: ClassVar = MethodTraits(
        title="FACT",
        citation="Da-Wei Zhou, Fu-Yun Wang, Han-Jia Ye, Liang Ma, Shiliang Pu and De-Chuan Zhan. Forward"
        " Compatible Few-Shot Class-Incremental Learning. CVPR 2022.",
    )
    meta_training = MetaTraining.SUPERVISED
    session_learning = SessionLearning.NONE

    virtual_weight: Tensor
    virtual_share: Tensor

    def __init__(self, settings: FactSettings, sizes: Sizes, seed: int) -> None:
        super().__init__(settings, sizes, seed)
        self.rows = nn.Parameter(torch.zeros(sizes.classes, settings.embedding))
        virtual = torch.empty(settings.virtual_classes, settings.embedding)
        self.virtual = seeded(
            seed, "init/fact", lambda: nn.Parameter(nn.init.orthogonal_(virtual), requires_grad=False)
        )

    def classify(self, shared: Shared, encoded: Embedding, task: Task) -> Tensor:
        support, query = support_and_queries(encoded, task.support, task.query)
        means = after_known(
            support.mean(-2), encoded, shared.class_means, task.averaged, task.class_statistics
        )
        return answers(query, means, self.virtual, self.virtual_share)

    def loss(
        self, shared: Shared, view: View, task: Task, target: Tensor, key: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        embedded = self.encode(shared, view, part(key, 0)).at(task.query)
        known = len(task.classes)
        rows = torch.cat([self.rows[task.classes], self.virtual])
        logits = cosine_logits(embedded, rows)
        mixed = cosine_logits(mixtures(embedded, known, part(key, 1)), rows)
        reserving = reserving_loss(logits, mixed, target, known)
        logits = logits[:, :known]
        loss = F.cross_entropy(logits, target)
        return loss + like(self.virtual_weight, loss) * reserving, logits

    def session_loss(
        self, shared: Shared, view: View, task: Task, target: Tensor, key: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        logits = self.classify(shared, self.encode(shared, view, key), task)
        return F.cross_entropy(logits, target), logits

    def add_classes(self, shared: Shared, new: int, view: View, task: Task) -> Parameters:
        embedding = self.encode(shared, view, None)
        means = means_of_new(embedding, shared.class_means, task.averaged, task.support, new)
        place = task.classes[-new:].unsqueeze(-1).expand_as(means)
        return {"rows": self.rows.scatter(0, place, F.normalize(means, dim=-1))}


def reserving_loss(logits: Tensor, mixed: Tensor, target: Tensor, known: int) -> Tensor:
    """Return the sum of the three losses with virtual prototypes.

    `logits` and `mixed` (nodes, classes) are those of nodes and of mixtures. The first `known` columns are
    known classes, and the others are virtual. `target` (nodes,) has the true classes.
    """
    closest = known + logits[:, known:].argmax(-1)
    growable = F.cross_entropy(without(logits, target), closest)
    virtual, real = known + mixed[:, known:].argmax(-1), mixed[:, :known].argmax(-1)
    return growable + F.cross_entropy(mixed, virtual) + F.cross_entropy(without(mixed, virtual), real)


def without(logits: Tensor, column: Tensor) -> Tensor:
    """Return `logits` (nodes, classes) with one `column` of each node (nodes,) left out."""
    columns = torch.arange(logits.shape[-1], device=logits.device)
    return logits.masked_fill(columns == column.unsqueeze(-1), -torch.inf)


def mixtures(embedded: Tensor, classes: int, key: Tensor | None) -> Tensor:
    """Return mixtures (nodes, width) of each node with a node of another class.

    `embedded` (nodes, width) has equally many nodes of each class, class by class. The weight is drawn from
    Beta(2, 2), as in the authors' code, once for the batch. Without a key it is 1/2.
    """
    shots, others = len(embedded) // classes, max(classes - 1, 1)
    place = torch.arange(len(embedded), device=embedded.device)
    turn = 0 if key is None else fold(key, 0) % others
    other = (place // shots + 1 + (place + turn) % others) % classes
    weight = 0.5 if key is None else beta(_uniform(fold(key, 1)))
    return weight * embedded + (1 - weight) * embedded[other * shots + place % shots]


def beta(uniform: Tensor) -> Tensor:
    """Return the value at which the distribution function of Beta(2, 2) is `uniform`."""
    return 0.5 - torch.sin(torch.asin(1 - 2 * uniform) / 3)


def _uniform(key: Tensor) -> Tensor:
    """Return a number between 0 and 1."""
    return (key & (2**BITS - 1)).to(torch.float32) / 2**BITS


def answers(query: Tensor, rows: Tensor, virtual: Tensor, share: float | Tensor) -> Tensor:
    """Return the logarithm of the probabilities (queries, classes).

    A `share` of them comes through the `virtual` prototypes (virtual, width), the rest from `rows`
    (classes, width).
    """
    direct = cosine_logits(query, rows).softmax(-1)
    path = cosine_logits(query, virtual).softmax(-1) @ cosine_logits(virtual, rows).softmax(-1)
    return ((1 - share) * direct + share * path).clamp(min=LEAST).log()
