"""Prototypes and the classification by distance to them."""

from __future__ import annotations

from torch import Tensor


def weighted_prototypes(support: Tensor, weights: Tensor) -> Tensor:
    """(classes, shots, width) and (classes, shots) to (classes, width): Eq. 11, a convex combination."""
    return (weights.unsqueeze(-1) * support).sum(-2)


def distance_logits(queries: Tensor, prototypes: Tensor) -> Tensor:
    """Negative squared Euclidean distances (Eq. 3), less each query's own square, which softmax ignores."""
    return 2 * queries @ prototypes.mT - prototypes.square().sum(-1)
