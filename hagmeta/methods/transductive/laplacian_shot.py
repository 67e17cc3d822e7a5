"""LaplacianShot (Ziko et al., ICML 2020): nearest rectified means, regularised by the graph's Laplacian."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor

from hagmeta.common.settings.domains import HIGHEST_WEIGHT, Number
from hagmeta.common.settings.setting import setting
from hagmeta.common.traits import MethodTraits
from hagmeta.methods.base import COMMON, Shared
from hagmeta.methods.closed_form.base import ClosedFormSettings
from hagmeta.methods.transductive.base import Known, WithUnlabelled, squared_distances
from hagmeta.sparse.graph import View

ROUNDS = 20  # of the bound's updates
LEAST = 1e-6  # avoids a division by zero for nodes without unlabelled neighbours
SCALE = 10.0  # multiplies the cosines in the weights of the rectification


@dataclass(frozen=True, kw_only=True)
class LaplacianShotSettings(ClosedFormSettings):
    """Settings of LaplacianShot."""

    laplacian: float = setting(
        2.0,
        "weight of the neighbours' predictions in LaplacianShot, relative to squared distances",
        Number(at_least=0, at_most=HIGHEST_WEIGHT),
        scope="method",
    )


class LaplacianShot(WithUnlabelled):
    """Assign nodes to near class means, where neighbours in the graph get similar predictions.

    Predictions Y start as a softmax of negative squared distances to the class means. Then 20 rounds add the
    neighbours' predictions: Y = softmax(-distances + `laplacian` W Y). Each round lowers the paper's energy,
    in which a node counts in proportion to its neighbours, as long as `laplacian` is at most 2.

    Before that, class means are rectified once. An unlabelled node counts for the class with the nearest
    mean by cosine, with the softmax of 10 times the cosines as its weight.

    We made these choices to adapt LaplacianShot to graphs:

    - W is the visible graph among unlabelled nodes. Each row is divided by the number of neighbours. The
      paper makes a graph of nearest neighbours in feature space, where all rows have the same sum. Nodes
      without unlabelled neighbours get the nearest mean.
    - Labelled nodes are not part of W, as in the paper. Most of their labels are those of known classes,
      so new classes would lose nodes to these.
    - All visible unlabelled nodes are part of W, whether they are queries or not.
    - `laplacian` is 2 by default. In the public code a node has two neighbours with weight 1 each, and
      the weight is selected on validation classes, from 0.1 to 1.5.
    - Labelled nodes have weight 1 in the rectified means, which are divided by the sum of weights. The public
      code divides by the number of nodes, so that its means are shorter than the nodes.
    - Unlabelled nodes are not shifted to the mean of the supports. Class shares differ between labelled and
      unlabelled nodes here, so the means differ without any shift.

    Labels: as in the other closed-form methods. With `rehearsal: none` a kept mean counts as many labels as
    it was computed from.
    """

    own_settings = LaplacianShotSettings
    differs: ClassVar = (*COMMON, "tukey", "laplacian")
    traits: ClassVar = MethodTraits(
        title="LaplacianShot",
        citation="Imtiaz Masud Ziko, Jose Dolz, Eric Granger and Ismail Ben Ayed. Laplacian Regularized"
        " Few-Shot Learning. ICML 2020.",
        transductive="visible unlabelled nodes, including queries, rectify its class means and use their"
        " neighbours' predictions",
        closed_form=True,
    )
    laplacian: Tensor

    def answer_all(self, shared: Shared, view: View, points: Tensor, known: Known) -> Tensor:
        share = shared.graph.neighbour_means(known.free, view).clamp(min=LEAST)

        def of_neighbours(predicted: Tensor) -> Tensor:
            return shared.graph.neighbour_means(predicted * known.free, view) / share

        near = -squared_distances(points, rectified(points, known))
        return regularised(near, self.laplacian, of_neighbours)


def regularised(
    near: Tensor, laplacian: float | Tensor, of_neighbours: Callable[[Tensor], Tensor], rounds: int = ROUNDS
) -> Tensor:
    """Return logits (nodes, classes) after some rounds of bound updates.

    `near` (nodes, classes) are negative squared distances. `of_neighbours` returns, for each node, the mean
    prediction (nodes, classes) of its neighbours.
    """
    logits = near
    for _ in range(rounds):
        logits = near + laplacian * of_neighbours(logits.softmax(-1))
    return logits


def rectified(points: Tensor, known: Known) -> Tensor:
    """Return the class means (classes, width), rectified by unlabelled nodes."""
    cosines = points @ F.normalize(known.means, dim=-1).mT
    nearest = cosines == cosines.amax(-1, keepdim=True)
    weights = known.free * nearest * (SCALE * cosines).softmax(-1)  # (nodes, classes)
    counts = known.counts.unsqueeze(-1)
    total = counts + weights.sum(0).unsqueeze(-1)
    return (counts * known.means + weights.mT @ points) / total
