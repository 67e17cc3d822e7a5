"""RanPAC (McDonnell et al., NeurIPS 2023): random projections and decorrelated prototypes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from hagmeta.common.settings.domains import Whole
from hagmeta.common.settings.setting import setting
from hagmeta.common.traits import MethodTraits
from hagmeta.layers.statistics import ridged, solve
from hagmeta.methods.base import COMMON, Sizes
from hagmeta.methods.closed_form.base import ClosedForm, ClosedFormSettings, random_directions
from hagmeta.methods.closed_form.sgc import RidgeSettings


@dataclass(frozen=True, kw_only=True)
class ProjectionSettings(ClosedFormSettings):
    """Settings of heads on a random projection."""

    projection: int = setting(
        2000,
        "width of the random projection",
        Whole(at_least=1, at_most=20_000),
        scope="method",
    )


@dataclass(frozen=True, kw_only=True)
class RanPacSettings(ProjectionSettings, RidgeSettings):
    """Settings of RanPAC."""


class RanPac(ClosedForm):
    """Random ReLU features, and class prototypes decorrelated by the inverse Gram matrix.

    We made these choices to adapt RanPAC to graphs with K labels per class:

    - The pre-trained network is the encoder, pre-trained on the known classes. In the paper, the first
      session does this to a network that was pre-trained on other data.
    - All classes have the same weight in the Gram matrix, and prototypes are means. The paper sums over all
      labels, where classes with hundreds of labels would dominate those with K.
    - The ridge penalty is a setting, relative to the mean eigenvalue of the Gram matrix. The paper tries 17
      powers of ten on a fifth of the labels of each session. Here a session has only K labels per class.
    """

    own_settings = RanPacSettings
    defaults: ClassVar = {"ridge": 0.1}
    differs: ClassVar = (*COMMON, "ridge", "tukey")
    traits: ClassVar = MethodTraits(
        title="RanPAC",
        citation="Mark D. McDonnell, Dong Gong, Amin Parvaneh, Ehsan Abbasnejad and Anton van den Hengel."
        " RanPAC: Random Projections and Pre-trained Models for Continual Learning. NeurIPS 2023.",
        closed_form=True,
        revision=2,  # see ClosedForm
    )

    ridge: Tensor

    def __init__(self, settings: RanPacSettings, sizes: Sizes, seed: int) -> None:
        super().__init__(settings, sizes, seed)
        self.projection = random_directions(seed, "ranpac", self.width, settings.projection)

    def transformed(self, rows: Tensor) -> Tensor:
        return (rows @ self.projection).relu()

    def answer(self, statistics: tuple[Tensor, Tensor], query: Tensor) -> Tensor:
        means, scatter = statistics
        gram = scatter + means.mT @ means
        return query @ solve(ridged(gram, self.ridge), means.mT)
