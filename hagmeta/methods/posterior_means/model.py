"""The two-covariance model: Gaussian classes whose means are drawn from another Gaussian."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from hagmeta.layers.statistics import LEAST, mean_variance, moment, shrunk
from hagmeta.methods.posterior_means.evidence import Evidence

TOTAL = 0.1  # share of the covariance of all visible nodes in the within-class covariance
RIDGE = 0.02  # minimum share of equal variances in it; larger if there are fewer labels than columns
PRIOR = 0.1  # share of the within-class covariance in the covariance of class means
KEPT_PRIOR = 0.3  # the same if labels are gone: means that were kept are less certain
NODES = 4096  # rows per chunk of a product


class Whitened(NamedTuple):
    """Features in whitened coordinates, where the within-class covariance is the identity.

    Rows are visible nodes in ascending order. Behind them, arrays are padded to the number of all nodes.
    """

    points: Tensor  # (nodes, width)
    inner: Tensor  # (nodes, classes) products of the points with `sums`
    length: Tensor  # (nodes,) squared lengths of the points
    sums: Tensor  # (classes, width) sums of the points over the labels of each class
    middles: Tensor  # (known + 1, width) means of the points of each known class, and of all visible nodes
    centre: Tensor  # (width,) mean of the known class means, subtracted from the features
    root: Tensor  # (width, width) Cholesky factor of the covariance, which whitens the features
    variance: Tensor  # () target of the shrinkage: mean variance of all columns but the encoder's, or NaN
    traces: Tensor  # (2,) sum of the shrunk variances, and sum of squares of the known class means


class Within:
    """The mean within-class covariance of the known classes, mixed with the covariance of all visible nodes.

    It is shrunk by `share` towards equal variances. If that is 0, the share is larger if there are fewer
    labels than columns (`width`). The target is the mean variance of all columns but the encoder's. The
    encoder's columns vary little within the classes that it was trained on, but more within new classes.
    """

    def __init__(
        self, labels: Tensor, known: int, visible: Tensor, kept: Evidence | None, width: int, share: Tensor
    ) -> None:
        self.labels, self.known, self.kept = labels, known, kept
        self.count = labels.sum(0)  # (classes,) labels per class
        if kept:
            self.count = self.count + self._padded(kept.all_sums()[1].unsqueeze(-1))[:, 0]
        by_labels = (1 - self.count[:known].sum() / width).clamp(min=RIDGE)
        self._equal = torch.where(share > 0, share.to(by_labels.dtype), by_labels)
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

    def whitened(self, features: Tensor, columns: int) -> Whitened:
        """Whiten `features` (nodes, width) in place, of which the last `columns` are the encoder's."""
        sums, means, centre = self._centred(features)
        middles, covariance = self._covariance(features, sums)
        variance = shrinkage_target(covariance, columns)
        covariance = shrunk(covariance, self._equal, variance)
        root = torch.linalg.cholesky_ex(covariance).L
        whiten(features, root)
        total = _whitened(sums[:-1], root) + self._kept_sums(centre, root)
        return Whitened(
            points=features,
            inner=features @ total.mT,
            length=features.square().sum(-1),
            sums=total,
            middles=_whitened(middles, root),
            centre=centre,
            root=root,
            variance=variance,
            traces=_traces(covariance, means),
        )

    def axes(self, features: Tensor, columns: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Centre `features` in place. Return what a rotation needs to make the covariance diagonal.

        Returns:
            The means of the known classes (known, width), the eigenvalues of the covariance (width,), its
            eigenvectors (width, width), and the target of the shrinkage ().
        """
        sums, means, _ = self._centred(features)
        _, covariance = self._covariance(features, sums)
        values, vectors = torch.linalg.eigh(covariance)
        return means, values.clamp(min=0), vectors, shrinkage_target(covariance, columns)

    def _centred(self, features: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Centre `features` in place. Return sums of all classes and nodes, known means, and the centre."""
        sums = self._every @ features
        means = self.kept.means if self.kept else sums[: self.known] / self._sizes[: self.known]
        centre = means.mean(0)
        features.sub_(centre)
        return sums - self._sizes * centre, means - centre, centre

    def _covariance(self, features: Tensor, sums: Tensor) -> tuple[Tensor, Tensor]:
        """Return the means of the known classes and of all nodes, and the covariance before shrinkage."""
        middles = sums[self._chosen] / self._sizes[self._chosen].clamp(min=1)
        covariance = moment(features, self._weight) - (self._weights * middles).mT @ middles
        if self.kept:
            covariance = covariance + (1 - TOTAL) * self.kept.scatter / self.known
        return middles, covariance

    def residuals(self, whitened: Whitened, learnt: Tensor) -> tuple[Tensor, Tensor]:
        """Return the whitened residuals of the `learnt` features given the whitened ones, and the new traces.

        The residuals are (nodes, columns): the part that the whitened features do not predict.
        """
        middles = self._shares @ learnt
        means, centre = middles[:-1], middles[:-1].mean(0)
        learnt, middles = learnt - centre, self._weights * (middles - centre)
        weighed = self._weight.unsqueeze(-1) * learnt
        known = (1 - self._equal) * (whitened.points.mT @ weighed - whitened.middles.mT @ middles)
        variance = whitened.variance if len(known) else None  # None: there are only the encoder's columns
        covariance = learnt.mT @ weighed - (middles / self._weights).mT @ middles
        covariance = shrunk(covariance, self._equal, variance)
        root = torch.linalg.cholesky_ex(covariance - known.mT @ known).L
        points = learnt.addmm_(whitened.points, known, alpha=-1)
        whiten(points, root)
        return points, whitened.traces + _traces(covariance, means - centre)

    def _kept_sums(self, centre: Tensor, root: Tensor) -> Tensor | float:
        """Return the kept sums over labels that are gone (classes, width), in the whitened coordinates."""
        if not self.kept:
            return 0.0
        sums, counts = self.kept.all_sums()
        return self._padded(_whitened(sums - counts.unsqueeze(-1) * centre, root))


def shrinkage_target(covariance: Tensor, columns: int) -> Tensor:
    """Return the mean variance () of all columns but the last `columns`, or of all."""
    others = covariance.shape[-1] - columns
    return mean_variance(covariance[:others, :others] if others else covariance)


def _traces(covariance: Tensor, means: Tensor) -> Tensor:
    return torch.stack([covariance.diagonal().sum(), means.square().sum()])


def _whitened(rows: Tensor, root: Tensor) -> Tensor:
    return torch.linalg.solve_triangular(root, rows.mT, upper=False).mT


def whiten(rows: Tensor, root: Tensor) -> None:
    """Replace `rows` by `_whitened`, in chunks: a copy of all rows would double the memory."""
    for some in rows.split(NODES):
        some.copy_(_whitened(some, root))


class TwoCovariances:
    """The two-covariance model, in coordinates where the within-class covariance is the identity.

    The covariance of class means is `floor` in all directions, and larger in directions spanned by the known
    class means. With fewer known classes than features, other directions cannot be distinguished.

    A class with few labels has an uncertain mean, so it is wider. In a likelihood it pays for that in every
    direction, and gains where residuals are large. Both nearly cancel if residuals have variance 1. Shrinkage
    makes the within-class covariance too large, and the residuals smaller: then such a class pays too much.
    `limit_penalty` bounds this excess.
    """

    def __init__(self, within: Within, whitened: Whitened, learnt: Tensor | None) -> None:
        self._points, traces = [whitened.points], whitened.traces
        self.total, self.inner, length = whitened.sums, whitened.inner, whitened.length  # over labels
        if learnt is not None:
            points, traces = within.residuals(whitened, learnt)
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
        prior = KEPT_PRIOR if within.kept else PRIOR
        self._floor = prior * traces[1] / freedom / traces[0]
        self._spread = self._floor + (1 - prior) * values  # (known - 1,)
        self._directions = self.total.shape[-1] - known + 1  # those that are not spanned by known class means
        self._empty: Tensor | float = 0.0  # the part of these directions that residuals do not fill
        self._excess = 0.0
        self._along = self.inner[:, :known] @ (share * turned)  # the products of points and axes
        self._squares = self._along.square()
        self._aside = (length - self._squares.sum(-1)).unsqueeze(-1)  # (nodes, 1) squared residuals in them

    def limit_penalty(self, free: Tensor, excess: float) -> None:
        """Let an uncertain class mean add at most `excess` more to a squared distance than residuals justify.

        The residuals are those of the unlabelled nodes, which are marked in `free` (nodes,).
        """
        filled = (free @ self._aside).squeeze(-1) / max(self._directions, 1) / free.sum().clamp(min=1)
        self._empty = (1 - filled).clamp(min=0) * free.any()
        self._excess = excess

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
        pull, penalty = rest / (1 + rest), self._directions * rest.log1p()
        penalty = penalty - (self._empty * penalty - self._excess).clamp(min=0)
        distance = torch.addmm(
            (mean.square() / width + width.log()).sum(-1) + rest.square() * length / (1 + rest) + penalty,
            self._squares,
            (1 / width).mT,
        )
        distance.addmm_(self._along, (mean / width - pull.unsqueeze(-1) * along).mT, alpha=-2)
        distance.addcmul_(self._aside, 1 / (1 + rest))
        distance.addcmul_(inner, pull, value=-2)
        return distance.mul_(-0.5)
