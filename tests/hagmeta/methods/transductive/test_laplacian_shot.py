"""LaplacianShot: the energy of the paper, and rectified means. test_closed_form.py has a reference."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
import torch
from sklearn.neighbors import KNeighborsClassifier

from hagmeta.config.run_config import RunConfig
from hagmeta.datasets.base import Dataset
from hagmeta.methods.transductive.base import Known
from hagmeta.methods.transductive.laplacian_shot import ROUNDS, rectified, regularised
from tests.hagmeta.methods.closed_form.test_closed_form import lived

Small = Callable[..., RunConfig]


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


def test_two_neighbours_by_hand() -> None:
    # Two nodes that are neighbours of each other. With logits (0, ln 3) a prediction is (1/4, 3/4).
    near = torch.tensor([[0.0, 0.0], [0.0, float(np.log(3))]])
    given = regularised(near, 2.0, lambda y: y.flip(0), rounds=1)
    np.testing.assert_allclose(given, [[0.5, 1.5], [1.0, 1 + np.log(3)]], rtol=1e-6)


def test_rectified_means_by_hand() -> None:
    points = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8], [0.8, 0.6]])
    free = torch.tensor([[0.0], [0], [1], [0]])  # the last node is not visible
    given = rectified(points, Known(points[:2], torch.tensor([3.0, 1.0]), free))
    weight = np.exp(8) / (np.exp(6) + np.exp(8))  # of the third node for the second class
    expected = (np.array([0, 1]) + weight * np.array([0.6, 0.8])) / (1 + weight)
    np.testing.assert_allclose(given, [[1, 0], expected], rtol=1e-5)


def test_without_weight_it_is_the_nearest_rectified_mean(narrow: Dataset, small: Small) -> None:
    config = small(method="laplacian-shot", features="propagated", laplacian=0.0)
    life = lived(config, narrow)
    centre = np.stack([rows.mean(0) for rows in life.classes[: life.many]]).mean(0)
    points = torch.from_numpy(life.features - centre)
    points = torch.nn.functional.normalize(points, dim=-1)
    labels = torch.zeros(len(points), len(life.nodes), dtype=torch.double)
    for number, nodes in enumerate(life.nodes):
        labels[nodes, number] = 1
    means = labels.T @ points / labels.sum(0).unsqueeze(-1)
    free = torch.from_numpy(life.visible).unsqueeze(-1) * (1 - labels.amax(-1, keepdim=True))
    found = rectified(points, Known(means, labels.sum(0), free)).numpy()
    model = KNeighborsClassifier(1).fit(found, np.arange(len(found)))
    assert (model.predict(points[life.queries].numpy()) == life.logits.argmax(1)).mean() > 0.995
    assert not np.allclose(found, means.numpy(), atol=0.01)
