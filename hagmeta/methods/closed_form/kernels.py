"""Base class of closed-form heads on features of a Gaussian kernel."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from hagmeta.common.settings.domains import Number
from hagmeta.common.settings.setting import setting
from hagmeta.layers.statistics import LEAST, LabelledRows
from hagmeta.methods.base import COMMON, Shared, Task
from hagmeta.methods.closed_form.base import ClosedForm, ClosedFormSettings, moments
from hagmeta.packs.values import like


@dataclass(frozen=True, kw_only=True)
class KernelSettings(ClosedFormSettings):
    """Settings of heads on kernel features."""

    kernel_width: float = setting(
        1.0,
        "standard deviation of the Gaussian kernel, relative to the root mean square distance between"
        " labelled nodes of the known classes",
        Number(at_most=1000, above=0),
        scope="method",
    )


class OnKernel(ClosedForm):
    """A closed-form head on kernel features, which depend on labelled nodes of the known classes.

    With `rehearsal: none` that dependence is kept from session 0, because all statistics must have the same
    features. Otherwise it is computed again in each session.
    """

    differs: ClassVar = (*COMMON, "kernel_width", "tukey")
    kernel_width: Tensor

    @abstractmethod
    def fit(self, known: LabelledRows) -> tuple[Tensor, ...]:
        """Return what the kernel features depend on, given the labelled nodes of the known classes."""

    @abstractmethod
    def lifted(self, rows: Tensor, *fitted: Tensor) -> Tensor:
        """Return the kernel features (..., columns) of `rows` (..., width)."""

    def classify(self, shared: Shared, encoded: Tensor, task: Task) -> Tensor:
        means, scatter, *fitted = self.statistics(shared, encoded, task)
        return self.answer((means, scatter), self.lifted(encoded[task.query], *fitted))

    def statistics(self, shared: Shared, features: Tensor, task: Task) -> tuple[Tensor, ...]:
        """Return the class means and the sum of covariances of kernel features, and the result of `fit`."""
        known = self.known(shared, features, task)
        fitted = task.class_statistics[2:] or self.fit(known[0])

        def rows(nodes: Tensor) -> Tensor:
            return self.lifted(features[nodes], *fitted)

        return *moments([replace(each, rows=rows) for each in known], task.class_statistics[:2]), *fitted

    def deviation(self, known: LabelledRows) -> Tensor:
        """Return the standard deviation of the kernel."""
        return like(self.kernel_width, known.share) * root_mean_square_distance(known)


def root_mean_square_distance(known: LabelledRows) -> Tensor:
    """Return the root mean square distance between two labelled nodes, with equal class weights."""

    def with_square(nodes: Tensor) -> Tensor:
        rows = known.rows(nodes)
        return torch.cat([rows, (rows * rows).sum(-1, keepdim=True)], dim=-1)

    mean = replace(known, rows=with_square).means().mean(0)
    variance = mean[-1] - (mean[:-1] * mean[:-1]).sum()
    return (2 * variance).clamp(min=LEAST).sqrt()
