"""The datasets of PyTorch Geometric's kind, on small files of our own in place of the published ones."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import scipy.sparse
from torch_geometric.datasets import CoraFull, Reddit2

from hagmeta.common.errors import UserError
from hagmeta.datasets import Dataset, fingerprint, load
from hagmeta.datasets.downloads import published, sources
from hagmeta.datasets.downloads.download import RemoteFile, git_blob_id
from hagmeta.datasets.formats import pyg

if TYPE_CHECKING:
    from conftest import Server


@pytest.fixture
def small_clothing(
    server: Server, write_mat: Callable[[Path], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Server:
    """Serve the small graph in place of amazon-clothing."""
    folder = tmp_path / "served"
    folder.mkdir()
    write_mat(folder)
    server.files = {path.name: path.read_bytes() for path in folder.iterdir()}
    files = tuple(
        RemoteFile(name, f"{server.url}/{name}", git_blob_id(folder / name))
        for name in ("Small_network", "Small_train.mat", "Small_test.mat")
    )
    monkeypatch.setitem(sources.FILES, "amazon-clothing", files)
    monkeypatch.setattr(published.AmazonClothing, "remote_files", files)
    return server


def test_mat_dataset_is_downloaded_once(small_clothing: Server, graph: Dataset, tmp_path: Path) -> None:
    for _ in range(2):
        dataset = load("amazon-clothing", tmp_path)
        assert fingerprint(dataset) == fingerprint(graph)
        assert dataset.class_names == ("10", "11", "12", "13", "14")
    assert len(small_clothing.requests) == 3


def test_mat_dataset_with_a_damaged_processed_file_says_so(small_clothing: Server, tmp_path: Path) -> None:
    load("amazon-clothing", tmp_path)
    shutil.rmtree(tmp_path / "prepared")  # with it nothing else is read
    (tmp_path / "amazon-clothing/processed/data.pt").write_bytes(b"PK half a file")
    with pytest.raises(UserError, match=f"^{tmp_path}/amazon-clothing: .* Delete the folder") as error:
        load("amazon-clothing", tmp_path)
    assert "\n" not in str(error.value)


def test_mat_dataset_leaves_no_half_processed_file(
    small_clothing: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Killed while torch writes: the next run must not find a data.pt.
    def half(_: object, path: str) -> None:
        Path(path).write_bytes(b"PK half a file")
        raise OSError("no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("torch_geometric.io.fs.torch_save", half)
        with pytest.raises(UserError, match="no space left on device"):
            load("amazon-clothing", tmp_path)
    assert list((tmp_path / "amazon-clothing/processed").iterdir()) == []
    load("amazon-clothing", tmp_path)


def test_addresses_are_pygs_own() -> None:
    # They are copied, so that an absent network is said before PyG is imported.
    ids = [Reddit2.adj_full_id, Reddit2.feats_id, Reddit2.class_map_id, Reddit2.role_id]
    assert [file.url.rpartition("id=")[2] for file in sources.FILES["reddit"]] == ids
    assert sources.FILES["cora-full"][0].url == CoraFull.url.format("cora")


def write_cora(graph: Dataset, root: Path) -> None:
    raw = root / "cora-full/cora/raw"
    raw.mkdir(parents=True)
    shape = (graph.num_nodes, graph.num_nodes)
    adjacency = scipy.sparse.csr_matrix((np.ones(len(graph.edges)), graph.edges.T), shape=shape)
    np.savez(
        raw / "cora.npz",
        labels=graph.labels,
        **{f"attr_{key}": getattr(graph.features, key) for key in ("data", "indices", "indptr", "shape")},
        **{f"adj_{key}": getattr(adjacency, key) for key in ("data", "indices", "indptr", "shape")},
    )


def test_cora_full_put_there_by_hand_is_read(graph: Dataset, tmp_path: Path) -> None:
    write_cora(graph, tmp_path)
    dataset = load("cora-full", tmp_path)
    np.testing.assert_array_equal(dataset.edges, graph.edges)
    np.testing.assert_array_equal(dataset.labels, graph.labels)
    assert scipy.sparse.issparse(dataset.features)
    assert np.all(dataset.features.data == 1) and dataset.features.nnz == graph.features.nnz


def test_cora_full_truncated_is_said_in_one_line(graph: Dataset, tmp_path: Path) -> None:
    write_cora(graph, tmp_path)
    path = tmp_path / "cora-full/cora/raw/cora.npz"
    path.write_bytes(path.read_bytes()[:1000])
    for _ in range(2):
        with pytest.raises(UserError, match=f"^{tmp_path}/cora-full: a file there cannot be read"):
            load("cora-full", tmp_path)


def test_reddit_put_there_by_hand_is_read(graph: Dataset, tmp_path: Path) -> None:
    raw = tmp_path / "reddit/raw"
    raw.mkdir(parents=True)
    shape = (graph.num_nodes, graph.num_nodes)
    half = scipy.sparse.csr_matrix((np.ones(len(graph.edges)), graph.edges.T), shape=shape)
    scipy.sparse.save_npz(raw / "adj_full.npz", half + half.T)
    np.save(raw / "feats.npy", graph.features.toarray() - 0.5)
    (raw / "class_map.json").write_text(json.dumps({str(i): int(y) for i, y in enumerate(graph.labels)}))
    (raw / "role.json").write_text(json.dumps({"tr": [0], "va": [1], "te": [2]}))
    dataset = load("reddit", tmp_path)
    assert isinstance(dataset.features, np.ndarray) and dataset.features.dtype == np.float32
    np.testing.assert_array_equal(dataset.edges, graph.edges)
    np.testing.assert_array_equal(dataset.features, graph.features.toarray() - np.float32(0.5))
    assert pyg.DATASETS["reddit"].remote_files is sources.FILES["reddit"]
