"""Prototypes, and classification by the distance to them."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from hagmeta.layers.encoders.base import Embedding
from hagmeta.sparse.graph import ClassMeans


def weighted_prototypes(support: Tensor, weights: Tensor) -> Tensor:
    """Return prototypes (classes, width): convex combinations of the supports (Eq. 13).

    `support` is (classes, shots, width), and `weights` is (classes, shots).
    """
    return (weights.unsqueeze(-1) * support).sum(-2)


def distance_logits(queries: Tensor, prototypes: Tensor) -> Tensor:
    """Return negative squared Euclidean distances (Eq. 3), without the term that softmax ignores."""
    return 2 * queries @ prototypes.mT - prototypes.square().sum(-1)


def support_and_queries(embedding: Embedding, support: Tensor, query: Tensor) -> tuple[Tensor, Tensor]:
    """Return embeddings of supports (classes, shots, width) and queries (queries, width)."""
    nodes = torch.cat([support.flatten(), query])
    first, rest = embedding.at(nodes).split([support.numel(), len(query)])
    return first.unflatten(0, support.shape), rest


def after_known(
    few: Tensor,
    embedding: Embedding,
    class_means: ClassMeans,
    averaged: Tensor,
    kept: tuple[Tensor, ...] = (),
) -> Tensor:
    """Return prototypes (classes, width): those `kept`, those known by averages, then the `few`."""
    means = (embedding.means(class_means)[averaged],) if len(averaged) else ()
    return torch.cat([*kept, *means, few]) if kept or means else few


def mean_prototypes(
    embedding: Embedding,
    class_means: ClassMeans,
    averaged: Tensor,
    support: Tensor,
    kept: tuple[Tensor, ...] = (),
) -> Tensor:
    """Return class means (classes, width): those `kept`, those known by averages, then those by supports."""
    if not len(support):
        return embedding.means(class_means)[averaged]
    few = embedding.at(support.flatten()).unflatten(0, support.shape).mean(-2)
    return after_known(few, embedding, class_means, averaged, kept)


def means_of_new(
    embedding: Embedding, class_means: ClassMeans, averaged: Tensor, support: Tensor, new: int
) -> Tensor:
    """Return the means (new, width) of the last `new` classes.

    Classes of a session are known by supports. Classes known at the start are known by averages.
    """
    averaged = averaged[:0] if len(support) else averaged[-new:]
    return mean_prototypes(embedding, class_means, averaged, support[-new:])


def calibrated(few: Tensor, base: Tensor, share: float | Tensor, scale: float | Tensor) -> Tensor:
    """Return prototypes `few` (classes, width), moved by `share` towards similar ones of `base` (TEEN).

    `base` is (base classes, width). All lengths are set to 1 first. `scale` multiplies the cosines in the
    softmax that weights the base classes.
    """
    few, base = F.normalize(few, dim=-1), F.normalize(base, dim=-1)
    near = near_weights(few, base, scale) @ base
    return (1 - share) * few + share * F.normalize(near, dim=-1)


def near_weights(few: Tensor, base: Tensor, scale: float | Tensor) -> Tensor:
    """Return the weights (classes, base classes) of `base` for `few`: a softmax of `scale` times cosines.

    All rows have unit length.
    """
    return (scale * few @ base.mT).softmax(-1)
