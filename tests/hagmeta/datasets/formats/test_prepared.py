"""A dataset that is slow to load is prepared once; nothing half-made or out of date is ever believed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
import torch

from hagmeta import datasets
from hagmeta.datasets import Dataset, fingerprint, load, prepared, synthetic
from hagmeta.datasets.formats import npz
from hagmeta.sparse.graph import Graph
from tests.waiting import HANG

WORDS = "synthetic:nodes=1200,edges=5000,features=150,classes=14,seed=1"
DENSE = f"{WORDS},dense=1"
CPU = torch.device("cpu")
START = "import os, sys; from pathlib import Path; from hagmeta import datasets; datasets.LARGE = 0\n"


@pytest.fixture(autouse=True)
def everything_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets, "LARGE", 0)


def fresh(name: str) -> Dataset:
    return synthetic.generate(name, synthetic.parse(name.partition(":")[2]))


def folders(root: Path) -> list[Path]:
    """All that is in the folder of prepared ones, but for the locks."""
    return [path for path in (root / "prepared").iterdir() if path.suffix != ".lock"]


def start(root: Path, program: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", START + program, WORDS, str(root)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("name", [WORDS, DENSE])
def test_what_is_prepared_is_what_was_read(name: str, tmp_path: Path) -> None:
    plain = fresh(name)
    for dataset in (load(name, tmp_path), load(name, tmp_path)):
        assert dataset.name == name and dataset.class_names == plain.class_names
        # Both by what was noted and by the arrays themselves, without what was noted.
        assert fingerprint(dataset) == fingerprint(replace(dataset)) == fingerprint(plain)
        assert (dataset.adjacency != plain.adjacency).nnz == 0
        for part in ("data", "indices", "indptr"):
            ours, theirs = getattr(dataset.adjacency, part), getattr(plain.adjacency, part)
            assert ours.dtype == theirs.dtype and np.array_equal(ours, theirs)


@pytest.mark.parametrize("name", [WORDS, DENSE])
@pytest.mark.filterwarnings("error")  # torch warns of arrays that it may not write to
def test_arrays_are_mapped_and_a_graph_takes_them_so(name: str, tmp_path: Path) -> None:
    load(name, tmp_path)
    dataset = load(name, tmp_path)
    adjacency = dataset.adjacency
    arrays = [dataset.edges, dataset.labels, adjacency.data, adjacency.indices, adjacency.indptr]
    if scipy.sparse.issparse(dataset.features):
        arrays += [dataset.features.data, dataset.features.indices, dataset.features.indptr]
    else:
        arrays.append(dataset.features)
    for array in arrays:
        while not isinstance(array, np.memmap):
            array = array.base
    before = {path: path.read_bytes() for path in folders(tmp_path)[0].iterdir()}
    Graph(dataset, CPU)
    dataset.labels[:] = 0  # whoever does this harms nobody else
    assert before == {path: path.read_bytes() for path in folders(tmp_path)[0].iterdir()}


@pytest.mark.slow
def test_processes_that_come_first_together_prepare_once(tmp_path: Path) -> None:
    program = """
print("ready", flush=True)
sys.stdin.readline()
print(datasets.fingerprint(datasets.load(sys.argv[1], Path(sys.argv[2]))))
"""
    processes = [start(tmp_path, program) for _ in range(2)]
    for process in processes:
        assert process.stdout and process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin
        process.stdin.write("\n")
        process.stdin.flush()
    outputs = [process.communicate(timeout=HANG) for process in processes]
    assert [out.strip() for out, _ in outputs] == 2 * [fingerprint(fresh(WORDS))]
    assert sum(said.count("Preparing") for _, said in outputs) == 1
    assert len(folders(tmp_path)) == 1


@pytest.mark.parametrize(
    "array", [3, pytest.param(99, marks=pytest.mark.slow)]
)  # while it is written; when all is there but the rename
def test_what_a_killed_process_leaves_is_not_believed(array: int, tmp_path: Path) -> None:
    program = f"""
