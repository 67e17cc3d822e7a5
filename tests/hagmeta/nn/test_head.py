"""Cosine classifiers."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import grad, vmap

from hagmeta.nn.head import COSINE_SCALE, cosine_logits


def reference(embedded: Tensor, rows: Tensor) -> Tensor:
    return COSINE_SCALE * F.normalize(embedded, dim=-1) @ F.normalize(rows, dim=-1).mT


def test_cosine_logits_and_their_gradients_are_those_of_normalised_rows() -> None:
    drawn = torch.Generator().manual_seed(0)
    embedded, rows, weights = (
        torch.randn(2, *shape, generator=drawn, dtype=torch.float64) for shape in ((5, 3), (4, 3), (5, 4))
    )
    embedded[0, 0] = 0  # as a node without visible neighbours before the first step

    def slopes(function: object) -> tuple[Tensor, ...]:
        def loss(embedded: Tensor, rows: Tensor, weights: Tensor) -> Tensor:
            return (weights * function(embedded, rows)).sum()  # type: ignore[operator]

        return vmap(grad(loss, argnums=(0, 1)))(embedded, rows, weights)

    torch.testing.assert_close(vmap(cosine_logits)(embedded, rows), reference(embedded, rows))
    torch.testing.assert_close(slopes(cosine_logits), slopes(reference))
