"""Base classes of methods with a closed-form head, which take no gradient steps in sessions."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hagmeta.common.settings.domains import Choice, Number, Whole
from hagmeta.common.settings.setting import BY_METHOD, setting
from hagmeta.common.traits import MethodTraits
from hagmeta.layers.encoders.base import Encoder
from hagmeta.layers.statistics import CHUNK, LabelledRows
from hagmeta.layers.subspaces import leading_words, spectrum
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
from hagmeta.packs.randomness import seeded
from hagmeta.sparse.graph import Graph, View

SPECTRUM = 64  # number of graph eigenvectors
NODES_PER_RANDOM_FEATURE = 20  # at least; with fewer nodes per column, the covariance is mostly noise
# Settings that only an encoder or its pre-training uses.
OF_THE_ENCODER = (
    *("inputs", "encoder", "hidden", "embedding", "heads", "dropout"),
    *("learning_rate", "weight_decay", "pretrain_epochs", "pretrain_patience", "pretrain_on", "classifier"),
)
# What a method without an encoder decides, so that these settings are neither sampled nor recorded.
NO_ENCODER: Mapping[str, Any] = {
    **{"encoder": "gcn", "inputs": "raw", "hidden": 32, "embedding": 16, "dropout": 0.5},
    **{"learning_rate": 0.005, "weight_decay": 0.0005, "pretrain_epochs": 0, "pretrain_patience": 10},
    **{"pretrain_on": "known", "classifier": "linear"},
}


@dataclass(frozen=True, kw_only=True)
class ClosedFormSettings(MethodSettings):
    """Settings of the features that a closed-form head uses."""

    features: str = setting(
        "both",
        "inputs of the head: input features propagated over the graph (propagated), the output of the"
        " pre-trained encoder (encoder), or both",
        Choice(("propagated", "encoder", "both")),
        scope="method",
    )
    hops: int = setting(
        3,
        "use propagated features of hops 0 to HOPS",
        Whole(at_least=0, at_most=16),
        scope="method",
    )
    refitted: bool = setting(
        BY_METHOD,
        "recompute the SVD basis in every session and append graph eigenvectors",
        scope="method",
    )
    tukey: float = setting(
        BY_METHOD,
        "raise features to this power and keep their signs (Tukey's ladder; 1: off)",
        Number(at_most=1, above=0),
        scope="method",
        branches=(0.5, 1),
    )
    random_features: int = setting(
        BY_METHOD,
        "append this many random ReLU projections of the features, at most one per"
        f" {NODES_PER_RANDOM_FEATURE} nodes of the graph (0: none)",
        Whole(at_least=0, at_most=4096),
        scope="method",
    )

    def without_effect(self) -> Mapping[str, str]:
        if self.features == "encoder":
            return {"hops": "features", "refitted": "features"}
        idle = dict.fromkeys(OF_THE_ENCODER, "features") if self.features == "propagated" else {}
        # A new basis would invalidate the statistics that are kept from earlier sessions.
        return idle | ({"refitted": "rehearsal"} if self.rehearsed == 0 else {})


def random_directions(seed: int, purpose: str, width: int, columns: int) -> nn.Parameter:
    """Return a random projection (width, columns), drawn from `seed` for `purpose` and never trained."""
    return seeded(
        seed, f"init/{purpose}", lambda: nn.Parameter(torch.randn(width, columns), requires_grad=False)
    )


def random_columns(features: Tensor, directions: Tensor) -> Tensor:
    """Return the random features (nodes, columns) of `features` (nodes, width)."""
    return F.normalize((features @ directions).relu(), dim=-1)


class OnFeatures(Method):
    """A head that is computed in every session without gradients, on fixed features.

    The features have up to four parts. Each part is scaled to unit length:

    - Propagated inputs, after 0, 1, ... `hops` rounds of GCN propagation over the visible graph. For word
      counts these are the columns of `inputs: svd`, even if the encoder has other inputs. The covariance of
      thousands of words would be too large. Other features are used as they are if they have at most 128
      columns; wider ones are reduced in the same way, without tf-idf.
    - The output of the encoder, pre-trained on the train labels of all known classes, as in `frozen`. With
      `features: propagated` there is no encoder, and nothing is pre-trained.
    - With `refitted`: the leading eigenvectors of the propagation over the visible graph. The SVD basis of
      the words is then also computed in each session, from the nodes that are visible in it.
    - With `random_features`: a random projection of all other parts, after ReLU, drawn once per seed.

    With `tukey`, each part is raised to a power and scaled to unit length again.

    Labels: a class is known by its train nodes or supports, as far as `rehearsal` allows. All classes have
    the same weight, however many labels they have. With `rehearsal: none` the statistics of a class stay as
    computed in its session, on the graph of that time: its mean, and its share in a sum of covariances.
    Under `released` predictions are made in the same way, without a step on the queries.
    """

    differs: ClassVar = (*COMMON, "tukey")
    defaults: ClassVar = {
        "hidden": 64,
        "embedding": 64,
        "classifier": "cosine",
        "refitted": False,
        "tukey": 1.0,
        "random_features": 0,
    }
    traits: ClassVar = MethodTraits(title="OnFeatures", closed_form=True)
    meta_training = MetaTraining.NONE
    session_learning = SessionLearning.NONE
    freezes_encoder = True
    tukey: Tensor

    def __init__(self, settings: ClosedFormSettings, sizes: Sizes, seed: int) -> None:
        super().__init__(settings, sizes, seed)
        self.features, self.hops, self.narrow = settings.features, settings.hops, sizes.narrow
        self.refitted = self.refits_words(settings)
        self.width = self.narrow_columns(settings, sizes.narrow) + SPECTRUM * self.refitted
        self.width += settings.embedding if self.has_encoder(settings) else 0
        self.power = settings.tukey if settings.tukey in (0.5, 1) else None  # None: `tukey`
        self.random_features = min(settings.random_features, sizes.nodes // NODES_PER_RANDOM_FEATURE)
        if self.random_features:
            self.directions = random_directions(seed, "random_features", self.width, self.random_features)
            self.width += self.random_features

    @classmethod
    def new_encoder(cls, settings: ClosedFormSettings, sizes: Sizes) -> Encoder | None:
        return super().new_encoder(settings, sizes) if cls.has_encoder(settings) else None

    @classmethod
    def has_encoder(cls, settings: ClosedFormSettings) -> bool:
        """Return whether a configuration has an encoder to pre-train."""
        return settings.features != "propagated"

    @classmethod
    def narrow_columns(cls, settings: ClosedFormSettings, columns: int) -> int:
        return 0 if settings.features == "encoder" else (settings.hops + 1) * columns

    @classmethod
    def refits_words(cls, settings: Any) -> bool:
        return bool(settings.refitted) and "refitted" not in settings.idle

    def all_features(self, graph: Graph, view: View) -> Tensor:
        """Return the features (nodes, width)."""
        features = self.narrow_features(graph, view, self.sources(graph, view))
        if not self.random_features:
            return features
        return torch.cat([random_columns(features, self.directions), features], dim=-1)

    def sources(self, graph: Graph, view: View) -> tuple[Tensor, ...]:
        """Return the arrays (nodes, columns) from which all features are computed: inputs come first."""
        inputs = () if self.features == "encoder" else (self.inputs_of(graph, view),)
        learnt = () if self.features == "propagated" else (self.encoder(graph, view, None).all(),)
        own = (spectrum(graph, view, SPECTRUM),) if self.refitted else ()
        # Columns that gradient steps change come last, so that posterior-means computes the others once.
        return inputs + (learnt + own if self.freezes_encoder else own + learnt)

    def narrow_features(
        self, graph: Graph, view: View, sources: Sequence[Tensor], rows: Tensor | None = None
    ) -> Tensor:
        """Return all features but the random ones (nodes, columns), of some `rows` or of all nodes."""
        parts = list(sources)
        for hop in range(0 if self.features == "encoder" else self.hops):
            parts.insert(hop + 1, graph.aggregate(parts[hop], view))
        chosen = parts if rows is None else [part[rows] for part in parts]
        return torch.cat([self._scaled(part) for part in chosen], dim=-1)

    def inputs_of(self, graph: Graph, view: View) -> Tensor:
        """Return the inputs (nodes, columns) before propagation."""
        if self.refitted and view.narrow:  # empty if the features are used as they are
            return leading_words(graph, view, self.narrow)
        return graph.narrow_inputs(view, torch.eye(self.narrow, device=graph.device))

    def features_of(self, shared: Shared, view: View) -> Tensor:
        """Return the features (nodes, width), from the view if they are cached there."""
        (features,) = view.fixed_features or (self.all_features(shared.graph, view),)
        return features

    def embeddings(self, shared: Shared, view: View, nodes: Tensor) -> Tensor:
        return self.features_of(shared, view)[nodes]

    def _scaled(self, part: Tensor) -> Tensor:
        """Return one part of the features (nodes, columns), transformed and scaled to unit length."""
        part = F.normalize(part, dim=-1)
        if self.power == 1:
            return part
        # With a tensor as exponent, a power of a half would not be rounded like the square root.
        power = self.power or self.tukey + torch.zeros_like(part)
        return F.normalize(part.sign() * part.abs() ** power, dim=-1)

    def transformed(self, rows: Tensor) -> Tensor:
        """Return the transformed features (..., width) that the head works on."""
        return rows

    def known(self, shared: Shared, features: Tensor, task: Task) -> list[LabelledRows]:
        """Return the labelled rows of the classes known by averages, then of those known by supports."""

        def rows(nodes: Tensor) -> Tensor:
            return self.transformed(features[nodes])

        found = []
        if len(task.averaged):
            nodes, share = shared.class_means.nodes(task.averaged, CHUNK)
            found.append(LabelledRows(nodes, share, rows, shared.class_means.most_labels))
        if len(task.support):
            alike = torch.full_like(features[task.support, 0], 1 / task.support.shape[-1])
            found.append(LabelledRows(task.support, alike, rows))
        return found


class ClosedForm(OnFeatures):
    """A head computed from class means and covariances.

    In revision 1 of these methods, the signs of refitted columns, and the choice among eigenvectors of equal
    eigenvalues, depended on the device.
    """

    def fixed_features(self, graph: Graph, view: View) -> Tensor:
        return self.all_features(graph, view)

    def encode(self, shared: Shared, view: View, key: Tensor | None) -> Tensor:
        return self.features_of(shared, view)

    def classify(self, shared: Shared, encoded: Tensor, task: Task) -> Tensor:
        return self.answer(self.statistics(shared, encoded, task), self.transformed(encoded[task.query]))

    def class_statistics(self, shared: Shared, view: View, task: Task) -> tuple[Tensor, ...]:
        return self.statistics(shared, self.features_of(shared, view), task)

    def statistics(self, shared: Shared, features: Tensor, task: Task) -> tuple[Tensor, ...]:
        """Return the class means (classes, width) of `task`, and the sum of the class covariances."""
        return moments(self.known(shared, features, task), task.class_statistics)

    @abstractmethod
    def answer(self, statistics: Any, query: Tensor) -> Tensor:
        """Return logits (queries, classes) of transformed queries (queries, width)."""


def labels_of(shared: Shared, view: View, task: Task) -> Tensor:
    """Return an array (nodes, classes) with 1 for each label that may be read now."""
    nodes = torch.arange(shared.graph.num_nodes, device=view.visible.device)
    few = (nodes[:, None, None] == task.support).any(-1)
    many = [shared.class_means.shares(task.averaged).mT > 0] if len(task.averaged) else []
    gone = few.new_zeros(len(nodes), len(task.classes) - len(task.averaged) - len(task.support))
    return torch.cat([gone, *many, few], -1).to(view.visible.dtype)


def moments(known: Sequence[LabelledRows], kept: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Return class means (classes, width) and the sum of the class covariances; `kept` classes come first."""
    means, scatters = [*kept[:1]], [*kept[1:]]
    for each in known:
        means.append(each.means())
        scatters.append(each.scatter(means[-1]))
    return torch.cat(means), torch.stack(scatters).sum(0)
