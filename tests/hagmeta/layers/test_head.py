"""Cosine classifiers."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import vmap

from hagmeta.layers.head import COSINE_SCALE, cosine_logits


def reference(embedded: Tensor, rows: Tensor) -> Tensor:
    return COSINE_SCALE * F.normalize(embedded, dim=-1) @ F.normalize(rows, dim=-1).mT


def test_cosine_logits_and_their_gradients_are_those_of_normalised_rows() -> None:
    embedded, rows, weights = (
        torch.randn(2, *shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        for shape in ((5, 3), (4, 3), (5, 4))
    )
    embedded[0, 0] = 0  # as a node without visible neighbours before the first step
    found = []
    for function in (reference, cosine_logits):
        inputs = [part.clone().requires_grad_() for part in (embedded, rows)]
        logits = vmap(function)(*inputs)
        found.append((logits.detach(), *torch.autograd.grad((weights * logits).sum(), inputs)))
    torch.testing.assert_close(found[1], found[0])
