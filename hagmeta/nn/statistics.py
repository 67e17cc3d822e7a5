"""Means and covariances of classes, from the nodes that they are known by."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

# Nodes at a time, of a class and of all classes: where another seed has more, zeros are added, to the bit.
CHUNK, ROWS = 128, 512
LEAST = 1e-12  # variance that is taken for some where there is none, as with one node a class


@dataclass(frozen=True)
class LabelledRows:
    """The nodes of some classes, what each counts for its class, and what makes rows of numbers of nodes."""

    nodes: Tensor  # (classes, nodes)
    share: Tensor  # (classes, nodes), in all 1 for a class
    rows: Callable[[Tensor], Tensor]  # nodes (...) to (..., width)
    counting: int | None = None  # at most so many of all these nodes have a share (None: all)

    def means(self) -> Tensor:
        """(classes, width)."""
        classes = torch.arange(len(self.nodes), device=self.nodes.device)
        total = torch.zeros((), device=self.nodes.device)
        for rows, share, owner in self._labelled():
            total = total + (share * (owner == classes)).mT @ rows
        return total

    def covariances(self, means: Tensor) -> Tensor:
        """(classes, width, width), around their means; divided by the number of nodes, not by one less."""
        total = means.new_zeros(*means.shape, means.shape[-1])
        for nodes, share in zip(self.nodes.split(CHUNK, -1), self.share.split(CHUNK, -1), strict=True):
            apart = self.rows(nodes) - means.unsqueeze(-2)
            total = total + (share.unsqueeze(-1) * apart).mT @ apart
        return total

    def scatter(self, means: Tensor) -> Tensor:
        """(width, width), the sum of their covariances: every class weighs the same."""
        total = means.new_zeros(means.shape[-1], means.shape[-1])
        for rows, share, owner in self._labelled():
            apart = rows - means[owner.squeeze(-1)]
            total = total + (share * apart).mT @ apart
        return total

    def _labelled(self) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Rows (nodes, width) of those with a share, it, and their classes, (nodes, 1) each, some at a time.

        The largest class may have many times as many nodes as others: what counts nothing is left out.
        """
        share, place = self.share.flatten().sort(stable=True, descending=True)
        parts = [self.nodes.flatten()[place], share, place // self.nodes.shape[-1]]
        if self.counting is not None:
            most = -(-self.counting // ROWS) * ROWS
            parts = [F.pad(part[:most], (0, max(0, most - len(part)))) for part in parts]
        for nodes, each, owner in zip(*(part.split(ROWS) for part in parts), strict=True):
            yield self.rows(nodes), each.unsqueeze(-1), owner.unsqueeze(-1)


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
