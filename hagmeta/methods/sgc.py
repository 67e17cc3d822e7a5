"""Nearest mean, ridge regression and linear discriminant analysis on propagated features.

These are as in SGC (Wu et al., ICML 2019), which has the last hop alone, under logistic regression. By
default an encoder's output stands beside them, as in our own method; `features: propagated` does without.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from hagmeta.common.settings import BY_METHOD, HIGHEST_WEIGHT, setting
from hagmeta.common.traits import MethodTraits
from hagmeta.methods.base import Shared, Sizes, Task
from hagmeta.methods.closed_form import ClosedForm, ClosedFormSettings
from hagmeta.nn.statistics import ridged, shrunk, solve

SGC = (
    "Felix Wu, Tianyi Zhang, Amauri Souza Jr., Christopher Fifty, Tao Yu and Kilian Weinberger. Simplifying"
    " Graph Convolutional Networks. ICML 2019."
)


@dataclass(frozen=True, kw_only=True)
class RidgeSettings(ClosedFormSettings):
    """The strength of the regression's penalty."""

    ridge: float = setting(
        0.1,
        "ridge penalty, relative to the mean eigenvalue of the matrix that is inverted",
        above=0,
        at_most=HIGHEST_WEIGHT,
    )


@dataclass(frozen=True, kw_only=True)
class ShrinkageSettings(ClosedFormSettings):
    """How far covariances are trusted."""

    shrinkage: float | None = setting(
        BY_METHOD,
        "shrink covariances towards equal variances by this share (default: 0.1 for sgc-lda, 0.5 for fecam)",
        above=0,
        at_most=1,
    )


class SgcNcm(ClosedForm):
    """The nearest class mean, by cosine."""

    own_settings = ClosedFormSettings
    traits: ClassVar = MethodTraits(
        title="SGC-NCM",
        citation=f"Nearest class means, on the features of {SGC}",
        closed_form=True,
        revision=2,
    )

    def statistics(self, shared: Shared, features: Tensor, task: Task) -> tuple[Tensor, ...]:
        return (torch.cat([*task.kept, *(known.means() for known in self.known(shared, features, task))]),)

    def answer(self, statistics: tuple[Tensor], query: Tensor) -> Tensor:
        (means,) = statistics
        return F.normalize(query, dim=-1) @ F.normalize(means, dim=-1).mT


class SgcRidge(ClosedForm):
    """Ridge regression with an intercept, from features to 1 for a node's class and 0 for each other.

    Every class weighs the same, whatever the number of its labels: with every label weighing the same, K of
    them beside hundreds would be drowned.
    """

    own_settings = RidgeSettings
    traits: ClassVar = MethodTraits(
        title="SGC-Ridge",
        citation=f"Ridge regression, on the features of {SGC}",
        closed_form=True,
        revision=2,
    )

    def __init__(self, settings: RidgeSettings, sizes: Sizes, seed: int) -> None:
        super().__init__(settings, sizes, seed)
        self.ridge = settings.ridge

    def answer(self, statistics: tuple[Tensor, Tensor], query: Tensor) -> Tensor:
        means, scatter = statistics
        classes, centre = len(means), means.mean(0)
        apart = means - centre
        variance = (scatter + apart.mT @ apart) / classes
        slopes = solve(ridged(variance, self.ridge), apart.mT / classes)
        return (query - centre) @ slopes + 1 / classes


class SgcLda(ClosedForm):
    """Linear discriminant analysis: one covariance for all classes, all equally likely.

    The covariance is the mean of the classes' own, each divided by the number of its nodes.
    """

    own_settings = ShrinkageSettings
    traits: ClassVar = MethodTraits(
        title="SGC-LDA",
        citation=f"Linear discriminant analysis, on the features of {SGC}",
        closed_form=True,
        revision=2,
    )
    defaults: ClassVar = {"shrinkage": 0.1}

    def __init__(self, settings: ShrinkageSettings, sizes: Sizes, seed: int) -> None:
        super().__init__(settings, sizes, seed)
        assert settings.shrinkage is not None
        self.shrinkage = settings.shrinkage

    def answer(self, statistics: tuple[Tensor, Tensor], query: Tensor) -> Tensor:
        means, scatter = statistics
        centre = means.mean(0)  # all can be taken from it: smaller numbers round less
        apart = means - centre
        slopes = solve(shrunk(scatter / len(means), self.shrinkage), apart.mT)
        return (query - centre) @ slopes - (apart * slopes.mT).sum(-1) / 2
