"""Posterior means: estimate class means from few labels, unlabelled nodes and the known classes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from hagmeta.common.settings import HIGHEST_WEIGHT, setting
from hagmeta.common.traits import MethodTraits
from hagmeta.methods.base import COMMON, SessionLearning, Shared, Sizes, Task
from hagmeta.methods.closed_form import ClosedFormSettings, OnFeatures
from hagmeta.methods.parts import RereadsMany, Settles
from hagmeta.nn.head import LABEL_SMOOTHING, cosine_logits
from hagmeta.nn.statistics import LEAST, mean_variance, shrunk
from hagmeta.packs.values import hold
from hagmeta.sparse.graph import Graph, View

TEMPERATURE = 0.3  # scales log-likelihoods, because the features of a node are strongly dependent
TOTAL = 0.1  # share of the covariance of all visible nodes in the within-class covariance
RIDGE = 0.02  # minimum share of equal variances in it; larger if there are fewer labels than columns
PRIOR = 0.1  # share of the within-class covariance in the covariance of class means
CERTAINTY = 0.3  # scales logits, because neighbours and unlabelled nodes partly repeat the features
MOST = 50.0  # maximum number of labels that the unlabelled nodes of a class can count as
ROUNDS = 3  # of EM, which assigns unlabelled nodes to classes in fractions
HEARD_IN_A_ROUND, HEARD_AT_LAST = 2, 5  # updates by the neighbours' predictions
NODES = 4096  # rows per chunk of a product
TAUGHT = 0.5  # weight of unlabelled nodes in the targets of the encoder's steps
UNLABELLED_NODES = {  # what visible unlabelled nodes do, by the setting that enables it
    "unlabelled": "shift its class means",
    "coupling": "use their neighbours' predictions",
    "finetune_steps": "train its encoder",
}


@dataclass(frozen=True, kw_only=True)
class PosteriorMeansSettings(ClosedFormSettings):
    """Settings of posterior means: the weight of unlabelled nodes and of neighbours."""

    unlabelled: float = setting(
        0.1,
        "weight of an unlabelled node relative to a labelled one (0: ignore unlabelled nodes)",
        at_least=0,
        at_most=1,
        branches=(0,),
    )
    coupling: float = setting(
        4.0,
        "weight of the neighbours' predictions, scaled by how often labelled neighbours share a class"
        " (0: ignore neighbours)",
        at_least=0,
        at_most=HIGHEST_WEIGHT,
        branches=(0,),
    )

    def without_effect(self) -> Mapping[str, str]:
        # Steps of the encoder would invalidate the statistics that are kept from earlier sessions.
        stays = "features" if self.features == "propagated" else "rehearsal" if self.rehearsed == 0 else ""  # type: ignore[attr-defined]
        return dict.fromkeys(("finetune_steps", "finetune_rate"), stays) if stays else {}


class Evidence(NamedTuple):
    """Statistics of classes whose labels are gone: the known classes of session 0, then the others."""

    means: Tensor  # (known, width)
    counts: Tensor  # (known,) labels per class
    scatter: Tensor  # (width, width) sum of the covariances of the known classes
    agreement: Tensor  # (1,) how often labelled neighbours share a class: 0 is chance level, 1 is always
    sums: Tensor  # (others, width) sums over the labelled nodes of each class
    shots: Tensor  # (others,) labels per class


class Settled(NamedTuple):
    """Features in whitened coordinates, where the within-class covariance is the identity."""

    points: Tensor  # (nodes, width)
    centre: Tensor  # (width,) mean of the known class means, subtracted from the features
    root: Tensor  # (width, width) Cholesky factor of the covariance, by which the features were divided
    variance: Tensor  # () target of the shrinkage: mean variance of all columns but the encoder's, or NaN
    traces: Tensor  # (2,) sum of the shrunk variances, and sum of squares of the known class means


def transductive_clause(names: Iterable[str]) -> str:
    """Return why predictions depend on unlabelled nodes, given keys of `UNLABELLED_NODES`."""
    *others, last = [UNLABELLED_NODES[name] for name in names] or [""]
    done = f"{', '.join(others)} and {last}" if others else last
    return f"visible unlabelled nodes, including queries, {done}" if done else ""


class PosteriorMeans(OnFeatures, Settles, RereadsMany):
    """Gaussian classes whose means are drawn from another Gaussian; predictions are posteriors.

    The classes known at session 0 have many labels. From them the method estimates how features vary within
    a class, and how class means vary (a two-covariance model, as in probabilistic LDA). So the mean of a
    class with K labels has a posterior. It is shrunk towards the mean of all classes, most strongly in
    directions where classes hardly differ. Its remaining uncertainty widens the class.

    Visible unlabelled nodes then count as labels of their likely classes, in fractions (EM). Nodes also use
    the predictions of their neighbours, weighted by how often labelled neighbours share a class. In a session
    the encoder takes a few steps towards these predictions, which are then computed again.
    docs/results/our_method.md has the derivation.

    Labels: as in the other closed-form methods; the encoder's steps read the same labels. If fewer than 50
    labels per class may be read again, the method keeps the sums, counts and covariances of earlier sessions.
    These stay as computed on the graph of that time, and the encoder does not learn. The method ignores the
    time at which a node became visible.
    """

    own_settings = PosteriorMeansSettings
    differs: ClassVar = (*COMMON, "unlabelled", "coupling", "tukey")
    defaults: ClassVar = {
        "refitted": True,
        "tukey": 0.7,
        "random_features": 1500,
        "hidden": 128,
        "embedding": 128,
    }
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
        # equal eigenvalues, no longer depend on the device.
        revision=7,
    )
    session_learning = SessionLearning.ANSWERS
    freezes_encoder = False
    rereads_from = 50
    unlabelled: Tensor
    coupling: Tensor

    def __init__(self, settings: Any, sizes: Sizes, seed: int) -> None:
        super().__init__(settings, sizes, seed)
        hold(self, unlabelled=settings.unlabelled, coupling=settings.coupling)
        self.counts_unlabelled, self.hears = settings.unlabelled > 0, settings.coupling > 0
        self.learns = self.teaches_encoder(settings)
        self.of_encoder = settings.embedding if self.has_encoder(settings) else 0  # the last columns
        self.few_of_all = bool(settings.rehearsed)  # even classes known at session 0 have few labels

    @classmethod
    def traits_of(cls, settings: Any) -> MethodTraits:
        used = {
            "unlabelled": settings.unlabelled > 0,
            "coupling": settings.coupling > 0,
            "finetune_steps": cls.teaches_encoder(settings),
        }
        clause = transductive_clause([name for name, it_is in used.items() if it_is])
        return replace(super().traits_of(settings), transductive=clause)

    @classmethod
    def teaches_encoder(cls, settings: Any) -> bool:
        """Return whether the encoder of a configuration takes steps in sessions."""
        return settings.finetune_steps > 0 and "finetune_steps" not in settings.idle

    def settle(self, shared: Shared, view: View, task: Task) -> tuple[Tensor, ...]:
        """Return `Settled` for all features, without those of an encoder that learns."""
        within = self._within(labels_of(shared, view, task), view, task)
        later = self.of_encoder if self.learns else 0
        fixed = self.width - later
        return within.settled(self.features_of(shared, view).detach()[:, :fixed], self.of_encoder - later)

    def encode(self, shared: Shared, view: View, key: Tensor | None) -> tuple[Tensor | None, View]:
        if not self.learns:
            return None, view
        return self._scaled(self.encoder(shared.graph, view, None).all()).detach(), view

    def classify(self, shared: Shared, encoded: tuple[Tensor | None, View], task: Task) -> Tensor:
        logits, _, _ = self._answers(shared, *encoded, task)
        return (CERTAINTY * logits[task.query]).log_softmax(-1)

    def keep(self, shared: Shared, view: View, task: Task) -> tuple[Tensor, ...]:
        features, labels = self.features_of(shared, view), labels_of(shared, view, task)
        if task.kept:
            kept = Evidence(*task.kept)
        else:
            (many, *_) = self.known(shared, features, task)
            means, known = many.means(), labels[:, : len(task.averaged)]
            agreement = Neighbours(shared.graph, view).agreement(known)
            nothing = features.new_zeros(0, features.shape[-1])
            kept = Evidence(means, known.sum(0), many.scatter(means), agreement, nothing, nothing[:, 0])
        few = labels[:, labels.shape[-1] - len(task.support) :]
        sums, shots = torch.cat([kept.sums, few.mT @ features]), torch.cat([kept.shots, few.sum(0)])
        return kept._replace(sums=sums, shots=shots)

    def recall(self, shared: Shared, view: View, task: Task) -> tuple[Tensor, ...]:
        """Return the targets of the encoder's steps.

        These are the shares (nodes, classes) of the nodes in each class, and the resulting class means
        (classes, width). Half of the weight of a class is on its labels. The other half is on unlabelled
        nodes, by their predicted probabilities.
        """
        learnt, view = self.encode(shared, view, None)
        if learnt is None:
            return ()
        logits, labels, free = self._answers(shared, learnt, view, task)
        shares = taught_shares(smoothed_shares(labels), logits.softmax(-1) * free)
        return shares, shares.mT @ learnt

    def session_loss(
        self, shared: Shared, view: View, task: Task, target: Tensor, key: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return the cross-entropy between the shares and a cosine classifier, whose rows are class means."""
        if len(task.query):  # only `released` has queries here
            return self.loss(shared, view, task, target, None)
        shares, rows = task.recalled
        logits = cosine_logits(self.encoder(shared.graph, view, key).all(), rows)
        return -(shares * logits.log_softmax(-1)).sum() / len(rows), logits[task.query]

    def _answers(
        self, shared: Shared, learnt: Tensor | None, view: View, task: Task
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return logits and readable labels (nodes, classes), and which nodes (nodes, 1) are unlabelled."""
        labels = labels_of(shared, view, task)
        within = self._within(labels, view, task)
        settled = Settled(*(view.settled or self.settle(shared, view, task)))
        model = TwoCovariances(within, settled, learnt)
        known, count, total = within.known, within.count, model.total
        likely = TEMPERATURE * model.log_likelihood(count, total)
        neighbours = Neighbours(shared.graph, view)
        agreement = within.kept.agreement if within.kept else neighbours.agreement(labels[:, :known])
        labelled = labels.amax(-1, keepdim=True)  # not the sum: a mislabelled node can have two labels
        free = view.visible.unsqueeze(-1) * (1 - labelled)

        def answers(times: int) -> Tensor:
            """Return logits (nodes, classes) after `times` updates by the neighbours' predictions."""
            logits = likely
            for _ in range(times if self.hears else 0):
                heard = neighbours.mean(logits.softmax(-1) * free + labels)
                logits = likely + self.coupling * agreement * heard
            return logits

        sure = 0 if self.few_of_all else known  # the first classes, which need no unlabelled nodes
        for _ in range(ROUNDS if self.counts_unlabelled and len(count) > sure else 0):
            soft = self.unlabelled * free * answers(HEARD_IN_A_ROUND).softmax(-1)[:, sure:]
            soft = soft * (MOST / soft.sum(0).clamp(min=LEAST)).clamp(max=1)
            again = model.log_likelihood(count[sure:] + soft.sum(0), total[sure:] + model.sums(soft))
            likely = torch.cat([likely[:, :sure], TEMPERATURE * again], -1)
        return answers(HEARD_AT_LAST), labels, free

    def _within(self, labels: Tensor, view: View, task: Task) -> Within:
        kept = Evidence(*task.kept) if task.kept else None
        known = len(kept.means) if kept else len(task.averaged)
        return Within(labels, known, view.visible, kept, self.width)


def labels_of(shared: Shared, view: View, task: Task) -> Tensor:
    """Return an array (nodes, classes) with 1 for each label that may be read now."""
    nodes = torch.arange(shared.graph.num_nodes, device=view.visible.device)
    few = (nodes[:, None, None] == task.support).any(-1)
    many = [shared.class_means.shares(task.averaged).mT > 0] if len(task.averaged) else []
    gone = few.new_zeros(len(nodes), len(task.classes) - len(task.averaged) - len(task.support))
    return torch.cat([gone, *many, few], -1).to(view.visible.dtype)


def smoothed_shares(labels: Tensor) -> Tensor:
    """Return smoothed shares of the labelled nodes in each class (nodes, classes); each column sums to 1."""
    told = labels / labels.sum(0)
    return (1 - LABEL_SMOOTHING) * told + LABEL_SMOOTHING * told.mean(-1, keepdim=True)


def taught_shares(told: Tensor, found: Tensor) -> Tensor:
    """Return the mix of the labelled shares `told` and the probabilities `found` of unlabelled nodes.

    All are (nodes, classes).
    """
    return (1 - TAUGHT) * told + TAUGHT * found / found.sum(0).clamp(min=1)


class Within:
    """The mean within-class covariance of the known classes, mixed with the covariance of all visible nodes.

    It is shrunk towards equal variances, more strongly if there are fewer labels than columns. The target is
    the mean variance of all columns but the encoder's. The encoder's columns vary little within the classes
    that it was trained on, but more within new classes.
    """

    def __init__(
        self, labels: Tensor, known: int, visible: Tensor, kept: Evidence | None, width: int
    ) -> None:
        self.labels, self.known, self.kept = labels, known, kept
        self.count = labels.sum(0)  # (classes,) labels per class
        if kept:
            self.count = self.count + self._padded(torch.cat([kept.counts, kept.shots]).unsqueeze(-1))[:, 0]
        self._equal = (1 - self.count[:known].sum() / width).clamp(min=RIDGE)
        every = torch.cat([labels[:, :known], visible.unsqueeze(-1)], -1)
        self._shares = (every / every.sum(0).clamp(min=1)).mT  # (known + 1, nodes)
        weights = torch.full_like(self._shares[:, 0], (1 - TOTAL) / known)
        weights[-1] = TOTAL
        self._weights = weights.unsqueeze(-1)

    def _padded(self, rows: Tensor) -> Tensor:
        """Return `rows` of the first classes, padded with zeros for the other classes."""
        return torch.cat([rows, rows.new_zeros(self.labels.shape[-1] - len(rows), rows.shape[-1])])

    def means(self, features: Tensor) -> Tensor:
        """Return the means (known, width) of the known classes over the labels that may be read."""
        return self._shares[:-1] @ features

    def _covariance(self, left: Tensor, right: Tensor) -> Tensor:
        """Return the weighted within-class covariance (left columns, right columns)."""
        weights = (self._weights * self._shares).sum(0).unsqueeze(-1)
        parts = zip(*(each.split(NODES) for each in (left, weights, right)), strict=True)
        moment = sum(one.mT @ (weight * other) for one, weight, other in parts)
        return moment - (self._weights * (self._shares @ left)).mT @ (self._shares @ right)

    def settled(self, features: Tensor, columns: int) -> Settled:
        """Return whitened `features` (nodes, width), of which the last `columns` are the encoder's."""
        means = self.kept.means if self.kept else self.means(features)
        centre = means.mean(0)
        features = features - centre
        covariance = self._covariance(features, features)
        if self.kept:
            covariance = covariance + (1 - TOTAL) * self.kept.scatter / self.known
        others = features.shape[-1] - columns
        variance = mean_variance(covariance[:others, :others] if others else covariance)
        covariance = shrunk(covariance, self._equal, variance)
        root = torch.linalg.cholesky_ex(covariance).L
        return Settled(_divided(features, root), centre, root, variance, _traces(covariance, means - centre))

    def residuals(self, settled: Settled, learnt: Tensor) -> tuple[Tensor, Tensor]:
        """Return the whitened residuals of the `learnt` features given the settled ones, and the new traces.

        The residuals are (nodes, columns): the part that the settled features do not predict.
        """
        means = self.means(learnt)
        centre = means.mean(0)
        learnt = learnt - centre
        told = (1 - self._equal) * self._covariance(settled.points, learnt)
        variance = settled.variance if len(told) else None  # None: there are only the encoder's columns
        covariance = shrunk(self._covariance(learnt, learnt), self._equal, variance)
        root = torch.linalg.cholesky_ex(covariance - told.mT @ told).L
        points = _divided(learnt - settled.points @ told, root)
        return points, settled.traces + _traces(covariance, means - centre)

    def kept_sums(self, settled: Settled) -> Tensor | float:
        """Return the kept sums over labels that are gone (classes, width), in the whitened coordinates."""
        if not self.kept:
            return 0.0
        of_known = self.kept.means * self.kept.counts.unsqueeze(-1)
        sums, counts = torch.cat([of_known, self.kept.sums]), torch.cat([self.kept.counts, self.kept.shots])
        return self._padded(_divided(sums - counts.unsqueeze(-1) * settled.centre, settled.root))


def _traces(covariance: Tensor, means: Tensor) -> Tensor:
    return torch.stack([covariance.diagonal().sum(), means.square().sum()])


def _divided(rows: Tensor, root: Tensor) -> Tensor:
    return torch.linalg.solve_triangular(root, rows.mT, upper=False).mT


class TwoCovariances:
    """The two-covariance model, in coordinates where the within-class covariance is the identity.

    The covariance of class means is `floor` in all directions, and larger in directions spanned by the known
    class means. With fewer known classes than features, other directions cannot be distinguished.
    """

    def __init__(self, within: Within, settled: Settled, learnt: Tensor | None) -> None:
        self._points, traces = [settled.points], settled.traces
        if learnt is not None:
            points, traces = within.residuals(settled, learnt)
            self._points.append(points)
        self.total = self.sums(within.labels) + within.kept_sums(settled)  # (classes, width) over labels
        known, freedom = within.known, max(within.known - 1, 1)
        spread = self.total[:known] / within.count[:known].unsqueeze(-1) / freedom**0.5
        values, vectors = torch.linalg.eigh(spread @ spread.mT)
        values, vectors = values[1:].clamp(min=LEAST), vectors[:, 1:]  # centred means lose one dimension
        self._axes = spread.mT @ (vectors / values.sqrt())  # (width, known - 1)
        self._floor = PRIOR * traces[1] / freedom / traces[0]
        self._spread = self._floor + (1 - PRIOR) * values  # (known - 1,)
        self._others = self.total.shape[-1] - known + 1
        self._along = self._times(self._axes.mT)
        length = torch.stack([points.square().sum(-1) for points in self._points]).sum(0)
        self._aside = length - self._along.square().sum(-1)

    def sums(self, shares: Tensor) -> Tensor:
        """Return sums (classes, width) over the nodes, weighted by `shares` (nodes, classes)."""
        return torch.cat([shares.mT @ points for points in self._points], -1)

    def _times(self, rows: Tensor) -> Tensor:
        """Return the products (nodes, rows) of all points with `rows` (rows, width)."""
        parts = rows.split([points.shape[-1] for points in self._points], -1)
        return torch.stack([p @ r.mT for p, r in zip(self._points, parts, strict=True)]).sum(0)

    def log_likelihood(self, counts: Tensor, sums: Tensor) -> Tensor:
        """Return the log-likelihood (nodes, classes) of each node in each class.

        `counts` (classes,) and `sums` (classes, width) describe the labelled nodes of the classes.
        """
        along = sums @ self._axes
        # After n nodes, a class mean has the variance b / (1 + n b), and its mean is that times their sum.
        rest = self._floor / (1 + counts * self._floor)
        variance = self._spread / (1 + counts.unsqueeze(-1) * self._spread)
        mean, width = variance * along, 1 + variance
        inner = self._times(sums) - self._along @ along.mT
        length = sums.square().sum(-1) - along.square().sum(-1)
        distance = (
            self._along.square() @ (1 / width).mT
            - 2 * self._along @ (mean / width).mT
            + (mean.square() / width + width.log()).sum(-1)
            + (self._aside.unsqueeze(-1) - 2 * rest * inner + rest.square() * length) / (1 + rest)
            + self._others * rest.log1p()
        )
        return -distance / 2


class Neighbours:
    """Averages over the visible neighbours of each node."""

    def __init__(self, graph: Graph, view: View) -> None:
        self._graph, self._view = graph, view
        self._root = torch.where(view.scale > 0, 1 / view.scale.clamp(min=LEAST), 0.0).unsqueeze(-1)
        self._count = (view.log_degree.exp() - 1).clamp(min=1).unsqueeze(-1)

    def mean(self, values: Tensor) -> Tensor:
        """Return neighbour averages (nodes, columns) of `values`, which are zero for nodes to ignore."""
        return self._sum(values) / self._count

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
        around = self._graph.aggregate(self._root * values, self._view) * self._root
        return around - values * self._view.visible.unsqueeze(-1)  # propagation includes the node itself
