"""Posterior means: what few labels, unlabelled nodes and the classes known before tell of a class's mean."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from hagmeta.common.settings import HIGHEST_WEIGHT, setting
from hagmeta.common.traits import MethodTraits
from hagmeta.methods.base import SessionLearning, Shared, Sizes, Task
from hagmeta.methods.closed_form import ClosedFormSettings, OnFeatures
from hagmeta.methods.parts import RereadsMany, Settles
from hagmeta.nn.head import LABEL_SMOOTHING, cosine_logits
from hagmeta.nn.statistics import LEAST, mean_variance, shrunk
from hagmeta.sparse.graph import Graph, View

TEMPERATURE = 0.3  # of log-likelihoods: the features of a node are far from independent of each other
TOTAL = 0.1  # share of the covariance of all visible nodes in that within classes,
RIDGE = 0.02  # of equal variances in that, more where labels are fewer than columns,
PRIOR = 0.1  # and of that within classes in that of class means
CERTAINTY = 0.3  # of answers: neighbours and unlabelled nodes repeat in part what the features say
MOST = 50.0  # the unlabelled nodes of a class count for so many labels at most
ROUNDS = 3  # in which unlabelled nodes are shared out among classes
HEARD_IN_A_ROUND, HEARD_AT_LAST = 2, 5  # times that nodes hear their neighbours' answers
NODES = 4096  # at a time, where a product has a row for each
TAUGHT = 0.5  # share of unlabelled nodes in what a session teaches the encoder of a class
UNLABELLED_NODES = {  # what visible nodes without labels do, by the setting that lets them
    "unlabelled": "shift its class means",
    "coupling": "use their neighbours' predictions",
    "finetune_steps": "train its encoder",
}


@dataclass(frozen=True, kw_only=True)
class PosteriorMeansSettings(ClosedFormSettings):
    """How far unlabelled nodes and neighbours are trusted."""

    unlabelled: float = setting(
        0.1,
        "weight of an unlabelled node relative to a labelled one (0: ignore unlabelled nodes)",
        at_least=0,
        at_most=1,
    )
    coupling: float = setting(
        4.0,
        "weight of the neighbours' predictions, scaled by how often labelled neighbours share a class"
        " (0: ignore neighbours)",
        at_least=0,
        at_most=HIGHEST_WEIGHT,
    )

    def without_effect(self) -> Mapping[str, str]:
        # Statistics that are kept of earlier sessions would be of another encoder.
        stays = "features" if self.features == "propagated" else "rehearsal" if self.rehearsed == 0 else ""  # type: ignore[attr-defined]
        return dict.fromkeys(("finetune_steps", "finetune_rate"), stays) if stays else {}


class Evidence(NamedTuple):
    """What is kept of classes whose labels are gone: of those known at session 0, then of the others."""

    means: Tensor  # (known, width)
    counts: Tensor  # (known,) labels of each
    scatter: Tensor  # (width, width) the sum of the known classes' covariances
    agreement: Tensor  # (1,) how far labelled neighbours are of one class: 0 as by chance, 1 all
    sums: Tensor  # (others, width) over the labels of each
    shots: Tensor  # (others,) labels of each


class Settled(NamedTuple):
    """Features in coordinates in which they have a covariance of one within classes."""

    points: Tensor  # (nodes, width)
    centre: Tensor  # (width,) the mean of the known classes' means, which was taken from them,
    root: Tensor  # (width, width) and the Cholesky factor of the covariance, by which they were divided
    variance: Tensor  # () that variances were drawn to: the mean of all but the encoder's; NaN of none
    traces: Tensor  # (2,) the sums of all variances after that, and of the squares of the known means


def transductive_clause(names: Iterable[str]) -> str:
    """Return why answers depend on nodes without labels, from names in ``UNLABELLED_NODES``."""
    *others, last = [UNLABELLED_NODES[name] for name in names] or [""]
    done = f"{', '.join(others)} and {last}" if others else last
    return f"visible unlabelled nodes, including queries, {done}" if done else ""


class PosteriorMeans(OnFeatures, Settles, RereadsMany):
    """Classes are Gaussians around means that were drawn from a Gaussian themselves; answers are posteriors.

    How features vary within a class, and how class means vary, is learnt from the classes known at session 0,
    which have many labels (a two-covariance model, as probabilistic LDA is). So the mean of a class with K
    labels has a posterior: it is drawn towards the mean of all classes, most where classes hardly differ, and
    how uncertain it stays widens the class. Unlabelled visible nodes then count as labels of the classes that
    they may be of, in fractions (EM), and nodes hear what their neighbours answer, as far as labelled
    neighbours are of one class. In a session the encoder takes a few steps towards these answers, and they
    are found again. docs/our_method.md has the derivation.

    Labels: as of the other closed forms, and the encoder's steps read the same. With fewer than 50 a class to
    read again the sums, counts and covariances of earlier sessions are kept, as the graph was then, and the
    encoder stays. That a node became visible late is not used.
    """

    own_settings = PosteriorMeansSettings
    defaults: ClassVar = {
        "refitted": True,
        "tukey": 0.7,
        "random_features": 1500,
        "hidden": 128,
        "embedding": 128,
    }
    traits: ClassVar = MethodTraits(
        title="Posterior means",
        citation="Proposed in this study; docs/our_method.md has the derivation.",
        role="proposed",
        transductive=transductive_clause(UNLABELLED_NODES),
        closed_form=True,
        # In 1 and 2 the encoder did not learn in sessions, and 1 was far surer of its answers; up to 3 few
        # labels that might be read again were all that it had of a class; up to 4 its encoder was taught all
        # at once; up to 5 random features were found anew after steps of the encoder, and variances drawn to
        # the mean of all; up to 6 the signs of refitted columns, and combinations of equal eigenvalues, were
        # those of the device.
        revision=7,
    )
    session_learning = SessionLearning.ANSWERS
    freezes_encoder = False
    rereads_from = 50

    def __init__(self, settings: Any, sizes: Sizes, seed: int) -> None:
        super().__init__(settings, sizes, seed)
        self.unlabelled, self.coupling = settings.unlabelled, settings.coupling
        self.learns = self.teaches_encoder(settings)
        self.of_encoder = settings.embedding if self.has_encoder(settings) else 0  # the last columns
        self.few_of_all = bool(settings.rehearsed)  # labels, of classes known at session 0, too

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
        """Return whether a configuration's encoder takes steps in sessions."""
        return settings.finetune_steps > 0 and "finetune_steps" not in settings.idle

    def settle(self, shared: Shared, view: View, task: Task) -> tuple[Tensor, ...]:
        """``Settled``: of all features, but for those of an encoder that learns."""
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
        """What the encoder is taught: each node's share (nodes, classes) in a class, and where that lies.

        Half of a class's weight is on its labels, half on nodes without, as far as they may be of it.
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
        """Cross-entropy with these shares of a cosine classifier, its rows where the classes lay."""
        if len(task.query):  # of `released`
            return self.loss(shared, view, task, target, None)
        shares, rows = task.recalled
        logits = cosine_logits(self.encoder(shared.graph, view, key).all(), rows)
        return -(shares * logits.log_softmax(-1)).sum() / len(rows), logits[task.query]

    def _answers(
        self, shared: Shared, learnt: Tensor | None, view: View, task: Task
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Logits (nodes, classes), labels (nodes, classes) that may be read, and nodes (nodes, 1) without."""
        labels = labels_of(shared, view, task)
        within = self._within(labels, view, task)
        settled = Settled(*(view.settled or self.settle(shared, view, task)))
        model = TwoCovariances(within, settled, learnt)
        known, count, total = within.known, within.count, model.total
        likely = TEMPERATURE * model.log_likelihood(count, total)
        neighbours = Neighbours(shared.graph, view)
        agreement = within.kept.agreement if within.kept else neighbours.agreement(labels[:, :known])
        labelled = labels.amax(-1, keepdim=True)  # not the sum: a wrong label may be a second one
        free = view.visible.unsqueeze(-1) * (1 - labelled)

        def answers(times: int) -> Tensor:
            """Logits (nodes, classes), after neighbours were heard so many times."""
            logits = likely
            for _ in range(times if self.coupling else 0):
                heard = neighbours.mean(logits.softmax(-1) * free + labels)
                logits = likely + self.coupling * agreement * heard
            return logits

        sure = 0 if self.few_of_all else known  # classes that need no more labels
        for _ in range(ROUNDS if self.unlabelled and len(count) > sure else 0):
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
    """(nodes, classes): 1 where a label may be read now."""
    nodes = torch.arange(shared.graph.num_nodes, device=view.visible.device)
    few = (nodes[:, None, None] == task.support).any(-1)
    many = [shared.class_means.shares(task.averaged).mT > 0] if len(task.averaged) else []
    gone = few.new_zeros(len(nodes), len(task.classes) - len(task.averaged) - len(task.support))
    return torch.cat([gone, *many, few], -1).to(view.visible.dtype)


