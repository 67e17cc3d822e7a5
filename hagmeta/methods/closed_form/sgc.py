"""Nearest class mean, ridge regression and linear discriminant analysis on propagated features.

Features are propagated as in SGC (Wu et al., ICML 2019). SGC itself uses only the last hop, with logistic
regression. By default the output of an encoder is appended, as in posterior-means; `features: propagated`
turns this off.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from hagmeta.common.settings.domains import HIGHEST_WEIGHT, Number
from hagmeta.common.settings.setting import BY_METHOD, setting
from hagmeta.common.traits import MethodTraits
from hagmeta.layers.statistics import ridged, shrunk, solve
from hagmeta.methods.base import COMMON, Shared, Task
from hagmeta.methods.closed_form.base import ClosedForm, ClosedFormSettings

SGC = (
    "Felix Wu, Tianyi Zhang, Amauri Souza Jr., Christopher Fifty, Tao Yu and Kilian Weinberger. Simplifying"
    " Graph Convolutional Networks. ICML 2019."
)


@dataclass(frozen=True, kw_only=True)
class RidgeSettings(ClosedFormSettings):
    """Settings of heads with ridge regression."""

    ridge: float = setting(
        BY_METHOD,
        "ridge penalty, relative to the mean eigenvalue of the matrix that is inverted (default: 0.001 for"
        " gkeal, otherwise 0.1)",
        Number(at_most=HIGHEST_WEIGHT, above=0),
        scope="method",
    )


@dataclass(frozen=True, kw_only=True)
class ShrinkageSettings(ClosedFormSettings):
    """Settings of heads with shrunk covariances."""

    shrinkage: float | None = setting(
        BY_METHOD,
        "shrink covariances towards equal variances by this share (default: 0.1 for sgc-lda and klda,"
        " otherwise 0.5)",
        Number(at_most=1, above=0),
        scope="method",
    )


class SgcNcm(ClosedForm):
    """Nearest class mean by cosine similarity."""

    own_settings = ClosedFormSettings
    differs: ClassVar = (*COMMON, "tukey")
    traits: ClassVar = MethodTraits(
        title="SGC-NCM",
        citation=f"Nearest class means, on the features of {SGC}",
        closed_form=True,
        revision=2,
    )

    def statistics(self, shared: Shared, features: Tensor, task: Task) -> tuple[Tensor, ...]:
        return (
            torch.cat(
                [*task.class_statistics, *(known.means() for known in self.known(shared, features, task))]
            ),
        )

    def answer(self, statistics: tuple[Tensor], query: Tensor) -> Tensor:
        (means,) = statistics
        return F.normalize(query, dim=-1) @ F.normalize(means, dim=-1).mT


class SgcRidge(ClosedForm):
    """Ridge regression with an intercept, from features to one-hot class labels.

    All classes have the same weight. If all labels had the same weight, classes with hundreds of labels would
    dominate classes with K labels.
    """

    own_settings = RidgeSettings
    defaults: ClassVar = {"ridge": 0.1}
    differs: ClassVar = (*COMMON, "ridge", "tukey")
    traits: ClassVar = MethodTraits(
        title="SGC-Ridge",
        citation=f"Ridge regression, on the features of {SGC}",
        closed_form=True,
        revision=2,
    )

    ridge: Tensor

    def answer(self, statistics: tuple[Tensor, Tensor], query: Tensor) -> Tensor:
        means, scatter = statistics
        classes, centre = len(means), means.mean(0)
        apart = means - centre
        variance = (scatter + apart.mT @ apart) / classes
        slopes = solve(ridged(variance, self.ridge), apart.mT / classes)
        return (query - centre) @ slopes + 1 / classes


class SgcLda(ClosedForm):
    """Linear discriminant analysis with one covariance for all classes and equal class priors.

    The covariance is the mean of the class covariances. Each of them is divided by its number of nodes.
    """

    own_settings = ShrinkageSettings
    differs: ClassVar = (*COMMON, "shrinkage", "tukey")
    traits: ClassVar = MethodTraits(
        title="SGC-LDA",
        citation=f"Linear discriminant analysis, on the features of {SGC}",
        closed_form=True,
        revision=2,
    )
    defaults: ClassVar = {"shrinkage": 0.1}
    shrinkage: Tensor

    def answer(self, statistics: tuple[Tensor, Tensor], query: Tensor) -> Tensor:
        return discriminants(*statistics, self.shrinkage, query)


def discriminants(means: Tensor, scatter: Tensor, shrinkage: Tensor, query: Tensor) -> Tensor:
    """Return the linear discriminants (queries, classes) of classes with one shrunk covariance."""
    centre = means.mean(0)  # subtracted for accuracy: smaller numbers have smaller rounding errors
    apart = means - centre
    slopes = solve(shrunk(scatter / len(means), shrinkage), apart.mT)
    return (query - centre) @ slopes - (apart * slopes.mT).sum(-1) / 2
