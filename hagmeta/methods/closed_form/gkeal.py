"""GKEAL (Zhuang et al., CVPR 2023): ridge regression on Gaussian kernels around labelled nodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from hagmeta.common.settings.domains import Whole
from hagmeta.common.settings.setting import setting
from hagmeta.common.traits import MethodTraits
from hagmeta.layers.statistics import LabelledRows, ridged, solve
from hagmeta.methods.base import COMMON, Sizes
from hagmeta.methods.closed_form.kernels import KernelSettings, OnKernel
from hagmeta.methods.closed_form.sgc import RidgeSettings
from hagmeta.packs.randomness import keys, uniform_at


@dataclass(frozen=True, kw_only=True)
class GkealSettings(KernelSettings, RidgeSettings):
    """Settings of GKEAL."""

    centres: int = setting(
        2000,
        "number of kernel centres, drawn from labelled nodes of known classes",
        Whole(at_least=1, at_most=20_000),
        scope="method",
    )


class Gkeal(OnKernel):
    """Ridge regression from Gaussian kernels around labelled nodes to one-hot class labels.

    We made these choices to adapt GKEAL to graphs with K labels per class:

    - The backbone is the encoder, pre-trained on the known classes.
    - The paper updates the regression recursively, and the result equals that of all labels at once. Here it
      is solved again in each session, from sums over the labels.
    - All classes have the same weight. The paper balances old and new classes with features of augmented
      images of the new ones. Nodes have no such augmentation. The public code leaves it out as well.
    - The width of the kernel (`kernel_width`) is relative to the distances between labelled nodes of the
      known classes. The paper has an absolute number, which depends on the scale of the features.
    - The ridge penalty is relative to the mean eigenvalue of the Gram matrix, as in `ranpac`. Its
      default is smaller. Kernels are never negative, so one direction has most of the trace.
    - Centres are labelled nodes of the classes known in session 0. There are at most `centres`. With fewer
      such nodes, all of them are centres. The public code then adds random combinations of them.

    The public code does not draw the centres. It takes the first samples that it reads.
    """

    own_settings = GkealSettings
    differs: ClassVar = (*COMMON, "kernel_width", "ridge", "tukey")
    defaults: ClassVar = {"ridge": 0.001}
    traits: ClassVar = MethodTraits(
        title="GKEAL",
        citation="Huiping Zhuang, Zhenyu Weng, Run He, Zhiping Lin and Ziqian Zeng. GKEAL: Gaussian Kernel"
        " Embedded Analytic Learning for Few-Shot Class Incremental Task. CVPR 2023.",
        closed_form=True,
    )

    ridge: Tensor
    key: Tensor

    def __init__(self, settings: GkealSettings, sizes: Sizes, seed: int) -> None:
        super().__init__(settings, sizes, seed)
        self.centres = min(settings.centres, sizes.nodes)
        self.register_buffer("key", torch.tensor(int(keys([seed], "init/gkeal"))), persistent=False)

    def fit(self, known: LabelledRows) -> tuple[Tensor, ...]:
        """Return the centres (centres, width), their weights (centres,), and the kernel's deviation.

        Centres with weight 0 fill up the array.
        """
        priorities = uniform_at(self.key, known.nodes).where(known.share > 0, -1).flatten()
        highest, places = priorities.sort(descending=True, stable=True)
        centres = known.rows(known.nodes.flatten()[places[: self.centres]])
        weights = (highest[: self.centres] >= 0).to(centres.dtype)
        missing = self.centres - len(centres)
        return F.pad(centres, (0, 0, 0, missing)), F.pad(weights, (0, missing)), self.deviation(known)

    def lifted(self, rows: Tensor, *fitted: Tensor) -> Tensor:
        centres, weights, deviation = fitted
        squares = (rows * rows).sum(-1, keepdim=True) + (centres * centres).sum(-1)
        distances = (squares - 2 * rows @ centres.mT).clamp(min=0)
        return weights * (-distances / (2 * deviation * deviation)).exp()

    def answer(self, statistics: tuple[Tensor, Tensor], query: Tensor) -> Tensor:
        # In double precision, because the penalty is far below the largest eigenvalue.
        means, scatter = (each.double() for each in statistics)
        slopes = solve(ridged(scatter + means.mT @ means, self.ridge), means.mT)
        return (query.double() @ slopes).float()
