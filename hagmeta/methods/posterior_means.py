"""Posterior means: estimate class means from few labels, unlabelled nodes and the known classes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from hagmeta.common.settings import HIGHEST_WEIGHT, setting
from hagmeta.common.traits import MethodTraits
from hagmeta.methods.base import COMMON, SessionLearning, Shared, Sizes, Task
from hagmeta.methods.closed_form import ClosedFormSettings, OnFeatures, labels_of, random_columns
from hagmeta.methods.parts import RereadsMany, Settles
from hagmeta.nn.head import LABEL_SMOOTHING, cosine_logits
from hagmeta.nn.statistics import LEAST, mean_variance, moment, shrunk
from hagmeta.packs.one_by_one import one_by_one
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
    """Features in whitened coordinates, where the within-class covariance is the identity.

    Rows are visible nodes in ascending order. Behind them, arrays are padded to the number of all nodes.
    """

    points: Tensor  # (nodes, width)
    inner: Tensor  # (nodes, classes) products of the points with `sums`
    length: Tensor  # (nodes,) squared lengths of the points
    sums: Tensor  # (classes, width) sums of the points over the labels of each class
    middles: Tensor  # (known + 1, width) means of the points of each known class, and of all visible nodes
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
        """Return `Settled` for all features but those of an encoder that learns, and their sources.

        On a GPU the points are left out, because those of a pack need too much memory. They are computed
        again from the sources.
        """
        sources = tuple(source.detach() for source in self.sources(shared.graph, view))
        labels = labels_of(shared, view, task)
        settled = one_by_one(self, "settle_one", shared.graph, _bare(view), labels, sources, _bare_task(task))
        return (*settled, *sources) if _forgets(shared.graph) else settled

    def settle_one(
        self, graph: Graph, view: View, labels: Tensor, sources: tuple[Tensor, ...], task: Task
    ) -> tuple[Tensor, ...]:
        """Return `Settled` of one seed."""
        rows = _rows_of(view)
        within = self._within(labels[rows], view.learnable[rows], task)
        settled = within.settled(
            self._fixed_features(graph, view, sources, rows), self.of_encoder - self._later()
        )
        points = settled.points[:0] if _forgets(graph) else _padded(settled.points, len(labels))
        inner, length = (_padded(part, len(labels)) for part in (settled.inner, settled.length))
        return settled._replace(points=points, inner=inner, length=length)

    def _later(self) -> int:
        """Return the number of columns that are not settled, because the encoder changes them."""
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
        settled = view.settled or self.settle(shared, view, task)
        seedwise = (_bare(view), labels, settled, learnt, _bare_task(task))
        logits, free = one_by_one(self, "answer_one", shared.graph, *seedwise)
        return logits, labels, free

    def answer_one(
        self,
        graph: Graph,
        view: View,
        labels: Tensor,
        settled: tuple[Tensor, ...],
        learnt: Tensor | None,
        task: Task,
    ) -> tuple[Tensor, Tensor]:
        """Return logits (nodes, classes) of one seed, and which nodes (nodes, 1) are unlabelled."""
        rows = _rows_of(view)
        within = self._within(labels[rows], view.learnable[rows], task)
        found = self._recovered(graph, view, settled, rows)
        model = TwoCovariances(within, found, None if learnt is None else learnt[rows])
        known, count, total = within.known, within.count, model.total
        likely = labels.new_zeros(labels.shape)  # of nodes that are not visible it is not used
        likely[rows] = TEMPERATURE * model.log_likelihood(count, total, model.inner)
        neighbours = Neighbours(graph, view)
        agreement = within.kept.agreement if within.kept else neighbours.agreement(labels[:, :known])
        heeded = self.coupling * agreement
        labelled = labels.amax(-1, keepdim=True)  # not the sum: a mislabelled node can have two labels
        free = view.learnable.unsqueeze(-1) * (1 - labelled)

        def answers(times: int) -> Tensor:
            """Return logits (nodes, classes) after `times` updates by the neighbours' predictions."""
            logits = likely
            for _ in range(times if self.hears else 0):
                heard = neighbours.mean(logits.softmax(-1).mul_(free).add_(labels))
                logits = torch.addcmul(likely, heard, heeded)
            return logits

        sure = 0 if self.few_of_all else known  # the first classes, which need no unlabelled nodes
        for _ in range(ROUNDS if self.counts_unlabelled and len(count) > sure else 0):
            soft = self.unlabelled * free * answers(HEARD_IN_A_ROUND).softmax(-1)[:, sure:]
            soft = soft * (MOST / soft.sum(0).clamp(min=LEAST)).clamp(max=1)
            sums = total[sure:] + model.sums(soft[rows])
            likely[rows, sure:] = TEMPERATURE * model.log_likelihood(count[sure:] + soft.sum(0), sums)
        return answers(HEARD_AT_LAST), free

    def _recovered(self, graph: Graph, view: View, settled: tuple[Tensor, ...], rows: Tensor) -> Settled:
        """Return `Settled` without padding, and with points."""
        count = len(Settled._fields)
        found, sources = Settled(*settled[:count]), settled[count:]
        if sources:
            points = self._fixed_features(graph, view, sources, rows).sub_(found.centre)
            _divide(points, found.root)
        else:
            points = found.points[: len(rows)]
        return found._replace(points=points, inner=found.inner[: len(rows)], length=found.length[: len(rows)])

    def _within(self, labels: Tensor, visible: Tensor, task: Task) -> Within:
        kept = Evidence(*task.kept) if task.kept else None
        known = len(kept.means) if kept else len(task.averaged)
        return Within(labels, known, visible, kept, self.width)


