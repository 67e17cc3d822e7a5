"""LPMC (arXiv 2609.25781, 2026): a memory of micro-clusters for each class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from hagmeta.common.settings.domains import MOST_NODES, Number, Whole
from hagmeta.common.settings.setting import setting
from hagmeta.common.traits import MethodTraits
from hagmeta.layers.encoders.base import Embedding
from hagmeta.methods.base import COMMON, Method, MethodSettings, Shared, Task
from hagmeta.sparse.graph import View

MOST = 64  # nodes per class that are clustered
GOLDEN = 2654435769  # multiples of it, modulo 2^32, are all different and spread evenly
TEMPERATURE = 0.07  # of the cosines, as in the authors' code
ROUNDING = 1e-3  # of a sum of weights


@dataclass(frozen=True, kw_only=True)
class LpmcSettings(MethodSettings):
    """Settings of LPMC."""

    cluster_distance: float = setting(
        0.5,
        "nodes of a class are neighbours up to this cosine distance (eps of DBSCAN)",
        Number(at_most=2, above=0),
        scope="method",
    )
    cluster_nodes: int = setting(
        5,
        "neighbours, with the node itself, that start a cluster (minPts of DBSCAN)",
        Whole(at_least=1, at_most=MOST_NODES),
        scope="method",
    )


class Lpmc(Method):
    """Nearest classes by the cosines to their micro-clusters, which DBSCAN finds in each class.

    The score of a class is the mean cosine to the centres of its clusters, weighted by their number of nodes.
    A node outside all clusters is a cluster on its own.

    We made these choices to adapt LPMC:

    - The encoder is pre-trained with labels, like that of the other methods. The paper pre-trains it without
      labels, by SimGRACE.
    - Training and sessions take steps on the cross-entropy of these scores, in the episodes of HAG-Meta. The
      clusters are found again in each step, and gradients flow through their centres.
    - The paper updates stored centres, sums, counts and radii as nodes arrive. Here the clusters of a class
      are computed from all its readable labels, so radii are not needed.
    - At most 64 labelled nodes of a class are clustered, because DBSCAN compares all pairs. They are chosen
      by a fixed hash of the node number.
    - There is no distillation. Its default weight in the authors' code is 0.00001.

    The published `cluster_distance` suits an encoder trained without labels. Here, most classes are one
    cluster at this distance, and the score is the cosine to the class mean. A smaller distance gives more
    clusters.

    The authors' code counts the nodes outside all clusters a second time, as one more cluster. We do not
    follow that. Published results use 25 labelled nodes per new class, and choose the episode by test
    accuracy. Here there are K labels, and validation nodes of known classes stop the training.

    Labels: the train nodes of known classes, and the supports of new ones, as far as `rehearsal` allows. With
    `rehearsal: none` the weighted sum of centres of a class stays as computed in its session. With K below
    `cluster_nodes`, every support of a new class is a cluster.
    """

    own_settings = LpmcSettings
    differs: ClassVar = (*COMMON, "cluster_distance", "cluster_nodes")
    traits: ClassVar = MethodTraits(
        title="LPMC",
        citation="A Lightweight Plastic-Memory Framework for Graph Few-Shot Class-Incremental Learning."
        " arXiv 2609.25781, 2026.",
    )

    cluster_distance: Tensor
    cluster_nodes: Tensor

    def classify(self, shared: Shared, encoded: Embedding, task: Task) -> Tensor:
        query, vectors = self._embedded(shared, encoded, task)
        return F.normalize(query, dim=-1) @ vectors.mT / TEMPERATURE

    def class_statistics(self, shared: Shared, view: View, task: Task) -> tuple[Tensor, ...]:
        return (self._embedded(shared, self.encode(shared, view, None), task)[1],)

    def _embedded(self, shared: Shared, embedding: Embedding, task: Task) -> tuple[Tensor, Tensor]:
        """Return the embedded queries (queries, width), and a vector per class (classes, width)."""
        labelled = self._labelled(shared, task)
        nodes = [each.flatten() for each, _ in labelled]
        *rows, query = embedding.at(torch.cat([*nodes, task.query])).split(
            [*(len(each) for each in nodes), len(task.query)]
        )
        vectors = [
            class_vectors(each.unflatten(0, weight.shape), weight, self.cluster_distance, self.cluster_nodes)
            for each, (_, weight) in zip(rows, labelled, strict=True)
        ]
        return query, torch.cat([*task.class_statistics, *vectors])

    def _labelled(self, shared: Shared, task: Task) -> list[tuple[Tensor, Tensor]]:
        """Return labelled nodes (classes, nodes) and their weights: of many labels, then of supports."""
        found = []
        if len(task.averaged):
            known = shared.class_means.shares(task.averaged) > 0
            every = torch.arange(known.shape[-1], device=known.device)
            spread = torch.where(known, every * GOLDEN % 2**32, -1)
            number, nodes = spread.topk(min(MOST, len(every)))
            found.append((nodes, (number >= 0).to(torch.float32)))
        if len(task.support):
            shots = task.support.shape[-1]
            some = torch.arange(min(MOST, shots), device=task.support.device) * shots // min(MOST, shots)
            nodes = task.support[:, some]
            found.append((nodes, once(nodes)))
        return found


def once(nodes: Tensor) -> Tensor:
    """Return weights (classes, nodes) that sum to 1 over equal nodes of a class."""
    return 1 / (nodes.unsqueeze(-1) == nodes.unsqueeze(-2)).sum(-1)


def class_vectors(rows: Tensor, weight: Tensor, distance: float | Tensor, least: float | Tensor) -> Tensor:
    """Return a vector per class (classes, width): the weighted sum of the unit-length cluster centres.

    Its product with a query of unit length is the weighted mean of the cosines.

    Args:
        rows: the embedded nodes of each class (classes, nodes, width).
        weight: their weights (classes, nodes); 0 for padding.
        distance: the largest cosine distance of neighbours.
        least: the total weight of neighbours that starts a cluster.
    """
    labels = dbscan(F.normalize(rows.detach(), dim=-1), weight, distance, least)
    member = labels.unsqueeze(-1) == torch.arange(rows.shape[-2], device=rows.device)
    weighed = member * weight.unsqueeze(-1)  # (classes, nodes, clusters)
    centres = F.normalize(weighed.mT @ rows, dim=-1)
    share = weighed.sum(-2) / weight.sum(-1, keepdim=True)
    return (share.unsqueeze(-1) * centres).sum(-2)


def dbscan(units: Tensor, weight: Tensor, distance: float | Tensor, least: float | Tensor) -> Tensor:
    """Return the cluster of each node (classes, nodes), by DBSCAN with the cosine distance.

    A cluster is named by the position of its first core node, and a node without cluster by its own position.
    Arguments are as for `class_vectors`, but rows have unit length.
    """
    size = units.shape[-2]
    place, there = torch.arange(size, device=units.device), weight > 0
    itself = place == place.unsqueeze(-1)
    near = ((1 - units @ units.mT <= distance) | itself) & there.unsqueeze(-1) & there.unsqueeze(-2)
    core = (near * weight.unsqueeze(-2)).sum(-1) >= least - ROUNDING
    linked = (near & core.unsqueeze(-1) & core.unsqueeze(-2)).to(units.dtype)
    for _ in range((size - 1).bit_length()):  # each product doubles the length of paths
        linked = (linked @ linked).clamp(max=1)
    first = torch.where(linked > 0, place, size).amin(-1)  # `size` unless it is a core node
    joined = torch.where(near, first.unsqueeze(-2), size).amin(-1)
    return torch.where(joined < size, joined, place)
