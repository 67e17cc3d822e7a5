"""Attention over the vectors of a classifier, one per class."""

from __future__ import annotations

import math

from torch import Tensor, nn

from hagmeta.packs.randomness import Rate, dropout


class ClassifierAttention(nn.Module):
    """Self-attention over all classes, with a residual connection."""

    def __init__(self, width: int, rate: float) -> None:
        super().__init__()
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, width, bias=False)
        self.value = nn.Linear(width, width, bias=False)
        self.dropout = Rate(rate)

    def forward(self, vectors: Tensor, key: Tensor | None) -> Tensor:
        """Return adapted classifier vectors (classes, width), given `vectors` of the same shape."""
        scores = self.query(vectors) @ self.key(vectors).mT / math.sqrt(vectors.shape[-1])
        found = scores.softmax(-1) @ self.value(vectors)
        return vectors + dropout(found, self.dropout, key)
