from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hagmeta.common.errors import UserError
from hagmeta.datasets import Dataset, describe, fingerprint, load, names
from hagmeta.datasets.downloads import sources


def test_every_name_is_described_without_being_there(tmp_path: Path) -> None:
    for name in names():
        info = describe(name, tmp_path)
        assert info.name == name and info.description and info.source
        # The split must use every class, or a run would stop with classes left over.
        assert info.class_split is not None and sum(info.class_split) == info.classes
        assert info.n_way is not None and info.k_shot is not None
        assert info.on_disk == (name not in sources.FILES)
    assert list(tmp_path.iterdir()) == []


def test_downloaded_dataset_is_on_disk_when_all_its_files_are(tmp_path: Path) -> None:
    raw = tmp_path / "cora-full/cora/raw"
    raw.mkdir(parents=True)
    assert not describe("cora-full", tmp_path).on_disk
    (raw / "cora.npz").touch()
    assert describe("cora-full", tmp_path).on_disk


def test_files_at_hand_are_described_by_their_presence(tmp_path: Path) -> None:
    (tmp_path / "g.npz").touch()
    assert describe(f"npz:{tmp_path}/g.npz", tmp_path).on_disk
    assert not describe(f"npz:{tmp_path}/h.npz", tmp_path).on_disk
    assert not describe(f"mat:{tmp_path}/g", tmp_path).on_disk
    assert describe(f"mat:{tmp_path}/g", tmp_path).class_split is None


@pytest.mark.parametrize("name", ["debain", "mat:", "npz:", "synthetic:", "", "csv:x:y"])
def test_unknown_name_is_said_in_one_line(name: str, tmp_path: Path) -> None:
    for ask in (load, describe):
        with pytest.raises(UserError, match=f"^unknown dataset '{name}'") as error:
            ask(name, tmp_path)
        assert "FILE.npz" in str(error.value) and "\n" not in str(error.value)


def test_describing_does_not_import_torch() -> None:
    # It takes seconds, and a dry run should not.
    code = "import sys, pathlib, hagmeta.datasets as d; [d.describe(n, pathlib.Path()) for n in d.names()]"
    root = Path(__file__).resolve().parents[3]
    subprocess.run([sys.executable, "-c", f"{code}; assert 'torch' not in sys.modules"], cwd=root, check=True)


def test_fingerprint_sees_every_array_and_not_the_name(graph: Dataset) -> None:
    labels = graph.labels.copy()
    labels[0] += 1
    features = graph.features.copy()
    features.data[0] += 1
    same = [graph, replace(graph, name="other", class_names=("x",) * 5)]
    other = [
        replace(graph, edges=graph.edges[1:]),
        replace(graph, labels=labels),
        replace(graph, features=features),
        replace(graph, features=graph.features.toarray()),
    ]
    assert len({fingerprint(dataset) for dataset in same}) == 1
    assert len({fingerprint(dataset) for dataset in same + other}) == 5


def test_fingerprint_does_not_depend_on_index_width(graph: Dataset) -> None:
    features = graph.features.copy()
    features.indptr, features.indices = features.indptr.astype(np.int64), features.indices.astype(np.int64)
    assert fingerprint(replace(graph, features=features)) == fingerprint(graph)
