"""ER-GNN (Zhou and Cao, AAAI 2021): experience replay against forgetting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from scipy.spatial.distance import cdist
from torch import Tensor

from hagmeta.common.settings import setting
from hagmeta.common.traits import MethodTraits
from hagmeta.methods.base import MethodSettings, Shared, Task
from hagmeta.methods.growing import GrowingMethod
from hagmeta.sparse.graph import View

Arrays = list[np.ndarray]  # one a class, a row a candidate
MOST_OTHERS = 1000  # nodes of another class that coverage compares with
DAMPING = 0.01  # keeps a Hessian invertible


@dataclass(frozen=True, kw_only=True)
class ErGnnSettings(MethodSettings):
    """How the nodes to replay are chosen."""

    selection: str = setting(
        "mean",
        "which nodes to keep: closest to the class mean (mean), with the fewest nodes of other classes nearby"
        " (coverage), or with the most influence on the classifier (influence)",
        choices=("mean", "coverage", "influence"),
    )


class ErGnn(GrowingMethod):
    """A growing linear classifier; each session learns its supports and replays what it kept before.

    What had to be decided, since ER-GNN is neither few-shot nor class-incremental:
    - the base and novel-train classes are its first task, learnt from all their train nodes; each session
      is one more, of K supports a class;
    - the classifier grows, and always answers among all classes met; a new row starts at its supports' mean;
    - nodes are kept by their embeddings (the publication's MF*, CM*), after the task that brought them;
    - coverage takes the mean distance of nodes to their class's mean as its radius;
    - influence is that on the classifier, with a Hessian of one block a class: the encoder is held fixed.
    Labels: no more nodes are kept of a class than `rehearsal` allows. With none nothing is replayed: only the
    rows of the classifier are left of a class, and the new nodes have their half of the loss.
    Under `released` a session brings labelled queries of every class: they are what is replayed.
    """

    own_settings = ErGnnSettings
    traits: ClassVar = MethodTraits(
        title="ER-GNN",
        citation="Fan Zhou and Chengtai Cao. Overcoming Catastrophic Forgetting in Graph Neural Networks with"
        " Experience Replay. AAAI 2021.",
    )

    def session_loss(
        self, shared: Shared, view: View, task: Task, target: Tensor, key: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        logits = self.classify(shared, self.encode(shared, view, key), task)
        weights = replay_weights(target >= len(task.classes) - shared.task_sizes[-1])
        return (weights * F.cross_entropy(logits, target, reduction="none")).sum(), logits

    @classmethod
    def select(cls, settings: ErGnnSettings, embeddings: Arrays, logits: Arrays, size: int) -> Arrays:
        rules = {"mean": mean_of_feature, "coverage": coverage, "influence": influence}
        return rules[settings.selection](embeddings, logits, size)


def replay_weights(new: Tensor) -> Tensor:
    """Each node's weight in b L_new + (1 - b) L_replayed, with b the replayed nodes' share of all.

    Both are sums over their nodes, so that either has the same weight, whatever their numbers; here one half.
    """
    return torch.where(new, 0.5 / new.sum(), 0.5 / (~new).sum())


def mean_of_feature(embeddings: Arrays, logits: Arrays, size: int) -> Arrays:
    """MF: the nodes of each class that are nearest to its mean."""
    distances = [np.linalg.norm(nodes - nodes.mean(0), axis=1) for nodes in embeddings]
    return [np.argsort(distance, kind="stable")[:size] for distance in distances]


def coverage(embeddings: Arrays, logits: Arrays, size: int) -> Arrays:
    """CM: the nodes of each class with the fewest nodes of other classes around them."""
    radius = np.mean(np.concatenate([np.linalg.norm(c - c.mean(0), axis=1) for c in embeddings]))
    chosen = []
    for number, nodes in enumerate(embeddings):
        others = [other[:MOST_OTHERS] for index, other in enumerate(embeddings) if index != number]
        intruders = sum((cdist(nodes, other) < radius).sum(1) for other in others)
        chosen.append(np.argsort(np.broadcast_to(intruders, len(nodes)), kind="stable")[:size])
    return chosen


def influence(embeddings: Arrays, logits: Arrays, size: int) -> Arrays:
    """IM: the nodes of each class without which the classifier would change most.

    To leave out a node changes parameters by about H^-1 g, with g the gradient of its loss.
    """
    inputs = [np.concatenate([c, np.ones((len(c), 1))], axis=1).astype(np.float64) for c in embeddings]
    shares = [_softmax(c) for c in logits]
    every, share = np.concatenate(inputs), np.concatenate(shares)
    first = share.shape[1] - len(embeddings)  # the position of the first of these classes
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
