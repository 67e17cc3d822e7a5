"""Posterior means: its settings, and what the engine asks of it."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from hagmeta.common.settings.domains import HIGHEST_WEIGHT, Number
from hagmeta.common.settings.setting import setting
from hagmeta.common.traits import MethodTraits
from hagmeta.layers.head import cosine_logits
from hagmeta.methods.base import COMMON, SessionLearning, Shared, Sizes, Task
from hagmeta.methods.closed_form.base import ClosedFormSettings, OnFeatures, labels_of, random_columns
from hagmeta.methods.posterior_means import mixture
from hagmeta.methods.posterior_means.evidence import Evidence, exemplar_means, kept_today
from hagmeta.methods.posterior_means.mixture import (
    MOST,
    ROUNDS,
    TEMPERATURE,
    Neighbours,
    Nodes,
    Weights,
    most_confident,
    smoothed_shares,
    target_shares,
)
from hagmeta.methods.posterior_means.model import NODES, TwoCovariances, Whitened, Within, whiten
from hagmeta.methods.posterior_means.shrinkage import DRAWS, chosen_share
from hagmeta.packs.each_seed import each_seed, padded
from hagmeta.packs.pack import Parameters
from hagmeta.packs.randomness import fold, keys, uniform, uniform_at
from hagmeta.sparse.graph import Graph, View

CERTAINTY = 0.3  # scales logits, because neighbours and unlabelled nodes partly repeat the features
EXCESS = 0.5  # maximum excess, in nats, of the penalty for an uncertain class mean
UNNAMED = 1.0  # labels that a class without a name counts as having, at the mean of the new classes
RETURN = 0.75  # how far the encoder goes back to that of session 0 if nodes of classes to come are visible
UNLABELLED_NODES = {  # what visible unlabelled nodes do, by the setting that enables it
    "unlabelled_weight": "shift its class means",
    "propagation_weight": "use their neighbours' predictions",
    "finetune_steps": "train its encoder",
}


@dataclass(frozen=True, kw_only=True)
class PosteriorMeansSettings(ClosedFormSettings):
    """Settings of posterior means: the weight of unlabelled nodes and of neighbours."""

    unlabelled_weight: float = setting(
        0.1,
        "weight of an unlabelled node relative to a labelled one (0: ignore unlabelled nodes)",
        Number(at_least=0, at_most=1),
        scope="method",
        branches=(0,),
    )
    propagation_weight: float = setting(
        4.0,
        "weight of the neighbours' predictions, scaled by how often labelled neighbours share a class"
        " (0: ignore neighbours)",
        Number(at_least=0, at_most=HIGHEST_WEIGHT),
        scope="method",
        branches=(0,),
    )
    simulated_sessions: bool = setting(
        True,
        "choose the shrinkage of the covariance by simulated sessions of the known classes; without, or with"
        " fewer than four known classes, it depends on the number of labels",
        scope="method",
    )
    capped_penalty: bool = setting(
        True,
        "limit the penalty for an uncertain class mean if unlabelled nodes vary less than the covariance",
        scope="method",
    )

    def without_effect(self) -> Mapping[str, str]:
        # Steps of the encoder would invalidate the statistics that are kept from earlier sessions.
        stays = "features" if self.features == "propagated" else "rehearsal" if self.rehearsed == 0 else ""
        return dict.fromkeys(("finetune_steps", "finetune_rate"), stays) if stays else {}


def transductive_clause(names: Iterable[str]) -> str:
    """Return why predictions depend on unlabelled nodes, given keys of `UNLABELLED_NODES`."""
    *others, last = [UNLABELLED_NODES[name] for name in names] or [""]
    done = f"{', '.join(others)} and {last}" if others else last
    return f"visible unlabelled nodes, including queries, {done}" if done else ""


class PosteriorMeans(OnFeatures):
    """Gaussian classes whose means are drawn from another Gaussian; predictions are posteriors.

    The classes known at session 0 have many labels. From them the method estimates how features vary within
    a class, and how class means vary (a two-covariance model, as in probabilistic LDA). So the mean of a
    class with K labels has a posterior. It is shrunk towards the mean of all classes, most strongly in
    directions where classes hardly differ. Its remaining uncertainty widens the class.

    At session 0 it chooses how far to shrink the within-class covariance. For this it simulates sessions, in
    which some of the known classes are new and have K labels each.

    Visible unlabelled nodes then count as labels of their likely classes, in fractions (EM). Nodes also use
    the predictions of their neighbours, weighted by how often labelled neighbours share a class. In a session
    the encoder takes a few steps towards these predictions, which are then computed again.
    docs/results/our_method.md has the derivation.

    Labels: as in the other closed-form methods; the encoder's steps read the same labels. If fewer than 50
    labels per class may be read again, the method keeps the sums, counts and covariances of earlier sessions.
    These stay as computed on the graph of that time, and the encoder does not learn. As the graph grows,
    class means move, so kept labels count less, and class means vary more. The unlabelled nodes of a class
    then count at most as much as its labels. The labels that may be read again tell how far the mean of a
    class moved. The method ignores the time at which a node became visible.
    """

    own_settings = PosteriorMeansSettings
    differs: ClassVar = (*COMMON, "unlabelled_weight", "propagation_weight", "tukey")
    defaults: ClassVar = {"refitted": True, "random_features": 1000, "hidden": 128, "embedding": 128}
    traits: ClassVar = MethodTraits(
        title="Posterior means",
        citation="Proposed in this study; docs/results/our_method.md has the derivation.",
        role="proposed",
        transductive=transductive_clause(UNLABELLED_NODES),
        closed_form=True,
        # 2: predictions are much less confident. 3: the encoder learns in sessions. 4: with few labels to
        # read again, earlier statistics are kept. 5: the encoder's steps are taken in two halves. 6: random
        # features stay the same after the encoder's steps, and variances are shrunk to the mean of all
        # columns but the encoder's. 7: the signs of refitted columns, and the choice among eigenvectors of
        # equal eigenvalues, no longer depend on the device. 8: shrinkage is chosen with simulated sessions,
        # some unlabelled nodes belong to no class, and kept labels count less. 9: with `visibility: whole`,
        # only the most confident unlabelled nodes train the encoder. 10: the penalty for an uncertain mean is
        # limited where shrinkage makes the covariance too large. 11: kept class means move with exemplars.
        # With `visibility: whole`, 25 nodes of each class train the encoder too, it goes back towards that of
        # session 0, and the penalty is limited in predictions. 12: no outlier class and no Tukey power,
        # fewer random features; without labels to read again, class means vary more.
        revision=12,
    )
    session_learning = SessionLearning.PSEUDO_LABELS
    freezes_encoder = False
    rereads_from = 50
    unlabelled_weight: Tensor
    propagation_weight: Tensor
    key: Tensor

    def __init__(self, settings: Any, sizes: Sizes, seed: int) -> None:
        super().__init__(settings, sizes, seed)
        self.uses_unlabelled, self.uses_neighbours = (
            settings.unlabelled_weight > 0,
            settings.propagation_weight > 0,
        )
        self.simulates, self.shots = settings.simulated_sessions, settings.k_shot
        self.share = nn.Parameter(torch.zeros(1), requires_grad=False)  # 0: not chosen
        self.register_buffer("key", torch.tensor(int(keys([seed], "played_classes"))), persistent=False)
        self.learns = self.teaches_encoder(settings)
        self.of_encoder = settings.embedding if self.has_encoder(settings) else 0  # the last columns
        self.doubts = settings.visibility == "whole"  # then nodes of classes to come are visible
        self.returns = self.doubts and self.learns
        if self.returns:
            self.origin = copy.deepcopy(self.encoder).requires_grad_(False)  # the encoder of session 0
        self.limits = settings.capped_penalty
        self.few_of_all = bool(settings.rehearsed)  # even classes known at session 0 have few labels

    @classmethod
    def traits_of(cls, settings: Any) -> MethodTraits:
        used = {
            "unlabelled_weight": settings.unlabelled_weight > 0,
            "propagation_weight": settings.propagation_weight > 0,
            "finetune_steps": cls.teaches_encoder(settings),
        }
        clause = transductive_clause([name for name, it_is in used.items() if it_is])
        return replace(super().traits_of(settings), transductive=clause)

    @classmethod
    def teaches_encoder(cls, settings: Any) -> bool:
        """Return whether the encoder of a configuration takes steps in sessions."""
        return settings.finetune_steps > 0 and "finetune_steps" not in settings.idle

    def after_training(self, shared: Shared, view: View, task: Task) -> Parameters:
        """Return the share of equal variances in the within-class covariance, and a copy of the encoder."""
        encoder = self.encoder.named_parameters() if self.returns else ()
        chosen: Parameters = {f"origin.{name}": value for name, value in encoder}
        if self.simulates:
            sources = tuple(source.detach() for source in self.sources(shared.graph, view))
            labels = labels_of(shared, view, task)
            chosen["share"] = self._chosen_share(shared.graph, view, labels, sources)
        return chosen

    @each_seed
    def _chosen_share(self, graph: Graph, view: View, labels: Tensor, sources: tuple[Tensor, ...]) -> Tensor:
        """Return the share (1,) of equal variances."""
        rows = view.learnable.nonzero().squeeze(-1)
        features = self.narrow_features(graph, view, sources, rows)
        draws = [uniform_at(fold(self.key, number), rows) for number in range(1 + DRAWS)]
        order = uniform(fold(self.key, len(draws)), labels.shape[-1])
        return chosen_share(features, labels[rows], self.of_encoder, self.shots, [order, *draws]).view(1)

    def before_session(self, shared: Shared, view: View, task: Task) -> Parameters:
        """Return the encoder after a part of the way back to that of session 0: errors must not add up."""
        if not self.returns:
            return {}
        origin = dict(self.origin.named_parameters())
        encoder = self.encoder.named_parameters()
        return {f"encoder.{name}": value.lerp(origin[name], RETURN) for name, value in encoder}

    def session_statistics(self, shared: Shared, view: View, task: Task) -> tuple[Tensor, ...]:
        """Return `Whitened` for all features but those of an encoder that learns, and their sources.

        On a GPU the points are left out, because those of a pack need too much memory. They are computed
        again from the sources.
        """
        sources = tuple(source.detach() for source in self.sources(shared.graph, view))
        labels = labels_of(shared, view, task)
        whitened = self._whitened(shared.graph, view, labels, sources, task)
        return (*whitened, *sources) if _forgets(shared.graph) else whitened

    @each_seed
    def _whitened(
        self, graph: Graph, view: View, labels: Tensor, sources: tuple[Tensor, ...], task: Task
    ) -> Whitened:
        """Return `Whitened`, padded to all nodes."""
        rows = _rows_of(view)
        features = self._fixed_features(graph, view, sources, rows)
        now = exemplar_means(features, task, rows)
        within = self._within(labels[rows], view.learnable[rows], task, now)
        whitened = within.whitened(features, self.of_encoder - self._later())
        points = whitened.points[:0] if _forgets(graph) else padded(whitened.points, len(labels))
        inner, length = (padded(part, len(labels)) for part in (whitened.inner, whitened.length))
        return whitened._replace(points=points, inner=inner, length=length)

    def _later(self) -> int:
        """Return the number of columns that are not whitened, because the encoder changes them."""
        return self.of_encoder if self.learns else 0

    def _fixed_features(self, graph: Graph, view: View, sources: tuple[Tensor, ...], rows: Tensor) -> Tensor:
        """Return the features (rows, width) that no step of a session changes."""
        narrow, drawn = self.narrow_features(graph, view, sources, rows), self.random_features
        fixed = narrow.new_empty(len(rows), self.width - self._later())
        fixed[:, drawn:] = narrow[:, : fixed.shape[-1] - drawn]
        if drawn:
            for some, place in zip(narrow.split(NODES), fixed.split(NODES), strict=True):
                place[:, :drawn] = random_columns(some, self.directions)
        return fixed

    def encode(self, shared: Shared, view: View, key: Tensor | None) -> tuple[Tensor | None, View]:
        if not self.learns:
            return None, view
        return self._scaled(self.encoder(shared.graph, view, None).all()).detach(), view

    def diagnostics(self, shared: Shared, view: View, task: Task) -> dict[str, Tensor]:
        """Return the chosen shrinkage of the within-class covariance."""
        chosen = self.share[0].where(self.share[0] > 0, torch.nan)
        return {"chosen_shrinkage": chosen} if self.simulates else {}

    def classify(self, shared: Shared, encoded: tuple[Tensor | None, View], task: Task) -> Tensor:
        logits, _ = self._answers(shared.graph, *self._given(shared, *encoded, task), self.limits)
        return (CERTAINTY * logits[task.query]).log_softmax(-1)

    def class_statistics(self, shared: Shared, view: View, task: Task) -> tuple[Tensor, ...]:
        features, labels = self.features_of(shared, view), labels_of(shared, view, task)
        if task.class_statistics:
            kept = Evidence(*task.class_statistics)
        else:
            (many, *_) = self.known(shared, features, task)
            means, known = many.means(), labels[:, : len(task.averaged)]
            agreement = Neighbours(shared.graph, view).agreement(known)
            nothing = features.new_zeros(0, features.shape[-1])
            counts, scatter = known.sum(0), many.scatter(means)
            kept = Evidence(means, counts, scatter, agreement, nothing, nothing[:, 0], nothing)
        few = labels[:, labels.shape[-1] - len(task.support) :]
        sums, shots = torch.cat([kept.sums, few.mT @ features]), torch.cat([kept.shots, few.sum(0)])
        now = exemplar_means(features, task)
        if now is not None:
            kept = kept._replace(exemplars=torch.cat([kept.exemplars, now[len(kept.exemplars) :]]))
        return kept._replace(sums=sums, shots=shots)

    def before_steps(self, shared: Shared, view: View, task: Task) -> tuple[Tensor, ...]:
        """Return the targets of the encoder's steps.

        These are the shares (nodes, classes) of the nodes in each class, and the resulting class means
        (classes, width). Half of the weight of a class is on its labels. The other half is on unlabelled
        nodes, by their predicted probabilities. If nodes of classes to come are visible, only the most
        confident unlabelled nodes count.
        """
        learnt, view = self.encode(shared, view, None)
        if learnt is None:
            return ()
        given = self._given(shared, learnt, view, task)
        # A limited penalty lets new classes win more nodes. Nodes of classes to come should stay out.
        logits, unlabelled = self._answers(shared.graph, *given, self.limits and not self.doubts)
        labels = given[1]
        predicted = logits.softmax(-1) * unlabelled
        if self.doubts:
            predicted = most_confident(predicted)
        shares = target_shares(smoothed_shares(labels), predicted)
        return shares, shares.mT @ learnt

    def session_loss(
        self, shared: Shared, view: View, task: Task, target: Tensor, key: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return the cross-entropy between the shares and a cosine classifier, whose rows are class means."""
        if len(task.query):  # only `released` has queries here
            return self.loss(shared, view, task, target, None)
        shares, rows = task.before_steps
        logits = cosine_logits(self.encoder(shared.graph, view, key).all(), rows)
        return -(shares * logits.log_softmax(-1)).sum() / len(rows), logits[task.query]

    def _given(
        self, shared: Shared, learnt: Tensor | None, view: View, task: Task
    ) -> tuple[View, Tensor, tuple[Tensor, ...], Tensor | None, Task]:
        """Return what `_answers` and `_ratios` need besides the graph."""
        whitened = view.session_statistics or self.session_statistics(shared, view, task)
        return view, labels_of(shared, view, task), whitened, learnt, task

    @each_seed
    def _answers(
        self,
        graph: Graph,
        view: View,
        labels: Tensor,
        whitened: tuple[Tensor, ...],
        learnt: Tensor | None,
        task: Task,
        limits: bool,
    ) -> tuple[Tensor, Tensor]:
        """Return logits (nodes, classes), and which nodes (nodes, 1) are unlabelled.

        `limits` tells whether the penalty for an uncertain class mean is limited.
        """
        rows, within, model = self._model(graph, view, labels, whitened, learnt, task)
        labelled = labels.amax(-1, keepdim=True)  # not the sum: a mislabelled node can have two labels
        unlabelled = view.learnable.unsqueeze(-1) * (1 - labelled)
        if limits:
            model.limit_penalty(unlabelled[rows, 0], EXCESS / (TEMPERATURE / 2))
        neighbours, known, kept = Neighbours(graph, view), within.known, within.kept
        agreement = kept.agreement if kept else neighbours.agreement(labels[:, :known])
        weights = Weights(
            unlabelled=self.unlabelled_weight,
            most=within.count if kept else torch.full_like(within.count, MOST),
            neighbours=self.propagation_weight * agreement,
            rounds=ROUNDS if self.uses_unlabelled else 0,
            spreads=self.uses_neighbours,
        )
        # The first classes need no unlabelled nodes, if their many labels can be read today.
        fixed = 0 if self.few_of_all or kept else known
        nodes = Nodes(labels, unlabelled, rows)
        return mixture.fit(model, within.count, fixed, nodes, neighbours, weights), unlabelled

    def open_set_logits(self, shared: Shared, view: View, task: Task) -> Tensor:
        """Return log-likelihood ratios (queries, classes) to a class that has no name yet.

        Class means are those of the labels. EM would assign nodes of classes without a name to new classes.
        """
        learnt, view = self.encode(shared, view, None)
        return self._ratios(shared.graph, *self._given(shared, learnt, view, task))[task.query]

    @each_seed
    def _ratios(
        self,
        graph: Graph,
        view: View,
        labels: Tensor,
        whitened: tuple[Tensor, ...],
        learnt: Tensor | None,
        task: Task,
    ) -> Tensor:
        """Return log-likelihood ratios (nodes, classes)."""
        rows, within, model = self._model(graph, view, labels, whitened, learnt, task)
        count, total = within.count, model.total
        # Classes to come resemble those that came since session 0. At session 0 it is the mean of all: zero.
        came = total[within.known :] / count[within.known :].unsqueeze(-1)
        middle = came.sum(0, keepdim=True) / max(len(came), 1)
        unnamed = model.log_likelihood(count.new_full((1,), UNNAMED), UNNAMED * middle)
        ratios = labels.new_zeros(len(labels), len(count))  # not used for hidden nodes
        ratios[rows] = CERTAINTY * TEMPERATURE * (model.log_likelihood(count, total, model.inner) - unnamed)
        return ratios

    def _model(
        self,
        graph: Graph,
        view: View,
        labels: Tensor,
        whitened: tuple[Tensor, ...],
        learnt: Tensor | None,
        task: Task,
    ) -> tuple[Tensor, Within, TwoCovariances]:
        """Return the visible nodes, their statistics, and the model of one seed."""
        rows = _rows_of(view)
        within = self._within(labels[rows], view.learnable[rows], task)
        found = self._recovered(graph, view, whitened, rows)
        return rows, within, TwoCovariances(within, found, None if learnt is None else learnt[rows])

    def _recovered(self, graph: Graph, view: View, whitened: tuple[Tensor, ...], rows: Tensor) -> Whitened:
        """Return `Whitened` without padding, and with points."""
        count = len(Whitened._fields)
        found, sources = Whitened(*whitened[:count]), whitened[count:]
        if sources:
            points = self._fixed_features(graph, view, sources, rows).sub_(found.centre)
            whiten(points, found.root)
        else:
            points = found.points[: len(rows)]
        return found._replace(points=points, inner=found.inner[: len(rows)], length=found.length[: len(rows)])

    def _within(self, labels: Tensor, visible: Tensor, task: Task, exemplars: Tensor | None = None) -> Within:
        """Return the statistics. Class means that were kept follow the `exemplars`, as in `kept_today`."""
        kept = (
            kept_today(Evidence(*task.class_statistics), task, exemplars) if task.class_statistics else None
        )
        known = len(kept.means) if kept else len(task.averaged)
        return Within(labels, known, visible, kept, self.width, self.share[0])


def _forgets(graph: Graph) -> bool:
    """Return whether points are computed again for every use: on a GPU, where memory is scarcer than time."""
    return graph.device.type == "cuda"


def _rows_of(view: View) -> Tensor:
    """Return the visible nodes in ascending order."""
    return view.visible.nonzero().squeeze(-1)
