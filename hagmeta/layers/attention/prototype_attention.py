"""Attention of a class mean over the labelled nodes of its class."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from hagmeta.layers.attention.node_attention import copies


class PrototypeAttention(nn.Module):
    """Multi-head attention with a residual connection. It starts as the identity on the class means."""

    def __init__(self, width: int, heads: int = 2) -> None:
        super().__init__()
        self.shape = (heads, width)
        self.query = nn.Linear(width, heads * width, bias=False)
        self.key = nn.Linear(width, heads * width, bias=False)
        self.value = nn.Linear(width, heads * width, bias=False)
        self.last = nn.Linear(heads * width, width, bias=False)
        nn.init.zeros_(self.last.weight)

    def forward(self, means: Tensor, support: Tensor, nodes: Tensor) -> Tensor:
        """Return prototypes (classes, width).

        Args:
            means: The class means (classes, width), each of which attends to itself and to its supports.
            support: The embedded supports (classes, shots, width); without shots, only the mean is there.
            nodes: Their nodes (classes, shots). A node that is repeated counts once.
        """
        members = torch.cat([means.unsqueeze(-2), support], dim=-2)  # (classes, members, width)
        query = self.query(means).unflatten(-1, self.shape).unsqueeze(-3)  # (classes, 1, heads, width)
        key, value = (layer(members).unflatten(-1, self.shape) for layer in (self.key, self.value))
        scores = (query * key).sum(-1) / math.sqrt(self.shape[1])  # (classes, members, heads)
        times = torch.cat([torch.ones_like(means[:, :1]), copies(nodes).to(means.dtype)], dim=-1)
        weights = (scores - times.log().unsqueeze(-1)).softmax(-2)
        found = (weights.unsqueeze(-1) * value).sum(-3)  # (classes, heads, width)
        adapted: Tensor = means + self.last(found.flatten(-2))
        return adapted
