"""Columns that are found by a routine do not depend on which routine it is, nor on how it rounds."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from hagmeta.config.run_config import RunConfig
from hagmeta.datasets.base import Dataset
from hagmeta.engine.options import RunOptions
from hagmeta.engine.run import run
from hagmeta.layers.subspaces import leading_words, spectrum
from hagmeta.sparse.graph import Graph, View
from hagmeta.sparse.inputs import make_inputs

CPU = torch.device("cpu")
Columns = Callable[[Graph, View, int], Tensor]


@pytest.fixture
def view(tiny_graph: Dataset) -> View:
    """What a seed sees of a graph of many components: each of them has an eigenvalue of one."""
    visible = np.random.default_rng(0).random(tiny_graph.num_nodes) < 0.5
    words, rows = make_inputs("tf-idf", tiny_graph.features, visible)
    seen = (part[0] for part in Graph(tiny_graph, CPU).view(visible[None])[:3])
    return View(*seen)._replace(narrow=(torch.from_numpy(words), torch.from_numpy(rows)))


@pytest.fixture
def other_routine(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Puts one in place of `eigh` that gives other signs, of a matrix that was rounded otherwise."""
    usual = torch.linalg.eigh

    def other(matrix: Tensor) -> tuple[Tensor, Tensor]:
        rng, size = np.random.default_rng(1), matrix.shape[-1]
        noise = torch.from_numpy(rng.standard_normal((size, size))).to(matrix)
        signs = torch.from_numpy(rng.choice([-1.0, 1.0], size)).to(matrix)
        rounding = torch.finfo(torch.float32).eps * matrix.abs().amax() * (noise + noise.mT)
        values, vectors = usual(matrix + rounding)
        return values, vectors * signs

    return lambda: monkeypatch.setattr(torch.linalg, "eigh", other)


@pytest.mark.parametrize("columns", [leading_words, spectrum])
def test_columns_are_the_same_by_another_routine(
    tiny_graph: Dataset, view: View, other_routine: Callable[[], None], columns: Columns
) -> None:
    graph = Graph(tiny_graph, CPU)
    expected = columns(graph, view, 32)
    other_routine()
    torch.testing.assert_close(columns(graph, view, 32), expected, rtol=0, atol=1e-3)


def test_answers_are_the_same_by_another_routine(
    tiny_graph: Dataset, tiny: Callable[..., RunConfig], other_routine: Callable[[], None]
) -> None:
    def answers() -> list[list[int]]:
        outputs = run(tiny(method="posterior-means"), [0], tiny_graph, RunOptions(device=CPU))
        return [np.concatenate(one.predictions.predicted).tolist() for one in outputs]

    expected = answers()
    other_routine()
    assert answers() == expected
