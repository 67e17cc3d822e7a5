"""Losses that several methods share."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def balanced_weights(target: Tensor, classes: int) -> Tensor:
    """Return weights (nodes,) that sum to 1, and to the same number for every class in `target` (nodes,).

    Nodes with a negative target have weight 0.
    """
    counts = (target.unsqueeze(-1) == torch.arange(classes, device=target.device)).sum(0)
    weights = 1 / (counts[target.clamp(min=0)] * (counts > 0).sum()).clamp(min=1)
    return weights * (target >= 0)


def balanced_cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    """Return the mean over the classes in `target` (nodes,) of the mean cross-entropy of their nodes.

    Nodes with a negative target do not count.
    """
    losses = F.cross_entropy(logits, target.clamp(min=0), reduction="none")
    return (balanced_weights(target, logits.shape[-1]) * losses).sum()
