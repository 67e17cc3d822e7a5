"""FeCAM (Goswami et al., NeurIPS 2023): Mahalanobis distances, with a covariance a class."""

from __future__ import annotations

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from hagmeta.common.traits import MethodTraits
from hagmeta.methods.base import Shared, Sizes, Task
from hagmeta.methods.closed_form import ClosedForm
from hagmeta.methods.sgc import ShrinkageSettings
from hagmeta.nn.statistics import shrunk


class FeCam(ClosedForm):
    """The nearest class mean by the Mahalanobis distance of its class, everything at unit length.

    What had to be decided on graphs and with K labels:
    - features of either sign are raised to a power (`tukey`) by their size and keep their sign; the
      publication's come out of ReLU, and its authors raise no others;
    - a class known by supports has no covariance of its own, since K nodes span K - 1 directions: it takes
      the mean of the covariances of the classes known by many labels;
    - covariances are shrunk towards equal variances alone, as the authors do with few labels (their many-shot
      formula adds a mean covariance, too): a share s is their gamma = s / (1 - s), since covariances are made
      correlations afterwards, as published.
    """

    own_settings = ShrinkageSettings
    defaults: ClassVar = {"shrinkage": 0.5, "tukey": 0.5}
    traits: ClassVar = MethodTraits(
        title="FeCAM",
        citation="Dipam Goswami, Yuyang Liu, Bartłomiej Twardowski and Joost van de Weijer. FeCAM: Exploiting"
        " the Heterogeneity of Class Distributions in Exemplar-Free Continual Learning. NeurIPS 2023.",
        closed_form=True,
        # In 1 features were not brought back to unit length, part by part, after their power.
        # From 2 to 3 as from 1 to 2 of the others in closed form.
        revision=3,
    )

    def __init__(self, settings: ShrinkageSettings, sizes: Sizes, seed: int) -> None:
        super().__init__(settings, sizes, seed)
        assert settings.shrinkage is not None
        self.shrinkage = settings.shrinkage

    def statistics(self, shared: Shared, features: Tensor, task: Task) -> tuple[Tensor, ...]:
        """The means (classes, width), and the covariances of those that have their own, which are first."""
        known = self.known(shared, features, task)
        means = [of.means() for of in known]
        if task.kept:
            kept, covariances = task.kept
            return torch.cat([kept, *means]), covariances
        return torch.cat(means), known[0].covariances(means[0])

    def answer(self, statistics: tuple[Tensor, Tensor], query: Tensor) -> Tensor:
        means, covariances = statistics
        query, means = F.normalize(query, dim=-1), F.normalize(means, dim=-1)
        own = [
            distances(query, mean.unsqueeze(0), self.inverse(covariance))
            for mean, covariance in zip(means, covariances, strict=False)
        ]
        of_few = distances(query, means[len(own) :], self.inverse(covariances.mean(0)))
        return -torch.cat([*own, of_few], dim=-1)

    def inverse(self, covariance: Tensor) -> Tensor:
        """The inverse (width, width) of the correlations that a shrunk covariance has."""
        covariance = shrunk(covariance, self.shrinkage)
        scale = covariance.diagonal().sqrt()
        return torch.cholesky_inverse(torch.linalg.cholesky_ex(covariance / (scale * scale.unsqueeze(-1))).L)


def distances(query: Tensor, means: Tensor, inverse: Tensor) -> Tensor:
    """Squared Mahalanobis distances (queries, classes) by one inverse covariance (width, width)."""
    near = query @ inverse
    of_means = ((means @ inverse) * means).sum(-1)
    return (near * query).sum(-1, keepdim=True) - 2 * near @ means.mT + of_means
