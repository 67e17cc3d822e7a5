"""RanPAC (McDonnell et al., NeurIPS 2023): random projections and decorrelated prototypes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from hagmeta.common.settings import setting
from hagmeta.common.traits import MethodTraits
from hagmeta.methods.base import Sizes
from hagmeta.methods.closed_form import ClosedForm, random_directions
from hagmeta.methods.sgc import RidgeSettings
from hagmeta.nn.statistics import ridged, solve


@dataclass(frozen=True, kw_only=True)
class RanPacSettings(RidgeSettings):
    """The random projection."""

    projection: int = setting(2000, "width of the random projection", at_least=1, at_most=20_000)


class RanPac(ClosedForm):
    """Features under a random projection and ReLU; prototypes times the inverse of the Gram matrix.

    What had to be decided on graphs and with K labels:
    - the pre-trained network that it needs is the encoder, pre-trained on the known classes: what its first
      session does to a network that was pre-trained on other data;
    - every class weighs the same in the Gram matrix, and prototypes are means, where the publication sums
      over all labels: there K labels are drowned by hundreds;
    - the ridge is a setting, and in units of the Gram matrix's mean eigenvalue, where the publication tries
      17 powers of ten on a fifth of each session's labels: here a session has K a class.
    """

    own_settings = RanPacSettings
    traits: ClassVar = MethodTraits(
        title="RanPAC",
        citation="Mark D. McDonnell, Dong Gong, Amin Parvaneh, Ehsan Abbasnejad and Anton van den Hengel."
        " RanPAC: Random Projections and Pre-trained Models for Continual Learning. NeurIPS 2023.",
        closed_form=True,
        revision=2,  # as of ClosedForm
    )

    def __init__(self, settings: RanPacSettings, sizes: Sizes, seed: int) -> None:
        super().__init__(settings, sizes, seed)
        self.ridge = settings.ridge
        self.projection = random_directions(seed, "ranpac", self.width, settings.projection)

    def transformed(self, rows: Tensor) -> Tensor:
        return (rows @ self.projection).relu()

    def answer(self, statistics: tuple[Tensor, Tensor], query: Tensor) -> Tensor:
        means, scatter = statistics
        gram = scatter + means.mT @ means
        return query @ solve(ridged(gram, self.ridge), means.mT)
