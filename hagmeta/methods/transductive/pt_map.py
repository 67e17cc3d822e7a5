"""PT-MAP (Hu et al., ICANN 2021): power transform, and class means found by optimal transport."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from hagmeta.common.settings.domains import HIGHEST_WEIGHT, Number
from hagmeta.common.settings.setting import setting
from hagmeta.common.traits import MethodTraits
from hagmeta.methods.base import COMMON, Shared
from hagmeta.methods.closed_form.base import ClosedFormSettings
from hagmeta.methods.transductive.base import Known, WithUnlabelled, squared_distances
from hagmeta.sparse.graph import View

ROUNDS = 20  # updates of the class means
SCALINGS = 10  # rounds of Sinkhorn's algorithm for each update
TINY = 1e-30  # avoids a division by zero for nodes that do not count


@dataclass(frozen=True, kw_only=True)
class PtMapSettings(ClosedFormSettings):
    """Settings of PT-MAP."""

    transport: float = setting(
        10.0,
        "multiply squared distances by this factor in the optimal transport of PT-MAP",
        Number(at_most=HIGHEST_WEIGHT, above=0),
        scope="method",
    )
    mean_share: float = setting(
        0.2,
        "move class means by this share towards those of the optimal transport, in each of 20 rounds",
        Number(at_least=0, at_most=1),
        scope="method",
    )


class PtMap(WithUnlabelled):
    """Class means that unlabelled nodes move, after an optimal transport of these nodes to the classes.

    Sinkhorn's algorithm assigns the visible unlabelled nodes to classes in fractions: near means get more,
    and all classes get the same number of nodes. Then class means move towards the means of their labelled
    and assigned nodes. After 20 rounds, the last transport gives the predictions.

    We made these choices to adapt PT-MAP to graphs:

    - All classes get equal shares of the unlabelled nodes, as in the paper. There it is true, because tasks
      are balanced. Here class sizes differ, and a method may not know them.
    - The transport includes all visible unlabelled nodes, whether they are queries or not.
    - All nodes are centred by the mean of the classes with many labels. The paper centres supports and
      queries by their own means. Class shares differ between labelled and unlabelled nodes here.
    - The power transform (`tukey`) applies to the absolute value of a feature and keeps its sign, part by
      part. The paper transforms only outputs of ReLU.
    - Sinkhorn's algorithm takes 10 rounds for each update of the means, and continues where it ended before.
      The public code begins again each time. It stops when shares change by less than 1e-6, or after 1000
      rounds.

    Labels: as in the other closed-form methods. Labelled nodes stay in their class. With `rehearsal: none` a
    kept mean counts as many labels as it was computed from.
    """

    own_settings = PtMapSettings
    differs: ClassVar = (*COMMON, "tukey", "transport", "mean_share")
    defaults: ClassVar = {"tukey": 0.5}
    traits: ClassVar = MethodTraits(
        title="PT-MAP",
        citation="Yuqing Hu, Vincent Gripon and Stéphane Pateux. Leveraging the Feature Distribution in"
        " Transfer-based Few-Shot Learning. ICANN 2021.",
        transductive="visible unlabelled nodes, including queries, move its class means and share the classes"
        " equally",
        closed_form=True,
    )
    transport: Tensor
    mean_share: Tensor

    def answer_all(self, shared: Shared, view: View, points: Tensor, known: Known) -> Tensor:
        means, counts = known.means, known.counts.unsqueeze(-1)
        told = counts * means  # (classes, width) sums over labelled nodes
        near = -self.transport * squared_distances(points, means)
        factors = class_factors(near, known.free, torch.ones_like(near[0]))
        for _ in range(ROUNDS):
            shares = known.free * (near + factors.log()).softmax(-1)
            found = (told + shares.mT @ points) / (counts + shares.sum(0).unsqueeze(-1))
            means = means + self.mean_share * (found - means)
            near = -self.transport * squared_distances(points, means)
            factors = class_factors(near, known.free, factors)
        return near + factors.log()


def class_factors(near: Tensor, free: Tensor, factors: Tensor) -> Tensor:
    """Return factors of the classes (classes,), with which all classes get the same number of nodes.

    These are Sinkhorn's algorithm, which begins with `factors`. A softmax of `near` (nodes, classes) plus
    their logarithms is then the transport. `free` (nodes, 1) has 1 for nodes that count.
    """
    kernel = (near - near.amax(-1, keepdim=True)).exp() * free
    equal = free.sum().clamp(min=1) / near.shape[-1]
    for _ in range(SCALINGS):
        rows = free / (kernel @ factors.unsqueeze(-1)).clamp(min=TINY)
        factors = equal / (kernel.mT @ rows).squeeze(-1).clamp(min=TINY)
    return factors
