"""From ``dataset[0]`` of PyTorch Geometric's own classes to a table of results, in three lines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from torch_geometric.datasets import Actor, Coauthor, Planetoid, WikiCS
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


def coauthor(root: Path, graph: Dataset) -> Any:
    ones = np.ones(len(graph.edges), np.float32)
    adjacency = scipy.sparse.csr_matrix((ones, graph.edges.T), shape=[graph.num_nodes] * 2)
    words = scipy.sparse.csr_matrix(graph.features)
    arrays = {"adj": adjacency, "attr": words}
    np.savez(
        raw_folder(root, "CS/raw") / "ms_academic_cs.npz",
        labels=graph.labels,
        **{
            f"{a}_{key}": getattr(m, key)
            for a, m in arrays.items()
            for key in ("data", "indices", "indptr", "shape")
        },
    )
    return Coauthor(str(root), "CS")


def wiki_cs(root: Path, graph: Dataset) -> Any:
    links: list[list[int]] = [[] for _ in range(graph.num_nodes)]
    for a, b in graph.edges.tolist():
        links[a].append(b)
    mapped = graph.features @ np.random.default_rng(0).normal(size=(graph.num_features, 300)) / 17
    masks = [[False] * graph.num_nodes]
    content = {"features": mapped.tolist(), "labels": graph.labels.tolist(), "links": links}
    content |= dict.fromkeys(("train_masks", "val_masks", "stopping_masks"), masks) | {"test_mask": masks[0]}
    (raw_folder(root, "raw") / "data.json").write_text(json.dumps(content))
    return WikiCS(str(root), is_undirected=True)


def actor(root: Path, graph: Dataset) -> Any:
    folder = raw_folder(root, "raw")
    rows = [",".join(map(str, row.indices)) for row in scipy.sparse.csr_matrix(graph.features)]
    nodes = [f"{node}\t{row}\t{graph.labels[node]}" for node, row in enumerate(rows)]
    edges = [f"{a}\t{b}" for a, b in graph.edges]
    for name, lines in (("out1_node_feature_label.txt", nodes), ("out1_graph_edges.txt", edges)):
        (folder / name).write_text("\n".join(["header", *lines, ""]))
    mask = np.zeros(graph.num_nodes)
    for split in range(10):
        masks = dict.fromkeys(("train_mask", "val_mask", "test_mask"), mask)
        np.savez(folder / f"film_split_0.6_0.2_{split}.npz", **masks)
    return Actor(str(root))


@pytest.mark.filterwarnings("ignore::hagmeta.datasets.formats.in_memory.DirectedEdgesWarning")
@pytest.mark.parametrize(
    ("make", "kind"),
    [(coauthor, "counts"), (wiki_cs, "values"), (actor, "counts")],
    ids=lambda x: getattr(x, "__name__", ""),
)
def test_graph_of_pyg_becomes_a_table_in_three_lines(
    make: Any, kind: str, graph: Dataset, tmp_path: Path
) -> None:
    dataset = make(tmp_path, graph)
    data = Dataset.from_pyg(dataset[0], name="mine")
    result = hagmeta.run("sgc-lda", data, **TASK, hidden=8, embedding=4, pretrain_epochs=1)
    print(result)
    assert data.kind == kind and len(result.frame()) == 2 * 3  # seeds, sessions
    if kind == "counts":  # the same graph as the one that was written
        assert data.fingerprint == graph.fingerprint


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
