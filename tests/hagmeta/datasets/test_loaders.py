"""ogbn-arxiv, NELL and all of WordNet: small files of our own, served in place of the published ones."""

from __future__ import annotations

import gzip
import io
import pickle
import tarfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import scipy.sparse
from torch_geometric.datasets import NELL

from hagmeta.common.errors import UserError
from hagmeta.datasets import Dataset, load
from hagmeta.datasets.base import make_dataset
from hagmeta.datasets.downloads import arxiv, sources
from hagmeta.datasets.downloads.download import RemoteFile
from hagmeta.datasets.formats import pyg

if TYPE_CHECKING:
    from conftest import Server

MAPPING = "arxiv/mapping/labelidx2arxivcategeory.csv.gz"


def zipped(tables: dict[str, np.ndarray], categories: list[str]) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, table in tables.items():
            text = io.StringIO()
            np.savetxt(text, table, delimiter=",", fmt="%.9g")
            archive.writestr(f"arxiv/raw/{name}.csv.gz", gzip.compress(text.getvalue().encode()))
        lines = ["label idx,arxiv category", *(f"{i},{name}" for i, name in enumerate(categories))]
        archive.writestr(MAPPING, gzip.compress("\n".join(lines).encode()))
    return content.getvalue()


def tables_of(graph: Dataset) -> dict[str, np.ndarray]:
    return {
        "node-feat": graph.features.toarray(),
        "node-label": graph.labels[:, None],
        "edge": graph.edges[:, ::-1],  # from the later paper to the earlier
    }


@pytest.fixture
def small_arxiv(server: Server, graph: Dataset, monkeypatch: pytest.MonkeyPatch) -> Server:
    tables = tables_of(graph)
    server.files["arxiv.zip"] = zipped(tables, [f"arxiv cs {letter}" for letter in "abcde"])
    monkeypatch.setitem(sources.FILES, "ogbn-arxiv", (RemoteFile("arxiv.zip", f"{server.url}/arxiv.zip"),))
    monkeypatch.setattr(arxiv, "SHAPES", {name: table.shape for name, table in tables.items()})
    monkeypatch.setattr(arxiv, "CLASSES", 5)
    return server


def test_arxiv_is_downloaded_once_and_read(small_arxiv: Server, graph: Dataset, tmp_path: Path) -> None:
    for _ in range(2):
        dataset = load("ogbn-arxiv", tmp_path)
        np.testing.assert_array_equal(dataset.edges, graph.edges)
        np.testing.assert_array_equal(dataset.labels, graph.labels)
        np.testing.assert_array_equal(dataset.features.toarray(), graph.features.toarray())
        assert dataset.class_names[0] == "arxiv cs a"
    assert small_arxiv.requests == ["arxiv.zip"]


@pytest.mark.parametrize("name", ["node-feat", "node-label", "edge"])
def test_arxiv_with_other_counts_is_refused(
    name: str, small_arxiv: Server, graph: Dataset, tmp_path: Path
) -> None:
    tables = tables_of(graph)
    small_arxiv.files["arxiv.zip"] = zipped(tables | {name: tables[name][1:]}, list("abcde"))
    rows = len(tables[name])
    with pytest.raises(
        UserError, match=rf"arxiv.zip: {name}.csv.gz has shape \({rows - 1}, .* expected \({rows}, "
    ):
        load("ogbn-arxiv", tmp_path)


def test_arxiv_damaged_is_said_in_one_line(small_arxiv: Server, tmp_path: Path) -> None:
    small_arxiv.files["arxiv.zip"] = small_arxiv.files["arxiv.zip"][:500]
    with pytest.raises(UserError, match=r"arxiv.zip: cannot be read .* Delete it") as error:
        load("ogbn-arxiv", tmp_path)
    assert "\n" not in str(error.value)


def test_arxivs_published_counts_are_the_registrys() -> None:
    [info] = [info for info in sources.INFOS if info.name == "ogbn-arxiv"]
    assert (info.nodes, info.features) == arxiv.SHAPES["node-feat"]
    assert info.classes == arxiv.CLASSES