def _bare(view: View) -> View:
    """Return a view without inputs and values that were computed before."""
    return View(view.visible, view.scale, view.log_degree, pool=view.pool)


def _bare_task(task: Task) -> Task:
    return task._replace(recalled=())


def _forgets(graph: Graph) -> bool:
    """Return whether points are computed again for every use: on a GPU, where memory is scarcer than time."""
    return graph.device.type == "cuda"


def _rows_of(view: View) -> Tensor:
    """Return the visible nodes in ascending order."""
    return view.visible.nonzero().squeeze(-1)


def _padded(rows: Tensor, count: int) -> Tensor:
    return F.pad(rows, (0,) * (2 * rows.dim() - 1) + (count - len(rows),))


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
        self._every = torch.cat([labels, visible.unsqueeze(-1)], -1).mT  # (classes + 1, nodes)
        self._chosen = [*range(known), -1]  # rows of it: the known classes and all visible nodes
        self._sizes = self._every.sum(-1, keepdim=True)
        self._shares = self._every[self._chosen] / self._sizes[self._chosen].clamp(min=1)
        self._weights = torch.full_like(self._shares[:, :1], (1 - TOTAL) / known)
        self._weights[-1] = TOTAL
        self._weight = (self._weights * self._shares).sum(0)  # (nodes,)

    def _padded(self, rows: Tensor) -> Tensor:
        """Return `rows` of the first classes, padded with zeros for the other classes."""
        return torch.cat([rows, rows.new_zeros(self.labels.shape[-1] - len(rows), rows.shape[-1])])

    def settled(self, features: Tensor, columns: int) -> Settled:
        """Whiten `features` (nodes, width) in place, of which the last `columns` are the encoder's."""
        sums = self._every @ features
        means = self.kept.means if self.kept else sums[: self.known] / self._sizes[: self.known]
        centre = means.mean(0)
        sums, means = sums - self._sizes * centre, means - centre
        middles = sums[self._chosen] / self._sizes[self._chosen].clamp(min=1)
        covariance = moment(features.sub_(centre), self._weight) - (self._weights * middles).mT @ middles
        if self.kept:
            covariance = covariance + (1 - TOTAL) * self.kept.scatter / self.known
        others = features.shape[-1] - columns
        variance = mean_variance(covariance[:others, :others] if others else covariance)
        covariance = shrunk(covariance, self._equal, variance)
        root = torch.linalg.cholesky_ex(covariance).L
        _divide(features, root)
        total = _divided(sums[:-1], root) + self._kept_sums(centre, root)
        return Settled(
            points=features,
            inner=features @ total.mT,
            length=features.square().sum(-1),
            sums=total,
            middles=_divided(middles, root),
            centre=centre,
            root=root,
            variance=variance,
            traces=_traces(covariance, means),
        )

    def residuals(self, settled: Settled, learnt: Tensor) -> tuple[Tensor, Tensor]:
        """Return the whitened residuals of the `learnt` features given the settled ones, and the new traces.

        The residuals are (nodes, columns): the part that the settled features do not predict.
        """
        middles = self._shares @ learnt
        means, centre = middles[:-1], middles[:-1].mean(0)
        learnt, middles = learnt - centre, self._weights * (middles - centre)
        weighed = self._weight.unsqueeze(-1) * learnt
        told = (1 - self._equal) * (settled.points.mT @ weighed - settled.middles.mT @ middles)
        variance = settled.variance if len(told) else None  # None: there are only the encoder's columns
        covariance = learnt.mT @ weighed - (middles / self._weights).mT @ middles
        covariance = shrunk(covariance, self._equal, variance)
        root = torch.linalg.cholesky_ex(covariance - told.mT @ told).L
        points = learnt.addmm_(settled.points, told, alpha=-1)
        _divide(points, root)
        return points, settled.traces + _traces(covariance, means - centre)

    def _kept_sums(self, centre: Tensor, root: Tensor) -> Tensor | float:
        """Return the kept sums over labels that are gone (classes, width), in the whitened coordinates."""
        if not self.kept:
            return 0.0
        of_known = self.kept.means * self.kept.counts.unsqueeze(-1)
        sums, counts = torch.cat([of_known, self.kept.sums]), torch.cat([self.kept.counts, self.kept.shots])
        return self._padded(_divided(sums - counts.unsqueeze(-1) * centre, root))


