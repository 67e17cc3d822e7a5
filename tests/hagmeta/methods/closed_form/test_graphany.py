"""GraphAny, compared with its authors' model on a small graph, for the weights that they released."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from hagmeta.datasets import EMBEDDED
from hagmeta.layers.scores.graphany import Fusion, least_squares, products, propagated, relations
from hagmeta.methods.closed_form.graphany import EVERY, weights_without
from hagmeta.sparse.graph import View
from hagmeta.sparse.plain import PlainGraph
from tests.hagmeta.layers.test_smoothing import graph_of
from tools.train_graphany import folded

FOLDER = Path(__file__).parents[5] / "shared" / "data" / "graphany"
CHANNELS = ("X", "L1", "L2", "H1", "H2")
needs_files = pytest.mark.skipif(not FOLDER.is_dir(), reason="needs the released weights in ../shared")


@pytest.fixture(scope="module")
def parity() -> dict[str, np.ndarray]:
    with np.load(FOLDER / "parity.npz") as stored:
        return {name: stored[name] for name in stored.files}


@pytest.fixture(scope="module")
def scores(parity: dict[str, np.ndarray]) -> torch.Tensor:
    edges = np.unique(np.sort(parity["edges"].T.astype(np.int64), axis=1), axis=0)
    graph = graph_of(edges, 60, PlainGraph)
    view = View(*(part[0] for part in graph.view(np.ones((1, 60), dtype=bool))[:3]))
    channels = propagated(graph, view, torch.from_numpy(parity["features"]))
    known = torch.from_numpy(parity["labelled"])
    labels = torch.eye(4)[torch.from_numpy(parity["labels"])[known]]
    slopes = least_squares(*products(channels[known], torch.ones(24, 1), labels)).float()
    return torch.einsum("nfw,fwc->nfc", channels, slopes)


@needs_files
def test_scores_and_distances_are_the_authors(parity: dict[str, np.ndarray], scores: torch.Tensor) -> None:
    for channel, name in enumerate(CHANNELS):
        np.testing.assert_allclose(scores[:, channel], parity[f"scores_{name}"], rtol=0, atol=1e-4)
    np.testing.assert_allclose(relations(scores), parity["distances"], rtol=0, atol=1e-4)


@needs_files
@pytest.mark.parametrize("name", ["cora", "wisconsin", "product", "arxiv"])
def test_fused_scores_are_the_authors(parity: dict[str, np.ndarray], scores: torch.Tensor, name: str) -> None:
    with np.load(FOLDER / f"{name}.npz") as stored:
        state = {key.removeprefix("gnn_model.mlp."): torch.from_numpy(stored[key]) for key in stored.files}
    found, attention = Fusion(folded(state))(scores)
    np.testing.assert_allclose(attention, parity[f"attention_{name}"], rtol=0, atol=1e-4)
    np.testing.assert_allclose(found, parity[f"fused_{name}"], rtol=0, atol=1e-4)


def test_each_embedded_graph_has_weights_of_the_others() -> None:
    of = {name: weights_without(name) for name in (*EMBEDDED, EVERY)}
    assert all(key.startswith(f"{name}/") for name, weights in of.items() for key in weights)
    firsts = [next(iter(weights.values())).tobytes() for weights in of.values()]
    assert len(set(firsts)) == len(of)
    assert weights_without("mine.npz").keys() == of[EVERY].keys()
