"""`hagmeta fit`, `learn` and `predict` keep a learner in a file."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hagmeta import Dataset, Learner
from hagmeta.__main__ import main
from hagmeta.datasets.formats import npz
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
    strange = [float(row["unknown"]) > 0.5 for row in rows]
    assert np.mean(np.array(strange)[graph.labels >= 5]) > 0.9
    named = [*files, "--out", str(out), "--unknown", "none of them", "--device", "cpu"]
    assert main(["predict", str(again), *named]) == 0
    expected = ["none of them" if it_is else row["class"] for row, it_is in zip(rows, strange, strict=True)]
    assert [row["class"] for row in csv.DictReader(out.open())] == expected
    capsys.readouterr()
    assert main(["predict", str(again), *named[:-3], "4", "--device", "cpu"]) == 2
    assert "error: --unknown is '4', a class that the learner knows" in capsys.readouterr().err
    assert main(["predict", str(again), *files, "--out", str(out), "--all", "--device", "cpu"]) == 0
    assert len(out.read_text().splitlines()) == 1 + 5 * 200
    assert Learner.load(learner, device="cpu").classes_ == ["0", "1", "2"]  # it did not change


def test_predict_never_replaces_an_input(
    saved: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    learner, own = tmp_path / "learner", tmp_path / "predicted.csv"
    learner.write_bytes(saved)
    files = write(tmp_path, clear_graph(), None, range(200))
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    for out in before:
        assert main(["predict", str(learner), *files, "--out", str(out), "--device", "cpu"]) == 2
        assert f"error: --out {out} is also an input" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before
    for _ in range(2):  # its own table is replaced
        assert main(["predict", str(learner), *files, "--out", str(own), "--device", "cpu"]) == 0
    assert main(["learn", str(learner), *files, "--out", str(own), "--device", "cpu"]) == 2
    assert f"error: --out {own} exists and is not a saved learner" in capsys.readouterr().err
    forced = ["predict", str(learner), *files, "--out", str(learner), "--force", "--device", "cpu"]
    assert main(forced) == 0
    assert learner.read_bytes() == own.read_bytes()


def test_ids_in_predictions_are_those_in_the_table(saved: bytes, tmp_path: Path) -> None:
    learner, nodes, out = tmp_path / "learner", tmp_path / "nodes.csv", tmp_path / "out.csv"
    learner.write_bytes(saved)
    files = write(tmp_path, clear_graph(), None, range(200))
    rows = list(csv.reader(nodes.open(newline="")))
    odd = {
        "n190": " n190 ",
        "n191": "n191\t",
        "n192": 'a,"b"',
        "n193": "a\nb",
        "n194": "a\rb",
        "n195": "=1+1",
    }
    with nodes.open("w", newline="") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL).writerows([odd.get(row[0], row[0]), *row[1:]] for row in rows)
    edges = tmp_path / "edges.csv"
    kept = [line for line in edges.read_text().splitlines() if not re.search("n19[2-5]", line)]
    edges.write_text("\n".join(kept))  # they name the first two without blanks
    assert main(["predict", str(learner), *files, "--out", str(out), "--device", "cpu"]) == 0
    given = [row["id"] for row in csv.DictReader(nodes.open(newline=""))]
    assert [row["node"] for row in csv.DictReader(out.open(newline=""))] == given
    assert set(odd.values()) < set(given)


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
    for labels, problem in (({}, "no labels"), (None, "there is no column 'label'")):
        files = write(tmp_path, graph, labels, range(200))
        assert main(["learn", str(learner), *files]) == 2
        assert problem in capsys.readouterr().err
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


Spoil = Callable[[Path, Path, Path], Any]  # from a learner, a node table and an edge list
BAD_FILES: dict[str, tuple[Spoil, str]] = {
    "no learner": (lambda learner, *_: learner.unlink(), "learner"),
    "a folder": (lambda learner, *_: (learner.unlink(), learner.mkdir()), "learner"),
    "an empty learner": (lambda learner, *_: learner.write_bytes(b""), "not a saved learner, or damaged"),
    "half a learner": (
        lambda learner, *_: learner.write_bytes(learner.read_bytes()[:2000]),
        "not a saved learner, or damaged",
    ),
    "a table for a learner": (
        lambda learner, nodes, _: learner.write_bytes(nodes.read_bytes()),
        "not a saved learner, or damaged",
    ),
    "a graph for a learner": (
        lambda learner, *_: npz.save(learner, clear_graph()),
        "not a saved learner; expected a file that",
    ),
    "no node table": (lambda _, nodes, __: nodes.unlink(), "nodes.csv"),
    "an empty node table": (lambda _, nodes, __: nodes.write_text(""), "nodes.csv"),
    "a node table without ids": (
        lambda _, nodes, __: nodes.write_text(nodes.read_text().replace("id,", "name,", 1)),
        "nodes.csv",
    ),
    "a node twice": (lambda _, nodes, __: nodes.write_text(nodes.read_text() + "n3,word1\n"), "n3"),
    "bytes that are no text": (lambda _, nodes, __: nodes.write_bytes(b"id,text\n\xff\xfe,a\n"), "nodes.csv"),
    "no edge list": (lambda _, __, edges: edges.unlink(), "edges.csv"),
    "an edge with one end": (lambda _, __, edges: edges.write_text("n1,n2\nn3\n"), "edges.csv"),
    "an edge to nobody": (lambda _, __, edges: edges.write_text("n1,n2\nn3,nobody\n"), "nobody"),
    "other words": (
        lambda _, nodes, __: nodes.write_text(nodes.read_text().replace("word", "mot")),
        "none of the features that the learner was fitted on",
    ),
    "other nodes": (
        lambda _, nodes, edges: [
            each.write_text(re.sub(r"\bn(?=\d)", "m", each.read_text())) for each in (nodes, edges)
        ],
        "nodes has no labelled node of '0', '1'",
    ),
}


@pytest.mark.parametrize("kind", BAD_FILES)
def test_bad_files_are_refused_in_one_line(
    kind: str, saved: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spoil, message = BAD_FILES[kind]
    learner, out = tmp_path / "learner", tmp_path / "out.csv"
    learner.write_bytes(saved)
    files = write(tmp_path, clear_graph(), None, range(200))
    spoil(learner, tmp_path / "nodes.csv", tmp_path / "edges.csv")
    assert main(["predict", str(learner), *files, "--out", str(out), "--device", "cpu"]) == 2
    error = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("note: ")]
    assert len(error) == 1 and error[0].startswith("error: ") and message in error[0]
    assert not out.exists()


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The content of a learner file."""
    folder = tmp_path_factory.mktemp("saved")
    files = write(folder, clear_graph(), labelled(clear_graph(), {"0": 4, "1": 4}), range(200))
    assert main(["fit", *files, "--out", str(folder / "learner"), *FIT]) == 0
    return (folder / "learner").read_bytes()
