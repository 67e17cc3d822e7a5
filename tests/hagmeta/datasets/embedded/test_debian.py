from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from hagmeta.datasets import Dataset, embedded, load
from hagmeta.datasets.formats import npz
from tools.datasets import build_debian


@pytest.fixture(scope="module")
def debian() -> Dataset:
    return load("debian", root=Path("unused"))


def test_saving_the_embedded_graph_gives_its_file_again(debian: Dataset, tmp_path: Path) -> None:
    # What is committed is what the writer writes: no second way into the repository. Compressors differ
    # between machines, so arrays and types are compared and not bytes.
    npz.save(tmp_path / "debian.npz", debian)
    committed = Path(embedded.__file__).parent / "data" / "debian.npz"
    with np.load(committed) as ours, np.load(tmp_path / "debian.npz") as again:
        assert ours.files == again.files
        for key in ours.files:
            assert ours[key].dtype == again[key].dtype
            np.testing.assert_array_equal(ours[key], again[key])


DUMP = """\
Package: a
Version: 2
Section: net
Depends: b (>= 1.0), c:any | d [amd64], missing
Description: The quick Tool, tool
 a long tale that is not read: Depends on nothing

Package: a
Version: 1
Section: net
Depends: e
Description: an older version

Package: b
Section: net
Pre-Depends: a
Recommends: b
Description: A quick tool

Package: c
Section: web
Description: quick

Package: d
Section: web
Suggests: e, x
Description: tool

Package: e
Section: web

Package: lonely
Section: rare
Depends: a
Description: quick tool

Package: x
Section: non-free/web
Depends: a
Description: quick tool
"""


@pytest.fixture
def small_archive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build_debian, "MIN_PACKAGES_PER_SECTION", 2)


@pytest.mark.usefixtures("small_archive")
def test_build_follows_its_rules() -> None:
    built = build_debian.build(DUMP)
    # Nodes a to e: "lonely" is alone in its section and "x" is not of main. The first version counts.
    assert built.class_names == ("net", "web")
    assert built.labels.tolist() == [0, 0, 1, 1, 1]
    # Alternatives count, versions and architectures do not, a package is no neighbour of itself.
    assert built.edges.tolist() == [[0, 1], [0, 2], [0, 3], [3, 4]]
    # "quick" and "tool" are in three descriptions; "a" and "the" in fewer.
    assert built.features.toarray().tolist() == [[1, 1], [1, 1], [1, 0], [0, 1], [0, 0]]


@pytest.mark.usefixtures("small_archive")
def test_build_keeps_the_best_connected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build_debian, "MAX_PACKAGES_PER_SECTION", 1)
    monkeypatch.setattr(build_debian, "MIN_PACKAGES_PER_WORD", 1)
    built = build_debian.build(DUMP)
    # Of the web packages d has two neighbours, c and e one each. The words: quick, the, tool.
    assert built.edges.tolist() == [[0, 1]]
    assert built.features.toarray().tolist() == [[1, 1, 1], [0, 0, 1]]


def test_build_command_reads_a_saved_dump(tmp_path: Path) -> None:
    # 100 packages in a chain, so that the real limits hold.
    stanzas = [
        f"Package: p{i:03}\nSection: net\nDepends: p{i + 1:03}\nDescription: tool\n" for i in range(100)
    ]
    (tmp_path / "dump").write_text("\n".join(stanzas))
    assert "100 nodes, 99 edges, 1 features, 1 classes" in run_builder(tmp_path).stdout
    assert len(npz.load(tmp_path / "out.npz", "again").edges) == 99


def run_builder(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tools.datasets.build_debian", "--dump", "dump", "out.npz"]
    root = Path(__file__).resolve().parents[4]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, env={"PYTHONPATH": str(root)}, check=False
    )
