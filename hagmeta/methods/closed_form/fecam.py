"""FeCAM (Goswami et al., NeurIPS 2023): Mahalanobis distances, with one covariance per class."""

from __future__ import annotations

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from hagmeta.common.traits import MethodTraits
from hagmeta.layers.statistics import shrunk
from hagmeta.methods.base import COMMON, Shared, Task
from hagmeta.methods.closed_form.base import ClosedForm
from hagmeta.methods.closed_form.sgc import ShrinkageSettings


class FeCam(ClosedForm):
    """Nearest class mean by Mahalanobis distance, with one covariance per class and unit-length features.

    We made these choices to adapt FeCAM to graphs with K labels per class:

    - The power transform (`tukey`) applies to the absolute value of a feature and keeps its sign. The paper
      transforms only outputs of ReLU, which are never negative.
    - A class known by supports uses the mean covariance of the classes with many labels. K nodes span only
      K - 1 directions, too few for a separate covariance.
    - Covariances are shrunk towards equal variances only, as the authors do for few labels. Their many-shot
      formula also adds a mean covariance. A share s equals their gamma = s / (1 - s), because covariances
      become correlations afterwards, as in the paper.
    """

    own_settings = ShrinkageSettings
    differs: ClassVar = (*COMMON, "shrinkage", "tukey")
    defaults: ClassVar = {"shrinkage": 0.5, "tukey": 0.5}
    traits: ClassVar = MethodTraits(
        title="FeCAM",
        citation="Dipam Goswami, Yuyang Liu, Bartłomiej Twardowski and Joost van de Weijer. FeCAM: Exploiting"
        " the Heterogeneity of Class Distributions in Exemplar-Free Continual Learning. NeurIPS 2023.",
        closed_form=True,
        # Revision 1 did not rescale each part of the features to unit length after the power transform.
        # Revision 3 has the change that the other closed-form methods have in revision 2 (`ClosedForm`).
        revision=3,
    )

    shrinkage: Tensor

    def statistics(self, shared: Shared, features: Tensor, task: Task) -> tuple[Tensor, ...]:
        """Return all class means (classes, width), and the covariances of the first classes.

        Only classes with many labels have a covariance, and they come first.
        """
        known = self.known(shared, features, task)
        means = [of.means() for of in known]
        if task.class_statistics:
            kept, covariances = task.class_statistics
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
        """Return the inverse (width, width) of the correlation matrix of the shrunk covariance."""
        covariance = shrunk(covariance, self.shrinkage)
        scale = covariance.diagonal().sqrt()
        return torch.cholesky_inverse(torch.linalg.cholesky_ex(covariance / (scale * scale.unsqueeze(-1))).L)


def distances(query: Tensor, means: Tensor, inverse: Tensor) -> Tensor:
    """Return squared Mahalanobis distances (queries, classes) for one inverse covariance (width, width)."""
    near = query @ inverse
    of_means = ((means @ inverse) * means).sum(-1)
    return (near * query).sum(-1, keepdim=True) - 2 * near @ means.mT + of_means
