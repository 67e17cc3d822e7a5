"""Classifiers: a growing linear head, and cosine logits."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from hagmeta.packs.function import Function

COSINE_SCALE = 16.0
LEAST = 1e-12  # minimum length, as in `F.normalize`
LABEL_SMOOTHING = 0.1  # for cosine classifiers


def cosine_logits(embedded: Tensor, rows: Tensor) -> Tensor:
    """Return scaled cosines (nodes, classes) of `embedded` (nodes, width) and `rows` (classes, width)."""
    result: Tensor = _Cosines.apply(embedded, F.normalize(rows, dim=-1))[0]
    return result


class _Cosines(Function):
    """Divide by the lengths after the product, so that no normalised copy of `embedded` is made.

    This takes two thirds of the time and memory of `F.normalize` and its gradient.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(embedded: Tensor, unit: Tensor) -> tuple[Tensor, Tensor]:
        length = torch.linalg.vector_norm(embedded, dim=-1, keepdim=True).clamp(min=LEAST)
        return embedded @ unit.mT * (COSINE_SCALE / length), 1 / length

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: tuple[Tensor, Tensor]) -> None:
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(*inputs, *output)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor, Tensor]:
        embedded, unit, cosines, per_length = ctx.saved_tensors
        scaled = grad * (COSINE_SCALE * per_length)
        radial = (grad * cosines).sum(-1, keepdim=True) * per_length.square()
        return scaled @ unit - radial * embedded, scaled.mT @ embedded


class LinearHead(nn.Module):
    """A linear classifier with a row for every class of the dataset. Only the rows of a task are used."""

    def __init__(self, classes: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(classes, width))
        self.bias = nn.Parameter(torch.zeros(classes))

    def forward(self, embedded: Tensor, classes: Tensor) -> Tensor:
        """Return logits (nodes, classes) of `embedded` nodes (nodes, width) for `classes`."""
        return embedded @ self.weight[classes].mT + self.bias[classes]

    def started(self, classes: Tensor, means: Tensor, trained: Tensor) -> tuple[Tensor, Tensor]:
        """Return weight and bias with the rows of `classes` initialised from their `means` (classes, width).

        Rows have the directions of the means, the mean length of the rows of the `trained` classes, and their
        mean bias (Qi et al., CVPR 2018). So new classes compete with trained ones on equal terms. If there
        are no trained classes, a class is scored by the distance to its mean: its row is twice the mean, and
        its bias is minus the squared norm.
        """
        if len(trained):
            length, bias = self.weight[trained].norm(dim=-1).mean(), self.bias[trained].mean()
            rows, biases = length * F.normalize(means, dim=-1), bias.expand(len(classes))
        else:
            rows, biases = 2 * means, -means.square().sum(-1)
        weight = self.weight.scatter(0, classes.unsqueeze(-1).expand_as(rows), rows)
        return weight, self.bias.scatter(0, classes, biases)
