"""The features of KLDA and GKEAL, and the truncated solution of LoRanPAC."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.kernel_approximation import RBFSampler
from sklearn.metrics.pairwise import rbf_kernel

from hagmeta.config.run_config import RunConfig, resolve
from hagmeta.layers.statistics import LabelledRows
from hagmeta.methods import make_method
from hagmeta.methods.base import Sizes

Tiny = Callable[..., RunConfig]
FEATURES, NODES = 8, 30


@pytest.fixture
def rows() -> torch.Tensor:
    return torch.randn(NODES, FEATURES, generator=torch.Generator().manual_seed(0))


def labelled(rows: torch.Tensor) -> LabelledRows:
    """Nodes 0 to 3 have the first class, 4 and 5 the second. Nodes of weight 0 fill up the array."""
    share = torch.tensor([[0.25] * 4, [0.5, 0.5, 0, 0]])
    return LabelledRows(torch.tensor([[0, 1, 2, 3], [4, 5, 20, 21]]), share, lambda nodes: rows[nodes])


def made(config: RunConfig) -> Any:
    return make_method(resolve(config), Sizes(9, 2, 2, 10, narrow=FEATURES, nodes=NODES), 0)


def test_random_fourier_features_approximate_the_kernel_as_well_as_those_of_scikit_learn(
    tiny: Tiny, rows: torch.Tensor
) -> None:
    columns, deviation = 4000, 3.0
    method = made(tiny(method="klda", features="propagated", hops=0, projection=columns))
    features = method.lifted(rows, torch.tensor(deviation)).double().numpy()
    gamma = 1 / (2 * deviation**2)
    expected = rbf_kernel(rows.numpy(), gamma=gamma)
    theirs = RBFSampler(gamma=gamma, n_components=columns, random_state=0).fit_transform(rows.numpy())
    errors = [np.abs(each @ each.T - expected).mean() for each in (features, theirs)]
    assert errors[0] < 1.2 * errors[1] < 0.02


def test_all_labelled_nodes_are_centres_if_there_are_few(tiny: Tiny, rows: torch.Tensor) -> None:
    method = made(tiny(method="gkeal", features="propagated", hops=0, centres=20))
    fitted = method.fit(labelled(rows))
    features = method.lifted(rows, *fitted)
    assert features.shape == (NODES, 20) and int(fitted[1].sum()) == 6
    assert not features[:, 6:].any()
    # A node has the kernel 1 with itself.
    ones = torch.isclose(features[:, :6], torch.ones(()), atol=1e-5).nonzero()[:, 0]
    assert sorted(ones.tolist()) == list(range(6))


@pytest.mark.parametrize(("truncation", "rank"), [(0.0, 6), (0.25, 4), (0.5, 3)])
def test_with_more_features_than_labels_truncation_is_a_share_of_the_labels(
    tiny: Tiny, rows: torch.Tensor, truncation: float, rank: int
) -> None:
    method = made(tiny(method="loranpac", features="propagated", hops=0, lift=40, truncation=truncation))
    features = method.transformed(rows[:6])
    # Each node is a class, so its mean is the node itself and there is no variance within classes.
    answers = method.answer((features, torch.zeros(40, 40).double(), torch.tensor(6.0).double()), features)
    # These are the projections of the labels: the labels themselves without truncation.
    assert float(answers.trace()) == pytest.approx(rank, abs=1e-4)
    torch.testing.assert_close(answers @ answers, answers, atol=1e-4, rtol=0)
