"""PT-MAP: marginals of the transport, and a linear program of SciPy. test_closed_form.py has a reference."""

from __future__ import annotations

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment

from hagmeta.methods.transductive.pt_map import class_factors


def transported(near: torch.Tensor, free: torch.Tensor, times: int) -> torch.Tensor:
    factors = torch.ones_like(near[0])
    for _ in range(times):
        factors = class_factors(near, free, factors)
    return (near + factors.log()).softmax(-1)


def test_free_nodes_are_shared_equally() -> None:
    random = torch.Generator().manual_seed(0)
    near = -10 * torch.rand(60, 4, generator=random)
    near[:, 0] += 2  # without the transport, the first class gets most nodes
    free = (torch.arange(60) < 40).float().unsqueeze(-1)
    shares = free * transported(near, free, 1)
    assert (free * near.softmax(-1)).sum(0)[0] > 15
    np.testing.assert_allclose(shares.sum(0), [10, 10, 10, 10], rtol=0.02)
    np.testing.assert_allclose(shares.sum(1), free[:, 0], atol=1e-6)
    often = free * transported(near, free, 20)
    np.testing.assert_allclose(often.sum(0), [10, 10, 10, 10], rtol=1e-4)


def test_large_factors_give_the_optimal_assignment() -> None:
    costs = np.random.default_rng(1).random((12, 3)) * 4
    shares = transported(torch.from_numpy(-30 * costs).float(), torch.ones(12, 1), 200)
    _, best = linear_sum_assignment(np.repeat(costs, 4, axis=1))  # four places per class
    assert (shares.argmax(-1).numpy() == best // 4).all()


def test_extreme_distances_stay_finite() -> None:
    near = torch.tensor([[0.0, -4e4], [0.0, -3e4], [0.0, -4e6]])
    shares = transported(near, torch.tensor([[1.0], [1.0], [0.0]]), 5)
    assert shares.isfinite().all()
    assert transported(near, torch.zeros(3, 1), 1).isfinite().all()
