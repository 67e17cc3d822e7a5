"""From ``dataset[0]`` of PyTorch Geometric's own classes to a table of results, in three lines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from torch_geometric.datasets import Planetoid
from torch_geometric.transforms import NormalizeFeatures

import hagmeta
from hagmeta.datasets import Dataset, load
from hagmeta.testing import GRAPH

CORA = Path(__file__).resolve().parents[5] / "shared/data/planetoid/cora/raw"
TASK: dict[str, Any] = {"classes": (2, 2, 5), "n_way": 2, "k_shot": 2, "seeds": 2, "progress": False}


@pytest.fixture
def graph() -> Dataset:
    return load(GRAPH, Path())


def raw_folder(root: Path, name: str) -> Path:
    folder = root / name
    folder.mkdir(parents=True)
    return folder


@pytest.mark.parametrize("transform", [None, NormalizeFeatures()])
def test_cora_of_planetoid_has_words(transform: Any, tmp_path: Path) -> None:
    if not CORA.exists():
        pytest.skip("../shared/data/planetoid is absent")
    raw = raw_folder(tmp_path, "Cora/raw")
    for file in CORA.iterdir():
        (raw / file.name).write_bytes(file.read_bytes())
    cora = Planetoid(str(tmp_path), "Cora", transform=transform)
    data = Dataset.from_pyg(cora[0], name="cora")
    assert (data.num_nodes, len(data.edges), data.num_features) == (2708, 5278, 1433)
    assert data.kind == "counts"
    result = hagmeta.run("sgc-lda", data, **{**TASK, "classes": (3, 2, 2)}, features="propagated")
    assert float(result.frame().macro_accuracy.mean()) > 0.5
