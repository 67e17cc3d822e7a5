"""`hagmeta fit`, `learn` and `predict` keep a learner in a file."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hagmeta import Dataset, Learner
from hagmeta.__main__ import main
from hagmeta.datasets import npz
from tests.hagmeta.learner.playing import clear_graph

FIT = ["--method", "sgc-ncm", "--set", "features=propagated", "--device", "cpu"]


def write(folder: Path, graph: Dataset, labels: dict[str, str] | None, rows: range) -> list[str]:
    """Write the first nodes of a graph as CSV files; return the options that name them."""
    words = [f"word{column}" for column in range(graph.num_features)]
    dense = np.asarray(graph.features.toarray())  # type: ignore[union-attr]
    ids = list(graph.node_ids or ())
    nodes, edges = folder / "nodes.csv", folder / "edges.csv"
    with nodes.open("w") as file:
        table = csv.writer(file)
        table.writerow(["id", *(["label"] if labels is not None else []), "text"])
        for row in rows:
            own = [labels.get(ids[row], "")] if labels is not None else []
            table.writerow([ids[row], *own, " ".join(np.array(words)[dense[row] > 0])])
    there = [(ids[a], ids[b]) for a, b in graph.edges if a in rows and b in rows]
    edges.write_text("".join(f"{a},{b}\n" for a, b in there))
    return ["--nodes", str(nodes), "--edges", str(edges), "--text", "text"]


def labelled(graph: Dataset, counts: dict[str, int]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, count in counts.items():
        rows = np.flatnonzero(graph.labels == graph.class_names.index(name))[:count]
        found |= {f"n{row}": name for row in rows}
    return found


def test_a_learner_in_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    graph, learner, out = clear_graph(), tmp_path / "week1.hagmeta", tmp_path / "predicted.csv"
    first = labelled(graph, {"0": 8, "1": 8, "2": 8})
    files = write(tmp_path, graph, first, range(150))
    assert main(["fit", *files, "--out", str(learner), *FIT]) == 0
    assert capsys.readouterr().out.endswith(f"wrote {learner}: 3 classes, 24 labels\n")
    later = first | labelled(graph, {"3": 4, "4": 2})
    files = write(tmp_path, graph, later, range(200))
    again = tmp_path / "week2.hagmeta"
    assert main(["learn", str(learner), *files, "--out", str(again), "--device", "cpu"]) == 0
    assert capsys.readouterr().out.endswith(f"new classes: 3, 4\nwrote {again}: 5 classes, 30 labels\n")
    files = write(tmp_path, graph, None, range(200))  # no label column
    assert main(["predict", str(again), *files, "--out", str(out), "--device", "cpu"]) == 0
    rows = list(csv.DictReader(out.open()))
    assert [row["node"] for row in rows] == list(graph.node_ids or ())
    known = [row for row, label in zip(rows, graph.labels, strict=True) if label < 5]
    truth = [graph.class_names[label] for label in graph.labels if label < 5]
    assert np.mean([row["class"] == name for row, name in zip(known, truth, strict=True)]) > 0.9
    assert all(0.2 <= float(row["probability"]) <= 1 for row in rows)
    assert main(["predict", str(again), *files, "--out", str(out), "--all", "--device", "cpu"]) == 0
    assert len(out.read_text().splitlines()) == 1 + 5 * 200
    assert Learner.load(learner, device="cpu").classes_ == ["0", "1", "2"]  # it did not change


def test_graphs_in_npz_files_keep_ids_and_names(tmp_path: Path) -> None:
    graph = clear_graph()
    file, learner = tmp_path / "graph.npz", tmp_path / "learner"
    npz.save(file, graph)
    assert main(["fit", "--dataset", str(file), "--out", str(learner), *FIT]) == 0
    assert Learner.load(learner, device="cpu").predict(graph, ["n3"]).tolist() == ["3"]


def test_labels_without_a_class_are_no_lesson(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    graph, learner = clear_graph(), tmp_path / "learner"
    files = write(tmp_path, graph, labelled(graph, {"0": 4, "1": 4}), range(200))
    assert main(["fit", *files, "--out", str(learner), *FIT]) == 0
    before = learner.read_bytes()
    capsys.readouterr()
    files = write(tmp_path, graph, {}, range(200))
    assert main(["learn", str(learner), *files]) == 2
    assert "error: nodes has no labels; expected labels of the classes to learn." in capsys.readouterr().err
    assert learner.read_bytes() == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fit", "--out", "x"], "expected either --nodes and --edges, or --dataset."),
        (["fit", "--dataset", "nobody", "--out", "x"], "unknown dataset 'nobody'"),
        (["fit", "--dataset", "debian"], "the following arguments are required: --out"),
        (["fit", "--dataset", "debian", "--out", "no/x"], "--out no/x cannot be written"),
        (["fit", "--dataset", "debian", "--out", "x", "--set", "rehearsal=1"], "rehearsal is not a setting"),
        (["fit", "--dataset", "debian", "--out", "x", "--method", "joint"], "joint is an oracle"),
        (["predict", "none", "--dataset", "debian", "--out", "x"], "none"),
        (["--seeds", "1", "learn"], "learn must be the first argument; see"),
    ],
)
def test_bad_options_are_refused_in_one_line(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1 and error.startswith("error: ")
    assert not list(tmp_path.iterdir())
