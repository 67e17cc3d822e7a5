"""The model of GraphAny (Zhao et al., ICLR 2025), which predicts on graphs that it was not trained on."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hagmeta.sparse.graph import Graph, View

PERPLEXITY = 2.0  # of each channel among the others
CHANNELS = 5  # X, L1, L2, H1 and H2 in the paper
TEMPERATURE = 5.0
SMALLEST = 1e-8  # smaller eigenvalues of a Gram matrix, relative to the largest, count as 0
HALVINGS, WIDEST = 40, 64.0  # of the search for a bandwidth, between 2 ** -WIDEST and 2 ** WIDEST


class Fusion(nn.Module):
    """Fuses the scores of the channels. Its weights are fixed."""

    def __init__(self, weights: Mapping[str, np.ndarray]) -> None:
        super().__init__()
        layers = [torch.from_numpy(weights[name]) for name in sorted(weights)]  # bias and weight by layer
        self.layers = nn.ParameterList(nn.Parameter(layer, requires_grad=False) for layer in layers)

    def forward(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """Return fused scores (nodes, classes) and the weight of each prediction."""
        hidden = relations(scores)
        *first, bias, weight = self.layers
        if first:
            hidden = F.linear(hidden, first[1], first[0]).relu()
        return fused(scores, F.linear(hidden, weight, bias))


def fused(scores: Tensor, logits: Tensor) -> tuple[Tensor, Tensor]:
    """Return the sum (nodes, classes) of the first channels of `scores`, and their weights."""
    attention = (logits / TEMPERATURE).softmax(-1)
    return torch.einsum("nf,nfc->nc", attention, scores[:, : attention.shape[-1]]), attention


def propagated(graph: Graph, view: View, inputs: Tensor) -> Tensor:
    """Return the five channels (nodes, CHANNELS, columns) of `inputs` (nodes, columns)."""
    once = graph.neighbour_means(inputs, view)
    twice = graph.neighbour_means(once, view)
    return torch.stack([inputs, once, twice, inputs - once, inputs - 2 * once + twice], 1)


def products(rows: Tensor, share: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return products of `rows` (nodes, channels, columns) with themselves and with `labels`, per channel.

    Nodes have the weights `share` (nodes, 1). `labels` (nodes, classes) are one-hot.
    """
    rows, weighed = rows.double(), (rows * share.unsqueeze(-1)).double()
    gram = torch.einsum("nfv,nfw->fvw", weighed, rows)
    return gram, torch.einsum("nfw,nc->fwc", weighed, labels.double())


def least_squares(gram: Tensor, cross: Tensor) -> Tensor:
    """Return the coefficients (channels, columns, classes) with the smallest norm."""
    values, vectors = torch.linalg.eigh(gram)
    counts = values > SMALLEST * values[:, -1:]
    inverse = torch.where(counts, 1 / torch.where(counts, values, 1), 0)
    return vectors @ (inverse.unsqueeze(-1) * (vectors.mT @ cross))


def relations(scores: Tensor) -> Tensor:
    """Return how near the score vectors of each node are to each other, as in t-SNE: (nodes, 20)."""
    apart = (scores.unsqueeze(2) - scores.unsqueeze(1)).square().sum(-1)  # (nodes, CHANNELS, CHANNELS)
    others = [[column for column in range(CHANNELS) if column != row] for row in range(CHANNELS)]
    apart = apart.gather(-1, torch.tensor(others, device=apart.device).expand(len(apart), -1, -1))
    apart = apart - apart.amin(-1, keepdim=True)
    exponent, step = torch.zeros_like(apart[..., :1]), WIDEST / 2
    for _ in range(HALVINGS):
        near = (-apart * exponent.exp2()).softmax(-1)
        entropy = torch.special.entr(near).sum(-1, keepdim=True)
        exponent = exponent + torch.where(entropy > math.log(PERPLEXITY), step, -step)
        step /= 2
    return (-apart * exponent.exp2()).softmax(-1).flatten(1)