@pytest.fixture
def large_graph() -> Dataset:
    # PyTorch Geometric takes 500 nodes after the first ones for validation.
    rng = np.random.default_rng(0)
    return make_dataset(
        "large",
        edges=rng.integers(600, size=(1500, 2)),
        labels=np.arange(600) % 5,
        features=scipy.sparse.random(600, 20, density=0.2, format="csr", rng=rng),
        source="large",
    )


def nell_archive(graph: Dataset) -> bytes:
    """The graph in NELL's layout: of its last twenty nodes half are tested, and half have no label."""
    features, labels = graph.features.toarray(), np.eye(5)[graph.labels]
    known, tested = graph.num_nodes - 20, np.arange(graph.num_nodes - 19, graph.num_nodes, 2)
    neighbours: dict[int, list[int]] = {node: [] for node in range(graph.num_nodes)}
    for a, b in graph.edges.tolist():
        neighbours[a].append(b)
        neighbours[b].append(a)
    parts = {
        "x": scipy.sparse.csr_matrix(features[:10]),
        "tx": scipy.sparse.csr_matrix(features[tested]),
        "allx": scipy.sparse.csr_matrix(features[:known]),
        "y": labels[:10],
        "ty": labels[tested],
        "ally": labels[:known],
        "graph": neighbours,
    }
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        files = {name: pickle.dumps(part) for name, part in parts.items()}
        files["test.index"] = "".join(f"{node}\n" for node in tested).encode()
        for name, part in files.items():
            entry = tarfile.TarInfo(f"nell_data/ind.nell.0.001.{name}")
            entry.size = len(part)
            archive.addfile(entry, io.BytesIO(part))
    return content.getvalue()


@pytest.fixture
def small_nell(server: Server, large_graph: Dataset, monkeypatch: pytest.MonkeyPatch) -> Server:
    server.files["nell.tar.gz"] = nell_archive(large_graph)
    files = (RemoteFile("nell_data.tar.gz", f"{server.url}/nell.tar.gz"),)
    monkeypatch.setitem(sources.FILES, "nell", files)
    monkeypatch.setattr(pyg.Nell, "remote_files", files)
    return server


def test_nell_is_downloaded_once_and_read(small_nell: Server, large_graph: Dataset, tmp_path: Path) -> None:
    labelled, others = np.r_[:580, 581:600:2], np.arange(580, 600, 2)
    # Nodes without a label have a feature each; the others keep theirs.
    features = np.zeros((600, 30), dtype=np.float32)
    features[labelled, :20] = large_graph.features.toarray()[labelled]
    features[others, 20 + np.arange(10)] = 1
    for _ in range(2):
        dataset = load("nell", tmp_path)
        np.testing.assert_array_equal(dataset.edges, large_graph.edges)
        np.testing.assert_array_equal(dataset.labels[labelled], large_graph.labels[labelled])
        assert np.all(dataset.labels[others] == 0)  # as PyTorch Geometric has it
        np.testing.assert_array_equal(dataset.features.toarray(), features)
    assert small_nell.requests == ["nell.tar.gz"]


def test_nells_address_is_pygs_own() -> None:
    assert sources.FILES["nell"][0].url == NELL.url
    assert pyg.DATASETS["nell"].remote_files is sources.FILES["nell"]


def test_all_of_wordnet_says_how_to_get_its_package(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = RemoteFile("base.deb", f"{server.url}/base.deb", sha256="0" * 64)
    monkeypatch.setitem(sources.FILES, "wordnet-full", (file,))
    folder = f"{tmp_path}/wordnet-full/raw"
    wanted = rf"^cannot fetch base.deb .* put these files into {folder}: base.deb from {file.url}\.$"
    with pytest.raises(UserError, match=wanted):
        load("wordnet-full", tmp_path)
    server.files["base.deb"] = b"another version"
    with pytest.raises(UserError, match=r"its SHA-256 is .*; expected 0000"):
        load("wordnet-full", tmp_path)
