"""Means and covariances of classes, computed from their labelled nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

# Nodes per chunk, of one class and of all classes. If another seed needs more chunks, only zeros are added,
# so that results do not change by a bit.
CHUNK, ROWS = 128, 512
MOMENT_ROWS, MOMENT_COLUMNS = 4096, 128  # rows and columns per product of a moment
LEAST = 1e-12  # minimum variance; with one node per class the variance is 0


@dataclass(frozen=True)
class LabelledRows:
    """The labelled nodes of some classes, with their weights and a function that returns their features."""

    nodes: Tensor  # (classes, nodes)
    share: Tensor  # (classes, nodes) weights, which sum to 1 for each class
    rows: Callable[[Tensor], Tensor]  # maps nodes (...) to features (..., width)
    counting: int | None = None  # maximum number of nodes with a weight above 0 (None: all)

    def means(self) -> Tensor:
        """Return the class means (classes, width)."""
        classes = torch.arange(len(self.nodes), device=self.nodes.device)
        total = torch.zeros((), device=self.nodes.device)
        for rows, share, owner in self.chunks():
            total = total + (share * (owner == classes)).mT @ rows
        return total

    def counts(self) -> Tensor:
        """Return the number of labelled nodes of each class (classes,). A repeated node counts once."""
        nodes, order = self.nodes.sort(dim=-1)
        counted = self.share.gather(-1, order) > 0
        fresh = F.pad(nodes[:, 1:] != nodes[:, :-1], (1, 0), value=True)
        return (counted & fresh).sum(-1).to(self.share.dtype)

    def covariances(self, means: Tensor) -> Tensor:
        """Return class covariances (classes, width, width), divided by the number of nodes n, not n - 1."""
        total = means.new_zeros(*means.shape, means.shape[-1])
        for nodes, share in zip(self.nodes.split(CHUNK, -1), self.share.split(CHUNK, -1), strict=True):
            apart = self.rows(nodes) - means.unsqueeze(-2)
            total = total + (share.unsqueeze(-1) * apart).mT @ apart
        return total

    def scatter(self, means: Tensor) -> Tensor:
        """Return the sum of the class covariances (width, width). All classes have the same weight."""
        total = means.new_zeros(means.shape[-1], means.shape[-1])
        for rows, share, owner in self.chunks():
            apart = rows - means[owner.squeeze(-1)]
            total = total + (share * apart).mT @ apart
        return total

    def chunks(self) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Yield, in chunks, features (nodes, width), weights (nodes, 1) and class positions (nodes, 1).

        Nodes with weight 0 are left out, because the largest class may have many more nodes than others.
        """
        share, place = self.share.flatten().sort(stable=True, descending=True)
        parts = [self.nodes.flatten()[place], share, place // self.nodes.shape[-1]]
        if self.counting is not None:
            most = -(-self.counting // ROWS) * ROWS
            parts = [F.pad(part[:most], (0, max(0, most - len(part)))) for part in parts]
        for nodes, each, owner in zip(*(part.split(ROWS) for part in parts), strict=True):
            yield self.rows(nodes), each.unsqueeze(-1), owner.unsqueeze(-1)


def moment(rows: Tensor, weights: Tensor) -> Tensor:
    """Return ``rows.mT @ diag(weights) @ rows`` (width, width) for `rows` (nodes, width).

    It is symmetric, so only one half is computed. This takes 0.6 times the time of a full product.
    """
    total = rows.new_zeros(rows.shape[-1], rows.shape[-1])
    for some, weight in zip(rows.split(MOMENT_ROWS), weights.split(MOMENT_ROWS), strict=True):
        weighed = some * weight.unsqueeze(-1)
        for start in range(0, len(total), MOMENT_COLUMNS):
            end = start + MOMENT_COLUMNS
            total[:end, start:end].addmm_(some[:, :end].mT, weighed[:, start:end])
    return total.triu_() + total.triu(1).mT


def mean_variance(covariance: Tensor) -> Tensor:
    """Return the mean variance (...) of covariances (..., width, width)."""
    return covariance.diagonal(dim1=-2, dim2=-1).mean(-1).clamp(min=LEAST)


def shrunk(covariance: Tensor, share: float | Tensor, variance: Tensor | None = None) -> Tensor:
    """Return covariances (..., width, width), shrunk by `share` towards equal, uncorrelated variances.

    The target is `variance` (...), or by default their mean variance.
    """
    variance = mean_variance(covariance) if variance is None else variance
    return (1 - share) * covariance + share * _diagonal(variance, covariance)


def ridged(moment: Tensor, ridge: float | Tensor) -> Tensor:
    """Return `moment` (width, width) with `ridge` times its mean eigenvalue added to the diagonal."""
    return moment + ridge * _diagonal(moment.diagonal().mean(), moment)


def _diagonal(value: Tensor, like: Tensor) -> Tensor:
    return value[..., None, None] * torch.eye(like.shape[-1], device=like.device)


def solve(positive: Tensor, right: Tensor) -> Tensor:
    """Return ``positive^-1 right`` (width, columns) for a symmetric positive definite matrix."""
    return torch.cholesky_solve(right, torch.linalg.cholesky_ex(positive).L)
