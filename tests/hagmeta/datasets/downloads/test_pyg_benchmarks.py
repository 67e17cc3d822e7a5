"""Benchmark graphs of PyTorch Geometric: the published arrays where they are at hand, else small files."""

from __future__ import annotations

import gzip
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import scipy.sparse
from torch_geometric.datasets import Amazon, CitationFull, Coauthor, EmailEUCore, WikiCS

from hagmeta.common.errors import UserError
from hagmeta.config.run_config import RunConfig, resolve
from hagmeta.datasets import Dataset, describe, fingerprint, load
from hagmeta.datasets.base import make_dataset
from hagmeta.datasets.downloads import pyg_benchmarks, sources
from hagmeta.datasets.downloads.download import RemoteFile
from hagmeta.datasets.formats import npz

if TYPE_CHECKING:
    from conftest import Server

ROOT = Path(__file__).resolve().parents[4]
SHARED = ROOT.parent / "shared"
OF_WORDS = sorted(
    name
    for name, kind in pyg_benchmarks.DATASETS.items()
    if "pre_transform" in kind.arguments and kind.counts is None
)
CSR = ("data", "indices", "indptr", "shape")

# Members of departments 0 to 41 of the published e-mail network. They add up to 1,005.
DEPARTMENTS = [
    *(49, 65, 10, 12, 109, 18, 28, 51, 19, 32, 39, 29, 3, 26, 92, 55, 25, 35, 1, 29, 14),
    *(61, 25, 27, 6, 6, 9, 10, 8, 5, 4, 8, 9, 1, 13, 13, 22, 15, 13, 3, 4, 2),
]


def raw_folder(name: str, root: Path) -> Path:
    folder = root / name / sources.RAW_FOLDERS[name]
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def write_words(name: str, graph: Dataset, root: Path) -> None:
    """Write the graph in PyTorch Geometric's layout: one direction per edge, with some self-loops."""
    pairs = np.concatenate([graph.edges, np.repeat(np.arange(5), 2).reshape(5, 2)])
    shape = (graph.num_nodes, graph.num_nodes)
    adjacency = scipy.sparse.csr_matrix((np.ones(len(pairs), np.float32), pairs.T), shape=shape)
    np.savez(
        raw_folder(name, root) / sources.FILES[name][0].name,
        labels=graph.labels,
        **{f"attr_{key}": getattr(graph.features, key) for key in CSR},
        **{f"adj_{key}": getattr(adjacency, key) for key in CSR},
    )


