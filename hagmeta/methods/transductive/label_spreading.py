"""Label spreading (Zhou et al., NeurIPS 2003): labels spread over the graph. Features are not used."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from hagmeta.common.settings.domains import Number
from hagmeta.common.settings.setting import setting
from hagmeta.common.traits import MethodTraits
from hagmeta.layers.encoders.base import Encoder
from hagmeta.layers.subspaces import spectrum
from hagmeta.methods.base import MetaTraining, Method, MethodSettings, SessionLearning, Shared, Sizes, Task
from hagmeta.methods.closed_form.base import NO_ENCODER, SPECTRUM, labels_of
from hagmeta.sparse.graph import Graph, View, neighbour_shares

ROUNDS = 100  # with `spreading: 0.99`, the error shrinks by a factor of about 1e-6
TINY = 1e-12  # share of a class that no label reaches


@dataclass(frozen=True, kw_only=True)
class LabelSpreadingSettings(MethodSettings):
    """Settings of label spreading."""

    spreading: float = setting(
        0.99,
        "weight of the neighbours in label spreading (alpha)",
        Number(at_most=0.99, at_least=0),
        scope="method",
    )


class LabelSpreading(Method):
    """Spread labels over the visible graph, without features, until nothing changes.

    The scores are ``F = (1 - a) (I - a S)^-1 Y``. Y has the labels, S is the visible adjacency without
    self-loops, symmetrically normalised, and a is `spreading`. A fixed number of Chebyshev steps solves the
    system. A node that no label reaches gets the first class.

    We made one choice to adapt it: all classes have the same weight, however many labels they have. So each
    column of Y sums to 1. Otherwise classes with hundreds of labels would dominate classes with K.

    Labels: a class is known by its train nodes or supports, as far as `rehearsal` allows. With
    `rehearsal: none`, earlier classes are never predicted: without features, nothing describes a class but
    its labelled nodes.
    """

    own_settings = LabelSpreadingSettings
    decides: ClassVar = NO_ENCODER
    differs: ClassVar = ("smoothing", "logit_adjustment", "spreading")
    traits: ClassVar = MethodTraits(
        title="Label spreading",
        citation="Dengyong Zhou, Olivier Bousquet, Thomas Navin Lal, Jason Weston and Bernhard Schölkopf."
        " Learning with Local and Global Consistency. NeurIPS 2003.",
        transductive="labels reach it over all visible nodes, including other queries",
        closed_form=True,
    )
    meta_training = MetaTraining.NONE
    session_learning = SessionLearning.NONE
    freezes_encoder = True
    spreading: Tensor

    @classmethod
    def new_encoder(cls, settings: Any, sizes: Sizes) -> Encoder | None:
        return None

    def encode(self, shared: Shared, view: View, key: Tensor | None) -> View:
        return view

    def classify(self, shared: Shared, encoded: View, task: Task) -> Tensor:
        labels = labels_of(shared, encoded, task)
        sources = torch.maximum(encoded.learnable, labels.amax(-1)).unsqueeze(-1)
        labels = F.normalize(labels, p=1, dim=0)
        scores = spread(shared.graph, encoded, labels, self.spreading, sources)[task.query]
        return F.normalize(scores.clamp(min=0), p=1, dim=-1).clamp(min=TINY).log()

    def loss(
        self, shared: Shared, view: View, task: Task, target: Tensor, key: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        logits = self.classify(shared, view, task)
        return F.cross_entropy(logits, target), logits

    def class_statistics(self, shared: Shared, view: View, task: Task) -> tuple[Tensor, ...]:
        """Return nothing (classes, 0) of the classes."""
        return (view.visible.new_zeros(len(task.classes), 0),)

    def embeddings(self, shared: Shared, view: View, nodes: Tensor) -> Tensor:
        """Return eigenvectors of the visible graph."""
        return spectrum(shared.graph, view, SPECTRUM)[nodes]


def spread(graph: Graph, view: View, labels: Tensor, share: float | Tensor, sources: Tensor) -> Tensor:
    """Return the scores (nodes, classes) that `labels` (nodes, classes) spread to.

    Neighbours have the weight `share`. Nodes where `sources` (nodes, 1) is 0 contribute nothing to them.
    """
    shares = neighbour_shares(view.scale)
    normalised, shares = view._replace(scale=shares.sqrt()), shares.unsqueeze(-1)
    own = (1 - share) * labels

    def step(scores: Tensor) -> Tensor:
        sent = scores * sources
        return share * (graph.aggregate(sent, normalised) - shares * sent) + own

    before, scores = torch.zeros_like(own), own
    weight: float | Tensor = 2.0
    for _ in range(ROUNDS):  # Chebyshev iteration, for eigenvalues from -share to share
        weight = 1 / (1 - share * share * weight / 4)
        before, scores = scores, weight * (step(scores) - before) + before
    return scores
