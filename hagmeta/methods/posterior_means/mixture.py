"""The mixture of classes: unlabelled nodes shift class means (EM), and neighbours agree in part."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from hagmeta.layers.head import LABEL_SMOOTHING
from hagmeta.layers.statistics import LEAST
from hagmeta.methods.posterior_means.model import TwoCovariances
from hagmeta.sparse.graph import Graph, View

TEMPERATURE = 0.3  # scales log-likelihoods, because the features of a node are strongly dependent
MOST = 50.0  # maximum number of labels that the unlabelled nodes of a class can count as
ROUNDS = 3  # of EM
UPDATES_PER_ROUND, LAST_UPDATES = 2, 5  # by the neighbours' predictions
PSEUDO_LABELS = 0.5  # weight of unlabelled nodes in the targets of the encoder's steps
# If nodes of classes to come are visible:
CONFIDENT = 0.25  # share of the unlabelled nodes in these targets
EACH = 25  # unlabelled nodes of every class in them, if there are as many


class Weights(NamedTuple):
    """How much unlabelled nodes and neighbours count."""

    unlabelled: Tensor  # () relative to a labelled node
    most: Tensor  # (classes,) maximum number of labels that the unlabelled nodes of a class count as
    neighbours: Tensor  # () of the mean of their predictions, added to log-likelihoods
    rounds: int = ROUNDS  # 0: unlabelled nodes do not count
    spreads: bool = True  # False: neighbours do not count


class Nodes(NamedTuple):
    """The nodes of one seed."""

    labels: Tensor  # (nodes, classes) 1 for each label that may be read
    unlabelled: Tensor  # (nodes, 1) 1 for visible nodes without one
    rows: Tensor  # (visible,) the visible nodes in ascending order: those of the model


def fit(
    model: TwoCovariances, counts: Tensor, fixed: int, nodes: Nodes, neighbours: Neighbours, weights: Weights
) -> Tensor:
    """Return logits (nodes, classes).

    Args:
        model: the likelihood of a node in a class, given counts and sums over labelled nodes.
        counts: (classes,) labels per class.
        fixed: how many of the first classes keep the means of their labels.
        nodes: labels, and which nodes are unlabelled.
        neighbours: averages over the neighbours of a node.
        weights: how much unlabelled nodes and neighbours count.
    """
    labels, unlabelled, rows = nodes
    likely = torch.zeros_like(labels)  # not used for hidden nodes
    likely[rows] = TEMPERATURE * model.log_likelihood(counts, model.total, model.inner)

    def updated(times: int) -> Tensor:
        """Return logits (nodes, classes) after `times` updates by the neighbours' predictions."""
        logits = likely
        for _ in range(times if weights.spreads else 0):
            predicted = logits.softmax(-1).mul_(unlabelled).add_(labels)
            logits = torch.addcmul(likely, neighbours.mean(predicted), weights.neighbours)
        return logits

    for _ in range(weights.rounds if len(counts) > fixed else 0):
        shares = weights.unlabelled * unlabelled * updated(UPDATES_PER_ROUND).softmax(-1)[:, fixed:]
        shares = shares * (weights.most[fixed:] / shares.sum(0).clamp(min=LEAST)).clamp(max=1)
        sums = model.total[fixed:] + model.sums(shares[rows])
        likely[rows, fixed:] = TEMPERATURE * model.log_likelihood(counts[fixed:] + shares.sum(0), sums)
    return updated(LAST_UPDATES)


class Neighbours:
    """Averages over the visible neighbours of each node."""

    def __init__(self, graph: Graph, view: View) -> None:
        self._graph, self._view = graph, view._replace(scale=view.visible)  # propagation is then a plain sum
        self._share = 1 / (view.log_degree.exp() - 1).clamp(min=1).unsqueeze(-1)

    def mean(self, values: Tensor) -> Tensor:
        """Return neighbour averages (nodes, columns) of `values`, which are zero for nodes to ignore."""
        return self._sum(values).mul_(self._share)

    def agreement(self, labels: Tensor) -> Tensor:
        """Return how much more often labelled neighbours share a class than by chance, as a tensor (1,).

        `labels` is (nodes, classes).
        """
        seen = self._sum(labels)  # (nodes, classes) labelled neighbours per class
        pairs = labels.mT @ seen  # (classes, classes)
        edges = pairs.sum().clamp(min=1)
        chance = (pairs.sum(0) / edges).square().sum()
        return (
            ((pairs.diagonal().sum() / edges - chance) / (1 - chance).clamp(min=LEAST)).clamp(min=0).view(1)
        )

    def _sum(self, values: Tensor) -> Tensor:
        return self._graph.aggregate(values, self._view) - values  # propagation includes the node itself


def smoothed_shares(labels: Tensor) -> Tensor:
    """Return smoothed shares of the labelled nodes in each class (nodes, classes); each column sums to 1."""
    shares = labels / labels.sum(0)
    return (1 - LABEL_SMOOTHING) * shares + LABEL_SMOOTHING * shares.mean(-1, keepdim=True)


def target_shares(labelled: Tensor, predicted: Tensor) -> Tensor:
    """Return the mix of the `labelled` shares and the probabilities `predicted` of unlabelled nodes.

    All are (nodes, classes).
    """
    return (1 - PSEUDO_LABELS) * labelled + PSEUDO_LABELS * predicted / predicted.sum(0).clamp(min=1)


def most_confident(predicted: Tensor) -> Tensor:
    """Return `predicted` (nodes, classes), but zeros for all nodes except the most confident ones.

    These are the most confident `CONFIDENT` of all nodes, and the `EACH` most confident nodes of every class.
    Nodes whose probabilities are all zero do not count. Of equally confident nodes, all or none stay.
    """
    highest = predicted.amax(-1)
    count = (CONFIDENT * (highest > 0).sum()).long().clamp(min=1).view(1)
    least = highest.sort(descending=True).values.gather(0, count - 1)
    winners = predicted * (predicted == highest.unsqueeze(-1))  # zeros but for the most probable class
    of_class = winners.topk(min(EACH, len(winners)), 0).values[-1].clamp(min=LEAST)
    return predicted * ((highest >= least) | (winners >= of_class).any(-1)).unsqueeze(-1)
