"""TLP (Tan et al., LoG 2022): transductive linear probing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from hagmeta.common.settings.domains import HIGHEST_WEIGHT, Number
from hagmeta.common.settings.setting import setting
from hagmeta.common.traits import MethodTraits
from hagmeta.layers.logistic import Chunk, chunk, logistic_regression
from hagmeta.layers.statistics import CHUNK, LabelledRows
from hagmeta.methods.base import (
    COMMON,
    MetaTraining,
    Method,
    MethodSettings,
    SessionLearning,
    Shared,
    Task,
)
from hagmeta.sparse.graph import Graph, View

LEAST = 1e-12  # minimum range of a column


@dataclass(frozen=True, kw_only=True)
class TlpSettings(MethodSettings):
    """Settings of TLP."""

    probe_penalty: float = setting(
        1.0,
        "L2 penalty of the logistic regression (1 / C in scikit-learn)",
        Number(at_most=HIGHEST_WEIGHT, above=0),
        scope="method",
    )


class Encoded(NamedTuple):
    """The output of the encoder, and the range of its columns."""

    features: Tensor  # (nodes, width)
    low: Tensor  # (width,) smallest value of each column over visible nodes
    span: Tensor  # (width,) largest minus smallest value

    def scaled(self, rows: Tensor) -> Tensor:
        """Return `rows` (..., width) with the values of visible nodes scaled to 0 to 1."""
        return (rows - self.low) / self.span


class Tlp(Method):
    """A frozen encoder, and logistic regression on its output, solved again in each session.

    We made these choices to adapt TLP to this task:

    - The encoder is pre-trained on the labels of known classes, as in the supervised variant of the paper.
      The paper's other variants are pre-trained by contrastive losses such as GRACE, without labels. GRACE
      drops edges at random in each step. Here all seeds and steps share one adjacency matrix.
    - One regression classifies all classes met so far. The paper solves one for each N-way K-shot task.
    - All classes have the same weight. Otherwise classes with hundreds of labels would dominate classes with
      K. The loss is that of scikit-learn's `LogisticRegression` with C = 1 and balanced class weights.
    - A fixed number of Newton steps solves it. They reach the minimum for a `probe_penalty` of 0.1 or more.
      With less they may stop shortly before it. The paper's solver stops by itself.

    The penalty is C = 1, as published. It weighs more when there are fewer labels in total. With
    `rehearsal: M` and a small M it dominates, and new classes are rarely predicted. A smaller `probe_penalty`
    helps then.

    Columns are scaled to 0 to 1 over all visible nodes, queries included.

    Labels: a class is known by its train nodes or supports, as far as `rehearsal` allows. With
    `rehearsal: none`, only the mean of its labelled nodes is kept, and their number. The mean then counts as
    that many equal nodes. Under `released` predictions are made in the same way, without a step on the
    queries.
    """

    own_settings = TlpSettings
    differs: ClassVar = (*COMMON, "probe_penalty")
    traits: ClassVar = MethodTraits(
        title="TLP",
        citation="Zhen Tan, Song Wang, Kaize Ding, Jundong Li and Huan Liu. Transductive Linear Probing: A"
        " Novel Framework for Few-Shot Node Classification. LoG 2022.",
        transductive="it scales features by their range over all visible nodes",
    )
    meta_training = MetaTraining.NONE
    session_learning = SessionLearning.NONE
    freezes_encoder = True
    probe_penalty: Tensor

    def fixed_features(self, graph: Graph, view: View) -> Tensor:
        """Return the output of the frozen encoder (nodes, width)."""
        return self.encoder(graph, view, None).all()

    def encode(self, shared: Shared, view: View, key: Tensor | None) -> Encoded:
        features = self._features(shared, view)
        hidden = (view.learnable == 0).unsqueeze(-1)
        low = features.masked_fill(hidden, torch.inf).amin(0)
        high = features.masked_fill(hidden, -torch.inf).amax(0)
        return Encoded(features, low, (high - low).clamp(min=LEAST))

    def classify(self, shared: Shared, encoded: Encoded, task: Task) -> Tensor:
        groups = self._known(shared, encoded.scaled(encoded.features), task)
        counts = torch.cat([*task.class_statistics[1:], *(group.counts() for group in groups)])
        chunks = self._chunks(groups, encoded, task)
        weights = logistic_regression(chunks, self.probe_penalty * len(task.classes) / counts.sum())
        query = encoded.scaled(encoded.features[task.query])
        return query @ weights[:-1] + weights[-1]

    def class_statistics(self, shared: Shared, view: View, task: Task) -> tuple[Tensor, ...]:
        groups = self._known(shared, self._features(shared, view), task)
        means, counts = (task.class_statistics[:1], task.class_statistics[1:])
        return (
            torch.cat([*means, *(group.means() for group in groups)]),
            torch.cat([*counts, *(group.counts() for group in groups)]),
        )

    def _features(self, shared: Shared, view: View) -> Tensor:
        """Return the output of the encoder (nodes, width), from the view if it is cached there."""
        (features,) = view.fixed_features or (self.fixed_features(shared.graph, view),)
        return features

    @staticmethod
    def _known(shared: Shared, features: Tensor, task: Task) -> list[LabelledRows]:
        """Return the labelled rows of the classes known by averages, then of those known by supports."""
        found = []
        if len(task.averaged):
            nodes, share = shared.class_means.nodes(task.averaged, CHUNK)
            found.append(LabelledRows(nodes, share, features.__getitem__, shared.class_means.most_labels))
        if len(task.support):
            alike = torch.full_like(features[task.support, 0], 1 / task.support.shape[-1])
            found.append(LabelledRows(task.support, alike, features.__getitem__))
        return found

    @staticmethod
    def _chunks(groups: list[LabelledRows], encoded: Encoded, task: Task) -> list[Chunk]:
        """Return the labelled rows of all classes. The weights of each class sum to 1."""
        found, classes, first = [], len(task.classes), 0
        if task.class_statistics:
            means = encoded.scaled(task.class_statistics[0])
            owner = torch.arange(len(means), device=means.device).unsqueeze(-1)
            found.append(chunk(means, torch.ones_like(means[:, :1]), owner, classes))
            first = len(means)
        for group in groups:
            found += [chunk(rows, share, first + owner, classes) for rows, share, owner in group.chunks()]
            first += len(group.nodes)
        return found