def expect_counts_of(graph: Dataset, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    info = replace(
        describe(name, Path()),
        nodes=graph.num_nodes,
        edges=len(graph.edges),
        features=graph.num_features,
        classes=graph.num_classes,
    )
    monkeypatch.setattr(pyg_benchmarks, "INFOS", (info,))


@pytest.mark.parametrize(
    ("name", "file"),
    [
        pytest.param("coauthor-cs", "coauthor-cs", marks=pytest.mark.slow),
        pytest.param("amazon-computers", "amazon-computers", marks=pytest.mark.slow),
        ("cora-ml", "cora-ml-geometer"),
    ],
)
def test_published_arrays_in_pygs_layout_are_read_unchanged(name: str, file: str, tmp_path: Path) -> None:
    arrays = SHARED / f"data/field/{file}.npz"
    if not arrays.exists():
        pytest.skip("../shared/data/field is absent")
    published = npz.load(arrays, name)
    write_words(name, published, tmp_path)
    assert describe(name, tmp_path).on_disk
    dataset = load(name, tmp_path)  # also checks the counts
    np.testing.assert_array_equal(dataset.edges, published.edges)
    np.testing.assert_array_equal(dataset.labels, published.labels)
    assert fingerprint(dataset) == fingerprint(published)


@pytest.mark.parametrize("name", OF_WORDS)
def test_files_in_pygs_layout_are_found(
    name: str, graph: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_words(name, graph, tmp_path)
    expect_counts_of(graph, name, monkeypatch)
    dataset = load(name, tmp_path)
    np.testing.assert_array_equal(dataset.edges, graph.edges)
    np.testing.assert_array_equal(dataset.labels, graph.labels)
    assert dataset.kind == "counts"
    np.testing.assert_array_equal(dataset.features.toarray(), graph.features.toarray() > 0)


def test_a_processed_file_of_pyg_in_the_same_folder_is_not_used(
    graph: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_words("cora-ml", graph, tmp_path)
    expect_counts_of(graph, "cora-ml", monkeypatch)
    CitationFull(str(tmp_path / "cora-ml"), "Cora_ML")
    assert scipy.sparse.issparse(load("cora-ml", tmp_path).features)


def test_other_counts_are_refused_in_one_line(graph: Dataset, tmp_path: Path) -> None:
    write_words("cora-ml", graph, tmp_path)
    for _ in range(2):  # the second time, the graph is already processed
        with pytest.raises(UserError) as error:
            load("cora-ml", tmp_path)
        assert str(error.value) == (
            f"{tmp_path}/cora-ml: the files are not the published cora-ml: they have 60 nodes (expected "
            f"2,995), {len(graph.edges)} edges (expected 8,158), 20 features (expected 2,879), 5 classes "
            "(expected 7). Delete the folder and run again."
        )


@pytest.mark.parametrize("name", sorted(pyg_benchmarks.DATASETS))
def test_a_damaged_file_is_reported_in_one_line(name: str, tmp_path: Path) -> None:
    for file in sources.FILES[name]:
        (raw_folder(name, tmp_path) / file.name).write_bytes(b"PK half a file")
    with pytest.raises(UserError, match=f"^{tmp_path}/{name}: a file there cannot be read") as error:
        load(name, tmp_path)
    assert "\n" not in str(error.value)


def write_email(folder: Path, edges: np.ndarray, labels: np.ndarray) -> None:
    network, departments = (file.name for file in sources.FILES["email-eu-core"])
    np.savetxt(folder / network, edges, fmt="%d")
    np.savetxt(folder / departments, np.stack([np.arange(len(labels)), labels], axis=1), fmt="%d")


@pytest.fixture(scope="module")
def email() -> tuple[np.ndarray, np.ndarray]:
    """Return edges and labels with the counts of the e-mail network: random pairs, real departments."""
    rng = np.random.default_rng(0)
    labels = rng.permutation(np.repeat(np.arange(42), DEPARTMENTS))
    pairs = np.stack(np.triu_indices(1005, k=1), axis=1)
    edges = rng.permutation(pairs)[:16_064]
    reversed_too, loops = edges[:8865, ::-1], np.repeat(np.arange(642), 2).reshape(642, 2)
    return np.concatenate([edges, reversed_too, loops]), labels


def test_email_has_one_feature_per_node_and_no_small_departments(
    email: tuple[np.ndarray, np.ndarray], tmp_path: Path
) -> None:
    edges, labels = email
    assert len(edges) == 25_571  # as published, with both directions and self-loops
    write_email(raw_folder("email-eu-core", tmp_path), edges, labels)
    dataset = load("email-eu-core", tmp_path)
    np.testing.assert_array_equal(dataset.features, np.eye(1005, dtype=np.float32))
    assert dataset.kind == "unchanged" and len(dataset.edges) == 16_064
    large = [str(department) for department, size in enumerate(DEPARTMENTS) if size >= 25]
    assert list(dataset.class_names) == large and len(large) == 17
    named = np.array([*dataset.class_names, "none"])[dataset.labels]  # -1 is none
    small = np.array(DEPARTMENTS)[labels] < 25
    assert np.all((named == "none") == small) and np.all(named[~small] == labels[~small].astype(str))


def test_email_is_downloaded_once_and_unpacked(
    email: tuple[np.ndarray, np.ndarray], server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = tmp_path / "served"
    served.mkdir()
    write_email(served, *email)
    names = [file.name for file in sources.FILES["email-eu-core"]]
    server.files = {f"{name}.gz": gzip.compress((served / name).read_bytes()) for name in names}
    files = tuple(RemoteFile(name, f"{server.url}/{name}.gz") for name in names)
    monkeypatch.setitem(sources.FILES, "email-eu-core", files)
    for _ in range(2):
        assert load("email-eu-core", tmp_path).num_nodes == 1005
    assert server.requests == [f"{name}.gz" for name in names]


@pytest.mark.parametrize(
    "content", [b"no gzip", gzip.compress(b"0 1\n" * 99, mtime=0)[:-9]], ids=["no gzip", "cut"]
)
def test_a_damaged_packed_file_is_not_kept(
    content: bytes, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.files["a.gz"] = content
    monkeypatch.setitem(sources.FILES, "email-eu-core", (RemoteFile("a", f"{server.url}/a.gz"),))
    folder = f"{tmp_path}/email-eu-core/raw"
    wanted = rf"^cannot fetch a from .* into {folder}: a from {server.url}/a.gz \(unpacked\)\.$"
    with pytest.raises(UserError, match=wanted):
        load("email-eu-core", tmp_path)
    assert list(Path(folder).iterdir()) == []


def test_wiki_cs_is_read_dense(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(30, 4)).astype(np.float32)
    graph = make_dataset("w", rng.integers(30, size=(80, 2)), np.arange(30) % 3, vectors, source="w")
    links: list[list[int]] = [[node] if node % 10 == 0 else [] for node in range(30)]  # some self-loops
    for a, b in graph.edges.tolist():
        links[b].append(a)
    masks: dict[str, Any] = dict.fromkeys(("train_masks", "val_masks", "stopping_masks"), [[True] * 30] * 20)
    masks["test_mask"] = [False] * 30
    content = {"features": vectors.tolist(), "labels": graph.labels.tolist(), "links": links, **masks}
    (raw_folder("wiki-cs", tmp_path) / "data.json").write_text(json.dumps(content))
    expect_counts_of(graph, "wiki-cs", monkeypatch)
    assert fingerprint(load("wiki-cs", tmp_path)) == fingerprint(graph)


def test_addresses_are_those_of_pyg() -> None:
    # They are copied, so that a missing network is reported before the slow import of PyG.
    addresses = {name: [file.url for file in sources.FILES[name]] for name in pyg_benchmarks.DATASETS}
    assert addresses.pop("email-eu-core") == EmailEUCore.urls
    assert addresses.pop("wiki-cs") == [f"{WikiCS.url}/data.json"]
    for name, [url] in addresses.items():
        kind, file = pyg_benchmarks.DATASETS[name], sources.FILES[name][0].name
        if issubclass(kind, CitationFull):
            assert url == CitationFull.url.format(kind.arguments["name"].lower())
        else:
            assert issubclass(kind, Coauthor | Amazon) and url == kind.url + file
        assert kind.remote_files is sources.FILES[name]


@pytest.mark.parametrize("name", sorted(pyg_benchmarks.DATASETS))
def test_the_page_shows_source_and_licence(name: str) -> None:
    page = (ROOT / "docs/reference/datasets.md").read_text()
    assert re.search(rf"^\| `{name}` \| [^|]+ \d{{4}} \| (MIT|none found) \|", page, re.MULTILINE)


@pytest.mark.parametrize("name", sorted(pyg_benchmarks.DATASETS))
def test_default_tasks_are_valid(name: str) -> None:
    # Geometer's two base classes on Cora-ML are too few for episodes, so the method is one without them.
    config = resolve(RunConfig.of(dataset=name, method="frozen"))
    assert config.classes == describe(name, Path()).class_split
