"""Means and covariances of classes, from the nodes that they are known by."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

CHUNK = 128  # nodes of a class at a time: those of another seed add nothing, to the bit
LEAST = 1e-12  # variance that is taken for some where there is none, as with one node a class


@dataclass(frozen=True)
class ClassNodes:
    """The nodes of some classes, what each counts for its class, and what makes rows of numbers of nodes."""

    nodes: Tensor  # (classes, nodes)
    share: Tensor  # (classes, nodes), in all 1 for a class
    rows: Callable[[Tensor], Tensor]  # (classes, nodes) to (classes, nodes, width)

    def means(self) -> Tensor:
        """(classes, width)."""
        return torch.stack([(share.mT @ rows).squeeze(-2) for share, rows in self._chunks()]).sum(0)

    def covariances(self, means: Tensor) -> Tensor:
        """(classes, width, width), around their means; divided by the number of nodes, not by one less."""
        total = means.new_zeros(*means.shape, means.shape[-1])
        for share, rows in self._chunks():
            apart = rows - means.unsqueeze(-2)
            total = total + (share * apart).mT @ apart
        return total

    def scatter(self, means: Tensor) -> Tensor:
        """(width, width), the sum of their covariances: every class weighs the same."""
        total = means.new_zeros(means.shape[-1], means.shape[-1])
        for share, rows in self._chunks():
            apart = rows - means.unsqueeze(-2)
            total = total + (share * apart).flatten(0, 1).mT @ apart.flatten(0, 1)
        return total

    def _chunks(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Shares (classes, nodes, 1) and rows (classes, nodes, width), some of each class at a time."""
        for nodes, share in zip(self.nodes.split(CHUNK, -1), self.share.split(CHUNK, -1), strict=True):
            yield share.unsqueeze(-1), self.rows(nodes)


def mean_variance(covariance: Tensor) -> Tensor:
    """Of covariances (..., width, width): (...)."""
    return covariance.diagonal(dim1=-2, dim2=-1).mean(-1).clamp(min=LEAST)


def shrunk(covariance: Tensor, share: float | Tensor, variance: Tensor | None = None) -> Tensor:
    """Covariances (..., width, width) with a share of equal, uncorrelated variances put in their place.

    These are ``variance`` (...), or else the mean of their own.
    """
    variance = mean_variance(covariance) if variance is None else variance
    return (1 - share) * covariance + share * _diagonal(variance, covariance)


def ridged(moment: Tensor, ridge: float) -> Tensor:
    """A matrix (width, width) with ``ridge`` times the mean of its eigenvalues added to each of them."""
    return moment + ridge * _diagonal(moment.diagonal().mean(), moment)


def _diagonal(value: Tensor, like: Tensor) -> Tensor:
    return value[..., None, None] * torch.eye(like.shape[-1], device=like.device)


def solve(positive: Tensor, right: Tensor) -> Tensor:
    """``positive``^-1 ``right`` (width, columns), of a symmetric matrix whose eigenvalues are positive."""
    return torch.cholesky_solve(right, torch.linalg.cholesky_ex(positive).L)
