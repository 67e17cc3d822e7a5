"""Base class of closed-form methods that also use the visible unlabelled nodes."""

from __future__ import annotations

from abc import abstractmethod
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from hagmeta.methods.base import Shared, Task
from hagmeta.methods.closed_form.base import OnFeatures, labels_of
from hagmeta.sparse.graph import Graph, View


class Encoded(NamedTuple):
    """The features of all nodes, and the view that they were computed on."""

    features: Tensor  # (nodes, width)
    view: View


class Known(NamedTuple):
    """What the labels tell."""

    means: Tensor  # (classes, width) class means of the points
    counts: Tensor  # (classes,) labels per class
    free: Tensor  # (nodes, 1) 1 for unlabelled nodes that may be learnt from


class WithUnlabelled(OnFeatures):
    """A closed-form head that learns from all visible unlabelled nodes together, and predicts them.

    Its points are the features, centred and scaled to unit length. The centre is the mean of the class means
    that are known by many labels. With `rehearsal: none` it stays as computed at session 0, like the means
    and counts of earlier classes. Nodes whose labels are gone then count as unlabelled.
    """

    def fixed_features(self, graph: Graph, view: View) -> Tensor:
        return self.all_features(graph, view)

    def encode(self, shared: Shared, view: View, key: Tensor | None) -> Encoded:
        return Encoded(self.features_of(shared, view), view)

    def classify(self, shared: Shared, encoded: Encoded, task: Task) -> Tensor:
        features, view = encoded
        means, counts, centre = self.statistics(shared, features, task)
        labelled = labels_of(shared, view, task).amax(-1, keepdim=True)
        known = Known(means, counts, view.learnable.unsqueeze(-1) * (1 - labelled))
        return self.answer_all(shared, view, _points(features, centre), known)[task.query]

    def class_statistics(self, shared: Shared, view: View, task: Task) -> tuple[Tensor, ...]:
        return self.statistics(shared, self.features_of(shared, view), task)

    def statistics(self, shared: Shared, features: Tensor, task: Task) -> tuple[Tensor, ...]:
        """Return class means (classes, width) of the points, labels per class, and the centre (width,)."""
        means, counts, centres = (
            task.class_statistics[:1],
            task.class_statistics[1:2],
            task.class_statistics[2:],
        )
        if not centres:
            (many, *_) = self.known(shared, features, task)
            centres = (many.means().mean(0),)
        found = self.known(shared, _points(features, *centres), task)
        means += tuple(of.means() for of in found)
        counts += tuple(of.counts() for of in found)
        return torch.cat(means), torch.cat(counts), *centres

    @abstractmethod
    def answer_all(self, shared: Shared, view: View, points: Tensor, known: Known) -> Tensor:
        """Return logits (nodes, classes) of all nodes, given their points (nodes, width)."""


def _points(features: Tensor, centre: Tensor) -> Tensor:
    return F.normalize(features - centre, dim=-1)


def squared_distances(points: Tensor, means: Tensor) -> Tensor:
    """Return squared distances (points, means) of `points` of unit length (points, width)."""
    return 1 + means.square().sum(-1) - points @ (2 * means).mT