def _traces(covariance: Tensor, means: Tensor) -> Tensor:
    return torch.stack([covariance.diagonal().sum(), means.square().sum()])


def _divided(rows: Tensor, root: Tensor) -> Tensor:
    return torch.linalg.solve_triangular(root, rows.mT, upper=False).mT


def _divide(rows: Tensor, root: Tensor) -> None:
    """Replace `rows` by `_divided`, in chunks: a copy of all rows would double the memory."""
    for some in rows.split(NODES):
        some.copy_(_divided(some, root))


class TwoCovariances:
    """The two-covariance model, in coordinates where the within-class covariance is the identity.

    The covariance of class means is `floor` in all directions, and larger in directions spanned by the known
    class means. With fewer known classes than features, other directions cannot be distinguished.
    """

    def __init__(self, within: Within, settled: Settled, learnt: Tensor | None) -> None:
        self._points, traces = [settled.points], settled.traces
        self.total, self.inner, length = settled.sums, settled.inner, settled.length  # over labels
        if learnt is not None:
            points, traces = within.residuals(settled, learnt)
            sums = within.labels.mT @ points
            self._points.append(points)
            self.total = torch.cat([self.total, sums], -1)
            self.inner = torch.addmm(self.inner, points, sums.mT)
            length = length + points.square().sum(-1)
        known, freedom = within.known, max(within.known - 1, 1)
        share = 1 / within.count[:known].unsqueeze(-1) / freedom**0.5
        spread = self.total[:known] * share
        values, vectors = torch.linalg.eigh(spread @ spread.mT)
        values, vectors = values[1:].clamp(min=LEAST), vectors[:, 1:]  # centred means lose one dimension
        turned = vectors / values.sqrt()
        self._axes = spread.mT @ turned  # (width, known - 1)
        self._floor = PRIOR * traces[1] / freedom / traces[0]
        self._spread = self._floor + (1 - PRIOR) * values  # (known - 1,)
        self._others = self.total.shape[-1] - known + 1
        self._along = self.inner[:, :known] @ (share * turned)  # the products of points and axes
        self._squares = self._along.square()
        self._aside = (length - self._squares.sum(-1)).unsqueeze(-1)

    def sums(self, shares: Tensor) -> Tensor:
        """Return sums (classes, width) over the nodes, weighted by `shares` (nodes, classes)."""
        return torch.cat([shares.mT @ points for points in self._points], -1)

    def _times(self, rows: Tensor) -> Tensor:
        """Return the products (nodes, rows) of all points with `rows` (rows, width)."""
        parts = rows.split([points.shape[-1] for points in self._points], -1)
        return sum((p @ r.mT for p, r in zip(self._points, parts, strict=True)), rows.new_zeros(()))

    def log_likelihood(self, counts: Tensor, sums: Tensor, inner: Tensor | None = None) -> Tensor:
        """Return the log-likelihood (nodes, classes) of each node in each class.

        `counts` (classes,) and `sums` (classes, width) describe the labelled nodes of the classes. `inner`
        (nodes, classes) are the products of the points with the sums, if they are known.
        """
        along = sums @ self._axes
        # After n nodes, a class mean has the variance b / (1 + n b), and its mean is that times their sum.
        rest = self._floor / (1 + counts * self._floor)
        variance = self._spread / (1 + counts.unsqueeze(-1) * self._spread)
        mean, width = variance * along, 1 + variance
        length = sums.square().sum(-1) - along.square().sum(-1)
        inner = self._times(sums) if inner is None else inner
        # The distance in the directions of the axes, and in all others. One array holds the sum.
        pull = rest / (1 + rest)
        distance = torch.addmm(
            (mean.square() / width + width.log()).sum(-1)
            + rest.square() * length / (1 + rest)
            + self._others * rest.log1p(),
            self._squares,
            (1 / width).mT,
        )
        distance.addmm_(self._along, (mean / width - pull.unsqueeze(-1) * along).mT, alpha=-2)
        distance.addcmul_(self._aside, 1 / (1 + rest))
        distance.addcmul_(inner, pull, value=-2)
        return distance.mul_(-0.5)


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