import numpy, pathlib, signal
save, calls = numpy.save, 0
def kill(): os.kill(os.getpid(), signal.SIGKILL)
def killed(file, values):
    global calls
    calls += 1
    save(file, values[: len(values) // 2] if calls == {array} else values)
    if calls == {array}:
        file.flush()
        kill()
numpy.save = killed
pathlib.Path.rename = lambda *_: kill()
datasets.load(sys.argv[1], Path(sys.argv[2]))
"""
    process = start(tmp_path, program)
    process.communicate(timeout=HANG)
    assert process.returncode == -signal.SIGKILL
    (left,) = folders(tmp_path)
    assert left.suffix == ".partial"
    assert fingerprint(load(WORDS, tmp_path)) == fingerprint(fresh(WORDS))
    (folder,) = folders(tmp_path)  # what was left is gone
    assert folder.suffix != ".partial"


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: os.truncate(folder / "edges.npy", 1000),
        lambda folder: (folder / "adjacency_indices.npy").unlink(),
        lambda folder: (folder / "labels.npy").write_bytes(b"\0" * (folder / "labels.npy").stat().st_size),
        lambda folder: os.truncate(folder / prepared.CONTENTS, 30),
        lambda folder: (folder / prepared.CONTENTS).write_text("[]"),
        lambda folder: (folder / prepared.CONTENTS).unlink(),
    ],
)
def test_a_damaged_folder_is_made_again_and_that_is_said(
    damage: Callable[[Path], object], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    load(WORDS, tmp_path)
    (folder,) = folders(tmp_path)
    damage(folder)
    capfd.readouterr()
    assert fingerprint(load(WORDS, tmp_path)) == fingerprint(fresh(WORDS))
    said = capfd.readouterr().err
    assert said.count("\n") == 1 and f"{folder} is damaged" in said
    load(WORDS, tmp_path)
    assert capfd.readouterr().err == ""


def test_a_changed_file_is_noticed(graph: Dataset, tmp_path: Path) -> None:
    name, path = f"npz:{tmp_path}/g.npz", tmp_path / "g.npz"
    npz.save(path, graph)
    assert fingerprint(load(name, tmp_path)) == fingerprint(graph)
    other = replace(graph, labels=graph.labels[::-1].copy())
    npz.save(path, other)
    assert fingerprint(load(name, tmp_path)) == fingerprint(other)
    os.utime(path, ns=(1, 1))  # the same content with another date is read again; that costs time, not truth
    assert fingerprint(load(name, tmp_path)) == fingerprint(other)
    assert len(folders(tmp_path)) == 3


def test_other_settings_numpy_or_format_are_other_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (WORDS, DENSE, WORDS.replace("seed=1", "seed=2")):
        load(name, tmp_path)
    assert len(folders(tmp_path)) == 3
    monkeypatch.setattr(np, "__version__", "99")
    load(WORDS, tmp_path)
    assert len(folders(tmp_path)) == 4
    monkeypatch.setattr(prepared, "FORMAT", 99)
    load(WORDS, tmp_path)
    assert len(folders(tmp_path)) == 5


def test_one_graph_under_two_names_is_prepared_once(
    graph: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    npz.save(tmp_path / "g.npz", graph)
    monkeypatch.chdir(tmp_path)
    names = ["npz:g.npz", f"npz:{tmp_path}/g.npz"]
    assert [load(name, tmp_path).name for name in names] == names
    assert len(folders(tmp_path)) == 1


def test_a_full_disk_is_said_in_one_line(tmp_path: Path) -> None:
    program = """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
print(datasets.fingerprint(datasets.load(sys.argv[1], Path(sys.argv[2]))))
"""
    out, said = start(tmp_path, program).communicate(timeout=HANG)
    assert out.strip() == fingerprint(fresh(WORDS))
    assert [line.split()[0] for line in said.splitlines()] == ["Preparing", f"{WORDS}:"]
    assert "cannot write prepared arrays" in said and "continuing without them" in said
    assert folders(tmp_path) == []


def test_small_and_embedded_datasets_write_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load("debian", tmp_path)
    monkeypatch.undo()
    load(WORDS, tmp_path)
    assert list(tmp_path.iterdir()) == []
