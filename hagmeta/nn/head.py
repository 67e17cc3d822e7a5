"""Classifiers: a growing linear head, and cosine logits."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

COSINE_SCALE = 16.0
LABEL_SMOOTHING = 0.1  # for cosine classifiers


def cosine_logits(embedded: Tensor, rows: Tensor) -> Tensor:
    """Return scaled cosines (nodes, classes) of `embedded` (nodes, width) and `rows` (classes, width)."""
    return COSINE_SCALE * F.normalize(embedded, dim=-1) @ F.normalize(rows, dim=-1).mT


class LinearHead(nn.Module):
    """A linear classifier with a row for every class of the dataset. Only the rows of a task are used."""

    def __init__(self, classes: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(classes, width))
        self.bias = nn.Parameter(torch.zeros(classes))

    def forward(self, embedded: Tensor, classes: Tensor) -> Tensor:
        """Return logits (nodes, classes) of `embedded` nodes (nodes, width) for `classes`."""
        return embedded @ self.weight[classes].mT + self.bias[classes]

    def started(self, classes: Tensor, means: Tensor) -> tuple[Tensor, Tensor]:
        """Return weight and bias with the rows of `classes` initialised at their `means` (classes, width).

        With twice the mean as row, and minus its squared norm as bias, a class is scored by the distance to
        its mean.
        """
        weight = self.weight.scatter(0, classes.unsqueeze(-1).expand_as(means), 2 * means)
        bias = self.bias.scatter(0, classes, -means.square().sum(-1))
        return weight, bias
