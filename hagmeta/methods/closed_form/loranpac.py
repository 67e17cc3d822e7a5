"""LoRanPAC (Peng et al., ICLR 2025): least squares on the leading directions of random features."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from hagmeta.common.settings.domains import Number, Whole
from hagmeta.common.settings.setting import setting
from hagmeta.common.traits import MethodTraits
from hagmeta.layers.statistics import LabelledRows
from hagmeta.methods.base import COMMON, Shared, Sizes, Task
from hagmeta.methods.closed_form.base import ClosedForm, ClosedFormSettings, moments, random_directions

ROUNDING = 1e-12  # share of the largest eigenvalue below which an eigenvalue is 0 but for rounding


@dataclass(frozen=True, kw_only=True)
class LoRanPacSettings(ClosedFormSettings):
    """Settings of LoRanPAC."""

    lift: int = setting(
        2000,
        "number of random ReLU features",
        Whole(at_least=1, at_most=20_000),
        scope="method",
    )
    truncation: float = setting(
        0.25,
        "share of the directions with least variance to leave out",
        Number(at_least=0, below=1),
        scope="method",
    )


class LoRanPac(ClosedForm):
    """Random ReLU features, and least squares without the directions in which they vary least.

    We made these choices to adapt LoRanPAC to graphs with K labels per class:

    - The pre-trained network is the encoder, pre-trained on the known classes.
    - All classes have the same weight, as in `ranpac`. The paper gives the same weight to all labels.
    - The Gram matrix of all labels is decomposed in each session. The paper updates a truncated singular
      value decomposition, so that a direction that was left out once does not return.
    - There are 2000 random features. The paper has 100,000, more than labels. The number of directions is the
      smaller of the two numbers, and `truncation` is a share of it.

    The Gram matrix has double precision. Its eigenvalues are squares of the singular values that the paper
    computes, so single precision would lose half of the digits. The decomposition makes this method slower
    than `ranpac`.
    """

    own_settings = LoRanPacSettings
    differs: ClassVar = (*COMMON, "truncation", "tukey")
    traits: ClassVar = MethodTraits(
        title="LoRanPAC",
        citation="Liangzu Peng, Juan Elenter, Joshua Agterberg, Alejandro Ribeiro and René Vidal. LoRanPAC:"
        " Low-rank Random Features and Pre-trained Models for Bridging Theory and Practice in Continual"
        " Learning. ICLR 2025.",
        closed_form=True,
    )

    truncation: Tensor

    def __init__(self, settings: LoRanPacSettings, sizes: Sizes, seed: int) -> None:
        super().__init__(settings, sizes, seed)
        self.projection = random_directions(seed, "loranpac", self.width, settings.lift)

    def transformed(self, rows: Tensor) -> Tensor:
        return (rows.double() @ self.projection.double()).relu()

    def known(self, shared: Shared, features: Tensor, task: Task) -> list[LabelledRows]:
        return [replace(each, share=each.share.double()) for each in super().known(shared, features, task)]

    def statistics(self, shared: Shared, features: Tensor, task: Task) -> tuple[Tensor, ...]:
        """Return the class means, the sum of the class covariances, and the number of labels."""
        known = self.known(shared, features, task)
        labels = torch.stack([*task.class_statistics[2:], *(each.counts().sum() for each in known)]).sum()
        return *moments(known, task.class_statistics[:2]), labels

    def answer(self, statistics: tuple[Tensor, Tensor, Tensor], query: Tensor) -> Tensor:
        means, scatter, labels = statistics
        rank = ((1 - self.truncation) * labels.clamp(max=len(scatter))).round()
        weights = truncated_solve(scatter + means.mT @ means, means.mT, rank)
        return (query @ weights).float()


def truncated_solve(gram: Tensor, right: Tensor, rank: Tensor) -> Tensor:
    """Return the pseudo-inverse of the best approximation of `gram` with this rank, times `right`."""
    values, vectors = torch.linalg.eigh(gram)  # ascending
    places = torch.arange(len(values), 0, -1, device=values.device)
    leading = (places <= rank) & (values > ROUNDING * values[-1])
    inverse = torch.where(leading, 1 / values.clamp(min=ROUNDING * values[-1]), 0)
    return vectors @ (inverse.unsqueeze(-1) * (vectors.mT @ right))
