"""Statistics of classes whose labels may not be read again, and how class means move as the graph grows."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from hagmeta.methods.base import Task

DRIFT = 0.03  # variance by which the mean of a class moves after its session
NODE_DRIFT = 0.3  # variance by which a node of the class moves relative to this mean


class Evidence(NamedTuple):
    """Statistics of classes whose labels are gone: the known classes of session 0, then the others."""

    means: Tensor  # (known, width)
    counts: Tensor  # (known,) labels per class
    scatter: Tensor  # (width, width) sum of the covariances of the known classes
    agreement: Tensor  # (1,) how often labelled neighbours share a class: 0 is chance level, 1 is always
    sums: Tensor  # (others, width) sums over the labelled nodes of each class
    shots: Tensor  # (others,) labels per class
    exemplars: Tensor  # (known + others, width) means of the nodes that keep their labels, if any do

    def all_sums(self) -> tuple[Tensor, Tensor]:
        """Return the sums (known + others, width) and the numbers of labels of all classes."""
        of_known = self.means * self.counts.unsqueeze(-1)
        return torch.cat([of_known, self.sums]), torch.cat([self.counts, self.shots])

    def _parts(self, values: Tensor) -> tuple[Tensor, ...]:
        """Return the rows of the known classes, and those of the others."""
        return values.split([len(self.counts), len(self.shots)])

    def moved(self, way: Tensor) -> Evidence:
        """Return evidence whose class means moved by `way` (known + others, width)."""
        old, other = self._parts(way)
        return self._replace(means=self.means + old, sums=self.sums + self.shots.unsqueeze(-1) * other)

    def aged(self, drift: Tensor) -> Evidence:
        """Return evidence that counts less, because class means move by variances `drift` (known + others,).

        The mean of n labels is as uncertain as that of n / (1 + n drift) labels of today.
        """
        old, other = self._parts(1 + drift * torch.cat([self.counts, self.shots]))
        sums = self.sums / other.unsqueeze(-1)
        return self._replace(counts=self.counts / old, sums=sums, shots=self.shots / other)


def kept_today(kept: Evidence, task: Task, exemplars: Tensor | None) -> Evidence:
    """Return `kept` as it counts today. Class means have moved; their exemplars show how far.

    `exemplars` are the mean features of the exemplars today (classes, width); without them, no mean moves.

    A class mean moves by a variance `DRIFT`. The mean of M exemplars moves along. It moves differently by the
    variance `NODE_DRIFT` (1/M - 1/n), because they are M of the n labelled nodes. So it is trusted in part.
    """
    labels = torch.cat([kept.counts, kept.shots])
    if not task.exemplars:
        return kept.aged(torch.full_like(labels, DRIFT))
    many = (task.exemplars[0][: len(labels)] >= 0).sum(-1)
    trust = DRIFT / (DRIFT + NODE_DRIFT * (1 / many - 1 / labels).clamp(min=0))
    if exemplars is not None:
        kept = kept.moved(trust.unsqueeze(-1) * (exemplars[: len(labels)] - kept.exemplars))
    return kept.aged(DRIFT * (1 - trust))


def exemplar_means(features: Tensor, task: Task, rows: Tensor | None = None) -> Tensor | None:
    """Return the mean features (classes, width) of the exemplars, if there are any.

    `rows` are the nodes in `features`, in ascending order, if these are not all nodes.
    """
    if not task.exemplars:
        return None
    (nodes,) = task.exemplars
    places = nodes.clamp(min=0) if rows is None else torch.searchsorted(rows, nodes)
    there = (nodes >= 0).to(features.dtype)
    return ((there / there.sum(-1, keepdim=True)).unsqueeze(-2) @ features[places]).squeeze(-2)
