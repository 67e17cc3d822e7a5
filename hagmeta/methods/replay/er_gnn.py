"""ER-GNN (Zhou and Cao, AAAI 2021): experience replay against forgetting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from scipy.spatial.distance import cdist
from torch import Tensor

from hagmeta.common.settings.domains import Choice
from hagmeta.common.settings.setting import setting
from hagmeta.common.traits import MethodTraits
from hagmeta.methods.base import COMMON, MethodSettings, Shared, Task
from hagmeta.methods.classifiers.base import GrowingMethod
from hagmeta.sparse.graph import View

Arrays = list[np.ndarray]  # one per class, with a row per candidate
MOST_OTHERS = 1000  # nodes per other class that coverage compares with
DAMPING = 0.01  # keeps the Hessian invertible


@dataclass(frozen=True, kw_only=True)
class ErGnnSettings(MethodSettings):
    """Settings of ER-GNN."""

    selection: str = setting(
        "mean",
        "which nodes to keep: closest to the class mean (mean), with the fewest nodes of other classes nearby"
        " (coverage), or with the most influence on the classifier (influence)",
        Choice(("mean", "coverage", "influence")),
        scope="method",
    )


class ErGnn(GrowingMethod):
    """A growing linear classifier. Each session learns its supports and replays stored nodes.

    ER-GNN is neither few-shot nor class-incremental. We made these choices to adapt it:

    - The base and novel-train classes are the first task, learnt from all their train nodes. Each session is
      another task, with K supports per class.
    - The classifier grows and always predicts among all classes seen so far. A new row starts in the
      direction of the mean of its supports, with the mean length of the other rows.
    - Nodes to keep are chosen by their embeddings (MF* and CM* in the paper), after their task is learnt.
    - Coverage uses the mean distance of nodes to their class mean as its radius.
    - Influence is computed on the classifier only, with one Hessian block per class. The encoder is fixed.

    Labels: the memory holds at most as many nodes per class as `rehearsal` allows. With `rehearsal: none`
    nothing is replayed. Only the classifier rows remain of a class, and the new nodes keep half of the loss
    weight. Under `released`, the labelled queries of a session cover all classes, and these are replayed.
    """

    own_settings = ErGnnSettings
    differs: ClassVar = COMMON
    traits: ClassVar = MethodTraits(
        title="ER-GNN",
        citation="Fan Zhou and Chengtai Cao. Overcoming Catastrophic Forgetting in Graph Neural Networks with"
        " Experience Replay. AAAI 2021.",
        revision=2,  # since 2, new rows are as long as trained ones, not twice the mean
    )

    def session_loss(
        self, shared: Shared, view: View, task: Task, target: Tensor, key: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        logits = self.classify(shared, self.encode(shared, view, key), task)
        weights = replay_weights(target >= len(task.classes) - shared.task_sizes[-1])
        return (weights * F.cross_entropy(logits, target, reduction="none")).sum(), logits

    @classmethod
    def exemplars(cls, settings: ErGnnSettings, embeddings: Arrays, logits: Arrays, size: int) -> Arrays:
        rules = {"mean": mean_of_feature, "coverage": coverage, "influence": influence}
        return rules[settings.selection](embeddings, logits, size)


def replay_weights(new: Tensor) -> Tensor:
    """Return the weight of each node in ``b L_new + (1 - b) L_replayed``.

    ``b`` is the share of replayed nodes. Both losses are sums over nodes, so both get the same total weight,
    which is one half here. `new` marks the new nodes.
    """
    return torch.where(new, 0.5 / new.sum(), 0.5 / (~new).sum())


def mean_of_feature(embeddings: Arrays, logits: Arrays, size: int) -> Arrays:
    """Return the positions of the nodes closest to the mean of their class (MF)."""
    distances = [np.linalg.norm(nodes - nodes.mean(0), axis=1) for nodes in embeddings]
    return [np.argsort(distance, kind="stable")[:size] for distance in distances]


def coverage(embeddings: Arrays, logits: Arrays, size: int) -> Arrays:
    """Return the positions of the nodes with the fewest nodes of other classes nearby (CM)."""
    radius = np.mean(np.concatenate([np.linalg.norm(c - c.mean(0), axis=1) for c in embeddings]))
    chosen = []
    for number, nodes in enumerate(embeddings):
        others = [other[:MOST_OTHERS] for index, other in enumerate(embeddings) if index != number]
        intruders = sum((cdist(nodes, other) < radius).sum(1) for other in others)
        chosen.append(np.argsort(np.broadcast_to(intruders, len(nodes)), kind="stable")[:size])
    return chosen


def influence(embeddings: Arrays, logits: Arrays, size: int) -> Arrays:
    """Return the positions of the nodes whose removal would change the classifier most (IM).

    Removing a node changes the parameters by about H^-1 g, with g the gradient of its loss.
    """
    inputs = [np.concatenate([c, np.ones((len(c), 1))], axis=1).astype(np.float64) for c in embeddings]
    shares = [_softmax(c) for c in logits]
    every, share = np.concatenate(inputs), np.concatenate(shares)
    first = share.shape[1] - len(embeddings)  # these classes are the last ones
    change = np.zeros(len(every))
    truth = np.repeat(first + np.arange(len(inputs)), [len(c) for c in inputs])
    for position in range(share.shape[1]):
        curvature = share[:, position] * (1 - share[:, position])
        hessian = (every * curvature[:, None]).T @ every / len(every) + DAMPING * np.eye(every.shape[1])
        gradient = (share[:, position] - (truth == position))[:, None] * every
        change += np.square(np.linalg.solve(hessian, gradient.T)).sum(0)
    ends = np.cumsum([len(c) for c in inputs])[:-1]
    return [np.argsort(-scores, kind="stable")[:size] for scores in np.split(change, ends)]


def _softmax(logits: np.ndarray) -> np.ndarray:
    shifted = np.exp(logits.astype(np.float64) - logits.max(1, keepdims=True))
    return shifted / shifted.sum(1, keepdims=True)
