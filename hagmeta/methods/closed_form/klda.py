"""KLDA (Momeni et al., AAAI 2025): discriminant analysis on random Fourier features."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from hagmeta.common.traits import MethodTraits
from hagmeta.layers.statistics import LabelledRows
from hagmeta.methods.base import COMMON, Sizes
from hagmeta.methods.closed_form.base import random_directions
from hagmeta.methods.closed_form.kernels import KernelSettings, OnKernel
from hagmeta.methods.closed_form.ranpac import ProjectionSettings
from hagmeta.methods.closed_form.sgc import ShrinkageSettings, discriminants
from hagmeta.packs.randomness import seeded


@dataclass(frozen=True, kw_only=True)
class KldaSettings(KernelSettings, ProjectionSettings, ShrinkageSettings):
    """Settings of KLDA."""


class Klda(OnKernel):
    """Linear discriminant analysis on random Fourier features of a Gaussian kernel.

    All classes share one covariance and have the same prior. We made these choices to adapt KLDA to graphs
    with K labels per class:

    - The foundation model is the encoder, pre-trained on the known classes.
    - The width of the kernel (`kernel_width`) is relative to the distances between labelled nodes of the
      known classes. The paper has an absolute number, which depends on the scale of the features.
    - The covariance is the mean of the class covariances. The paper weights a class by its number of labels.
    - The covariance is shrunk as in `sgc-lda`. The public code takes its pseudo-inverse, which ignores all
      directions without variance. K labels leave many such directions.
    - There is one draw of the random features. The variant KLDA-E adds the softmax outputs of several.

    The public code does not divide the covariance by the number of labels. This changes the softmax outputs
    that KLDA-E adds, but no prediction of KLDA.
    """

    own_settings = KldaSettings
    differs: ClassVar = (*COMMON, "kernel_width", "shrinkage", "tukey")
    defaults: ClassVar = {"shrinkage": 0.1}
    traits: ClassVar = MethodTraits(
        title="KLDA",
        citation="Saleh Momeni, Sahisnu Mazumder and Bing Liu. Continual Learning Using a Kernel-Based Method"
        " Over Foundation Models. AAAI 2025.",
        closed_form=True,
    )

    shrinkage: Tensor

    def __init__(self, settings: KldaSettings, sizes: Sizes, seed: int) -> None:
        super().__init__(settings, sizes, seed)
        columns = settings.projection
        self.frequencies = random_directions(seed, "klda", self.width, columns)
        self.phases = seeded(
            seed,
            "init/klda/phases",
            lambda: nn.Parameter(2 * math.pi * torch.rand(columns), requires_grad=False),
        )

    def fit(self, known: LabelledRows) -> tuple[Tensor, ...]:
        return (self.deviation(known),)

    def lifted(self, rows: Tensor, *fitted: Tensor) -> Tensor:
        (deviation,) = fitted
        return math.sqrt(2 / len(self.phases)) * (rows @ self.frequencies / deviation + self.phases).cos()

    def answer(self, statistics: tuple[Tensor, Tensor], query: Tensor) -> Tensor:
        return discriminants(*statistics, self.shrinkage, query)
