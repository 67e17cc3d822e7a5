"""Classifiers: a linear one that grows with the classes met, and by cosine."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

COSINE_SCALE = 16.0
LABEL_SMOOTHING = 0.1  # under a cosine classifier


def cosine_logits(embedded: Tensor, rows: Tensor) -> Tensor:
    """(nodes, classes), of embedded nodes (nodes, width) and a row (classes, width) a class."""
    return COSINE_SCALE * F.normalize(embedded, dim=-1) @ F.normalize(rows, dim=-1).mT


class LinearHead(nn.Module):
    """A row for every class of the dataset; those of a task's classes take part, the others wait."""

    def __init__(self, classes: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(classes, width))
        self.bias = nn.Parameter(torch.zeros(classes))

    def forward(self, embedded: Tensor, classes: Tensor) -> Tensor:
        """Logits (nodes, classes) of embedded nodes (nodes, width)."""
        return embedded @ self.weight[classes].mT + self.bias[classes]

    def started(self, classes: Tensor, means: Tensor) -> tuple[Tensor, Tensor]:
        """Weight and bias with the rows of ``classes`` at their ``means`` (classes, width).

        A row of twice the mean, with less its square as bias, classifies by distance to that mean.
        """
        weight = self.weight.scatter(0, classes.unsqueeze(-1).expand_as(means), 2 * means)
        bias = self.bias.scatter(0, classes, -means.square().sum(-1))
        return weight, bias