def smoothed_shares(labels: Tensor) -> Tensor:
    """(nodes, classes), in all 1 for a class: what its labels (nodes, classes) teach, smoothed."""
    told = labels / labels.sum(0)
    return (1 - LABEL_SMOOTHING) * told + LABEL_SMOOTHING * told.mean(-1, keepdim=True)


def taught_shares(told: Tensor, found: Tensor) -> Tensor:
    """The same, of these and of what is ``found`` of nodes without labels (nodes, classes)."""
    return (1 - TAUGHT) * told + TAUGHT * found / found.sum(0).clamp(min=1)


class Within:
    """Covariances within the known classes, all of one weight, with a share of that of all visible nodes.

    They are drawn towards equal variances, more where labels are fewer than columns: towards the mean of all
    but the encoder's, which varies little within classes that it was trained on, and more within new ones.
    """

    def __init__(
        self, labels: Tensor, known: int, visible: Tensor, kept: Evidence | None, width: int
    ) -> None:
        self.labels, self.known, self.kept = labels, known, kept
        self.count = labels.sum(0)  # (classes,) labels that tell of each
        if kept:
            self.count = self.count + self._padded(torch.cat([kept.counts, kept.shots]).unsqueeze(-1))[:, 0]
        self._equal = (1 - self.count[:known].sum() / width).clamp(min=RIDGE)
        every = torch.cat([labels[:, :known], visible.unsqueeze(-1)], -1)
        self._shares = (every / every.sum(0).clamp(min=1)).mT  # (known + 1, nodes)
        weights = torch.full_like(self._shares[:, 0], (1 - TOTAL) / known)
        weights[-1] = TOTAL
        self._weights = weights.unsqueeze(-1)

    def _padded(self, rows: Tensor) -> Tensor:
        """Rows of the classes that came first, and zeros for the others."""
        return torch.cat([rows, rows.new_zeros(self.labels.shape[-1] - len(rows), rows.shape[-1])])

    def means(self, features: Tensor) -> Tensor:
        """(known, width), of labels that may be read."""
        return self._shares[:-1] @ features

    def _covariance(self, left: Tensor, right: Tensor) -> Tensor:
        """(columns of the left, of the right)."""
        weights = (self._weights * self._shares).sum(0).unsqueeze(-1)
        parts = zip(*(each.split(NODES) for each in (left, weights, right)), strict=True)
        moment = sum(one.mT @ (weight * other) for one, weight, other in parts)
        return moment - (self._weights * (self._shares @ left)).mT @ (self._shares @ right)

    def settled(self, features: Tensor, columns: int) -> Settled:
        """Of features (nodes, width), of which the last ``columns`` are the encoder's."""
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

    def beside(self, settled: Settled, learnt: Tensor) -> tuple[Tensor, Tensor]:
        """Points (nodes, columns) of other features: what the settled ones do not tell; and all traces."""
        means = self.means(learnt)
        centre = means.mean(0)
        learnt = learnt - centre
        told = (1 - self._equal) * self._covariance(settled.points, learnt)
        variance = settled.variance if len(told) else None  # the encoder's own, where nothing else is there
        covariance = shrunk(self._covariance(learnt, learnt), self._equal, variance)
        root = torch.linalg.cholesky_ex(covariance - told.mT @ told).L
        points = _divided(learnt - settled.points @ told, root)
        return points, settled.traces + _traces(covariance, means - centre)

    def kept_sums(self, settled: Settled) -> Tensor | float:
        """What is kept of the sums over labels (classes, width) that are gone, in these coordinates."""
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
    """Means drawn with one covariance, nodes around them with another, in coordinates where that is one.

    There the first is `floor` in all directions, and more in those that the known classes' means span: with
    fewer of them than features no other directions are told apart.
    """

    def __init__(self, within: Within, settled: Settled, learnt: Tensor | None) -> None:
        self._points, traces = [settled.points], settled.traces
        if learnt is not None:
            points, traces = within.beside(settled, learnt)
            self._points.append(points)
        self.total = self.sums(within.labels) + within.kept_sums(settled)  # (classes, width) over labels
        known, freedom = within.known, max(within.known - 1, 1)
        spread = self.total[:known] / within.count[:known].unsqueeze(-1) / freedom**0.5
        values, vectors = torch.linalg.eigh(spread @ spread.mT)
        values, vectors = values[1:].clamp(min=LEAST), vectors[:, 1:]  # means around their own have one less
        self._axes = spread.mT @ (vectors / values.sqrt())  # (width, known - 1)
        self._floor = PRIOR * traces[1] / freedom / traces[0]
        self._spread = self._floor + (1 - PRIOR) * values  # (known - 1,)
        self._others = self.total.shape[-1] - known + 1
        self._along = self._times(self._axes.mT)
        length = torch.stack([points.square().sum(-1) for points in self._points]).sum(0)
        self._aside = length - self._along.square().sum(-1)

    def sums(self, shares: Tensor) -> Tensor:
        """(classes, width), over nodes of which each has these shares (nodes, classes) in a class."""
        return torch.cat([shares.mT @ points for points in self._points], -1)

    def _times(self, rows: Tensor) -> Tensor:
        """(nodes, rows), the products of all points with some rows (rows, width)."""
        parts = rows.split([points.shape[-1] for points in self._points], -1)
        return torch.stack([p @ r.mT for p, r in zip(self._points, parts, strict=True)]).sum(0)

    def log_likelihood(self, counts: Tensor, sums: Tensor) -> Tensor:
        """(nodes, classes): of each node, if it were of a class of which nodes of such a sum are known."""
        along = sums @ self._axes
        # A mean's variance after n nodes is b / (1 + n b), and the mean is that times their sum.
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
    """Means over a node's visible neighbours."""

    def __init__(self, graph: Graph, view: View) -> None:
        self._graph, self._view = graph, view
        self._root = torch.where(view.scale > 0, 1 / view.scale.clamp(min=LEAST), 0.0).unsqueeze(-1)
        self._count = (view.log_degree.exp() - 1).clamp(min=1).unsqueeze(-1)

    def mean(self, values: Tensor) -> Tensor:
        """(nodes, columns), of values that are zero where nothing is to be heard."""
        return self._sum(values) / self._count

    def agreement(self, labels: Tensor) -> Tensor:
        """(1,) From labels (nodes, classes): how much more often neighbours share one than by chance."""
        seen = self._sum(labels)  # (nodes, classes) labelled neighbours of each class
        pairs = labels.mT @ seen  # (classes, classes)
        edges = pairs.sum().clamp(min=1)
        chance = (pairs.sum(0) / edges).square().sum()
        return (
            ((pairs.diagonal().sum() / edges - chance) / (1 - chance).clamp(min=LEAST)).clamp(min=0).view(1)
        )

    def _sum(self, values: Tensor) -> Tensor:
        around = self._graph.aggregate(self._root * values, self._view) * self._root
        return around - values * self._view.visible.unsqueeze(-1)  # propagation counts the node itself
