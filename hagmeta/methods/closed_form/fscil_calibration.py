"""FSCIL-Calibration (Goswami et al., CVPR Workshops 2024): calibrated means and covariances."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from hagmeta.common.traits import MethodTraits
from hagmeta.layers.prototypes import calibrated, near_weights
from hagmeta.methods.base import COMMON, Shared, Task
from hagmeta.methods.closed_form.fecam import FeCam, distances
from hagmeta.methods.closed_form.sgc import ShrinkageSettings
from hagmeta.methods.prototypes.teen import TeenSettings


@dataclass(frozen=True, kw_only=True)
class FscilCalibrationSettings(ShrinkageSettings, TeenSettings):
    """Settings of FSCIL-Calibration: those of FeCAM and TEEN."""


class FscilCalibration(FeCam):
    """FeCAM, where means and covariances of new classes are calibrated by those of similar known classes.

    A new class gives each known class a weight, by the cosine of their means. Its mean moves towards the
    weighted mean of the known classes, as in TEEN. Its covariance is the weighted sum of their covariances
    plus the covariance of its own supports.

    We made these choices to adapt the method to graphs:

    - All classes known by many labels are base classes of the calibration, as in TEEN. Under `released` these
      are all earlier classes.
    - Covariances are divided by the number of nodes, so that one support is enough. The public code divides
      by one node less.
    - Covariances are shrunk by `shrinkage`, relative to their mean variance, as in our FeCAM. The public code
      adds 100 to all variances, which depends on the scale of its features.
    - `calibration` is 0.1 by default. The public code also uses 0.25, for one dataset.
    - With `rehearsal: none`, statistics stay as computed in their session, after calibration.

    As in the public code, features are not raised to a power (`tukey: 1`), unlike in FeCAM. The paper has a
    second variant, which draws 800 features per new class for RanPAC. It is not part of this method.

    Labels: as in the other closed-form methods.
    """

    own_settings = FscilCalibrationSettings
    differs: ClassVar = (*COMMON, "shrinkage", "tukey", "calibration", "calibration_scale")
    defaults: ClassVar = {"tukey": 1.0, "calibration": 0.1}
    traits: ClassVar = MethodTraits(
        title="FSCIL-Calibration",
        citation="Dipam Goswami, Bartłomiej Twardowski and Joost van de Weijer. Calibrating Higher-Order"
        " Statistics for Few-Shot Class-Incremental Learning with Pre-trained Vision Transformers. CVPR"
        " Workshops 2024.",
        closed_form=True,
    )
    calibration: Tensor
    calibration_scale: Tensor

    def statistics(self, shared: Shared, features: Tensor, task: Task) -> tuple[Tensor, ...]:
        """Return means (classes, width) and covariances of base classes, then those of later classes.

        They are in four arrays. Those of later classes are calibrated.
        """
        known = self.known(shared, features, task)
        means = [of.means() for of in known]
        spreads = [of.covariances(mean) for of, mean in zip(known, means, strict=True)]
        if task.class_statistics:
            base, base_spreads, later, later_spreads = task.class_statistics
        else:
            base, base_spreads = means.pop(0), spreads.pop(0)
            later, later_spreads = base[:0], base_spreads[:0]
        for mean, spread in zip(means, spreads, strict=True):
            near = near_weights(F.normalize(mean, dim=-1), F.normalize(base, dim=-1), self.calibration_scale)
            later = torch.cat([later, calibrated(mean, base, self.calibration, self.calibration_scale)])
            spread = spread + torch.einsum("nb,bij->nij", near, base_spreads)
            later_spreads = torch.cat([later_spreads, spread])
        return base, base_spreads, later, later_spreads

    def answer(self, statistics: tuple[Tensor, ...], query: Tensor) -> Tensor:
        base, base_spreads, later, later_spreads = statistics
        query = F.normalize(query, dim=-1)
        pairs = [*zip(base, base_spreads, strict=True), *zip(later, later_spreads, strict=True)]
        apart = [
            distances(query, F.normalize(mean, dim=-1).unsqueeze(0), self.inverse(spread))
            for mean, spread in pairs
        ]
        return -torch.cat(apart, dim=-1)
