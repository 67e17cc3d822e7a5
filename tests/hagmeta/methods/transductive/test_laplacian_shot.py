"""LaplacianShot: the energy of the paper, and rectified means. test_closed_form.py has a reference."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch

from hagmeta.methods.transductive.laplacian_shot import ROUNDS, regularised


def energy(logits: torch.Tensor, near: torch.Tensor, adjacency: torch.Tensor, laplacian: float) -> float:
    """Return the energy of Ziko et al. with entropy, where each node has its degree as weight."""
    predicted, degrees = logits.softmax(-1), adjacency.sum(1)
    own = (predicted * (predicted.log() - near)).sum(-1)
    pairs = (predicted * (adjacency @ predicted)).sum()
    return float(degrees @ own - laplacian / 2 * pairs)


@pytest.mark.parametrize("laplacian", [0.5, 2.0])
def test_each_round_lowers_the_energy(laplacian: float) -> None:
    random = torch.Generator().manual_seed(3)
    adjacency = torch.triu(torch.rand(40, 40, generator=random, dtype=torch.double) < 0.1, 1).double()
    adjacency = adjacency + adjacency.T
    adjacency[0, 1] = adjacency[1, 0] = 1.0
    near = -4 * torch.rand(40, 5, generator=random, dtype=torch.double)
    share = 1 / adjacency.sum(1, keepdim=True).clamp(min=1)
    after = [
        energy(
            regularised(near, laplacian, lambda y: share * (adjacency @ y), rounds),
            near,
            adjacency,
            laplacian,
        )
        for rounds in range(ROUNDS + 1)
    ]
    assert all(later <= earlier + 1e-9 for earlier, later in pairwise(after))
    assert after[1] < after[0] - 0.01 and abs(after[-1] - after[-2]) < 0.01 * (after[0] - after[1])
