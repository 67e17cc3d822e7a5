from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from hagmeta.__main__ import main
from hagmeta.datasets import UNLABELLED, Dataset
from hagmeta.datasets.formats import npz

NODES = "id,label,text\na,red,An Apple tree\nb,red,apple pie\nc,blue,apple sky\nd,blue,a SKY\ne,red,Sky sky\n"
EDGES = "source,target\na,b\nb,c\nc,d\nd,e\n"
NUMBERS = "id,label,x,y\na,0,1,2.5\nb,1,-1e3,0\n"
PAIR = "a,b\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(nodes: str | bytes | None, edges: str | bytes | None, *options: str) -> int:
    for name, content in (("nodes.csv", nodes), ("edges.csv", edges)):
        if content is not None:
            Path(name).write_bytes(content.encode() if isinstance(content, str) else content)
    files = ["--edges", "edges.csv", "--nodes", "nodes.csv", "--out", "g.npz"]
    return main(["datasets", "convert", *files, *options])


def converted(nodes: str | bytes, edges: str | bytes, *options: str) -> Dataset:
    assert run(nodes, edges, *options) == 0
    return npz.load(Path("g.npz"), "g")


def test_words_become_sparse_features(capsys: pytest.CaptureFixture[str]) -> None:
    graph = converted(NODES, EDGES, "--text", "text")
    assert graph.edges.tolist() == [[0, 1], [1, 2], [2, 3], [3, 4]]
    assert graph.class_names == ("blue", "red") and graph.labels.tolist() == [1, 1, 0, 0, 1]
    # "apple" and "sky" are used by three nodes; "a" by one, and repeats count once.
    assert graph.features.toarray().tolist() == [[1, 0], [1, 0], [1, 1], [0, 1], [0, 1]]
    assert capsys.readouterr().out.splitlines() == [
        "nodes.csv: 2 words of column 'text' in at least 3 nodes; 0 nodes without any of them",
        "edges.csv: line 1 skipped as a header: 'source', 'target'",
        "edges.csv: 4 edges read, 4 kept",
        "wrote g.npz: 5 nodes, 4 edges, 2 features, 2 classes",
        "to describe it, run: python -m hagmeta datasets g.npz",
    ]


def test_numeric_columns_become_dense_features() -> None:
    graph = converted(NUMBERS, PAIR)
    assert isinstance(graph.features, np.ndarray)
    assert graph.features.tolist() == [[1, 2.5], [-1000, 0]]
    assert converted(NUMBERS, PAIR, "--numeric", "y").features.tolist() == [[2.5], [0]]


def test_what_is_left_out_is_counted(capsys: pytest.CaptureFixture[str]) -> None:
    nodes = "key,kind,x,name\na,p,1,n\nb,q,2,n\nc,p,3,n\n"
    edges = "a,b,0.5\nb,a,0.5\na,b,1\na,a,1\nc,b,1\n"
    graph = converted(nodes, edges, "--id", "key", "--label", "kind", "--numeric", "x")
    assert graph.edges.tolist() == [[0, 1], [1, 2]]
    assert capsys.readouterr().out.splitlines()[:3] == [
        "nodes.csv: columns not used: 'name'",
        "edges.csv: 1 column after the first two not used",
        "edges.csv: 5 edges read, 2 kept (dropped: 1 self-loop, 2 duplicates)",
    ]


@pytest.mark.parametrize("empty", ["", " ", "-1"])
def test_nodes_without_a_label_are_kept_as_context(empty: str, capsys: pytest.CaptureFixture[str]) -> None:
    graph = converted(f"id,label,x\na,1,1\nb,{empty},2\nc,0,3\n", "a,b\nb,c\n")
    assert graph.labels.tolist() == [1, UNLABELLED, 0] and graph.class_names == ("0", "1")
    assert graph.edges.tolist() == [[0, 1], [1, 2]] and graph.features.tolist() == [[1], [2], [3]]
    assert capsys.readouterr().out.splitlines()[0] == "nodes.csv: 1 node without a label; kept as context"


@pytest.mark.parametrize(
    ("nodes", "edges"),
    [
        ("\ufeff" + NUMBERS, "\ufeff" + PAIR),  # a byte order mark
        (NUMBERS.replace("\n", "\r\n"), "a,b\r\n"),
        (NUMBERS.replace("\n", "\n\n"), "\n\na,b"),  # empty lines; none at the end
        ('"id","label","x","y"\n"a",0,"1",2.5\nb , 1 ,-1e3, 0\n', ' a,"b"\n'),
    ],
)
def test_the_same_graph_however_it_is_written(nodes: str, edges: str) -> None:
    graph = converted(nodes, edges)
    assert graph.features.tolist() == [[1, 2.5], [-1000, 0]] and graph.edges.tolist() == [[0, 1]]
    assert graph.class_names == ("0", "1")
    assert graph.node_ids is not None and [node.strip() for node in graph.node_ids] == ["a", "b"]


def test_a_tsv_has_tabs(folder: Path) -> None:
    (folder / "n.tsv").write_text(NUMBERS.replace(",", "\t"))
    (folder / "e.tsv").write_text("a\tb\n")
    files = ["--edges", "e.tsv", "--nodes", "n.tsv", "--out", "g.npz"]
    assert main(["datasets", "convert", *files]) == 0


def test_labels_that_are_numbers_keep_their_order() -> None:
    rows = "".join(f"n{label},{label},1\n" for label in (10, 9, 100))
    assert converted(f"id,label,x\n{rows}", "n9,n10\n").class_names == ("9", "10", "100")


@pytest.mark.parametrize("option", ["--nodes", "--edges", "--out"])
def test_a_fifo_is_refused_at_once(option: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # To open it would wait for ever; to replace it would cut off who reads from it.
    os.mkfifo(folder / "pipe.npz")
    assert run(NUMBERS, PAIR, option, "pipe.npz") == 2
    assert "it is not a regular file" in capsys.readouterr().err
    assert (folder / "pipe.npz").is_fifo()


def test_words_are_those_of_any_script() -> None:
    nodes = "id,label,text\n" + "".join(f"{i},{i % 2},Über_граф {i}\n" for i in range(3))
    assert converted(nodes, "0,1\n", "--text", "text").num_features == 2


def text(cell: str) -> str:
    return NODES.replace("An Apple tree", cell)


Case = tuple[str | bytes | None, str | bytes | None, list[str], str]  # nodes, edges, options, what is said
WORDS = ["--text", "text"]


def node(row: str) -> str:
    return f"{NUMBERS}{row}\n"


BAD: dict[str, Case] = {
    "unknown node": (
        NUMBERS,
        "a,b\na,zz\n",
        [],
        "edges.csv: line 2: column 2 holds 'zz'; expected one of the 2 ids in the node table",
    ),
    "unknown node in line 1": (NUMBERS, "zz,a\n", [], "edges.csv: line 1: column 1 holds 'zz'"),
    "empty end": (NUMBERS, "a,b\n,a\n", [], "edges.csv: line 2: column 1 holds ''"),
    "long unknown node": (NUMBERS, f"a,b\na,{'z' * 500}\n", [], "column 2 holds 'zzzz"),
    "one end": (NUMBERS, "a\nb\n", [], "edges.csv: line 1: there is only one cell, 'a'; expected two"),
    "spaces between": (NUMBERS, "a b\n", [], "edges.csv: line 1: there is only one cell, 'a b'"),
    "ragged edges": (NUMBERS, "a,b\na,b,c\n", [], "edges.csv: line 2: found 3 cells; expected 2"),
    "empty edges": (NUMBERS, "\n\n", [], "edges.csv: the file is empty"),
    "no edges": (NUMBERS, "source,target\n", [], "edges.csv: 0 edges read, 0 kept; expected at least one"),
    "self-loops": (NUMBERS, "a,a\nb,b\n", [], "edges.csv: 2 edges read, 0 kept (dropped: 2 self-loops);"),
    "missing edges": (NUMBERS, None, [], "edges.csv: no such file."),
    "NUL": (NUMBERS, "a,b\na\0,b\n", [], "edges.csv: line 2: found a NUL character"),
    "gzip": (NUMBERS, b"\x1f\x8b\x08", [], "edges.csv: line 1: the byte 0x8b is not UTF-8"),
    "no such column": (
        *(NUMBERS.replace("label", "class"), PAIR, []),
        "nodes.csv: line 1: there is no column 'label'; the header has 'id', 'class'",
    ),
    "no such text": (NODES, EDGES, ["--text", "txt"], "there is no column 'txt'"),
    "no name for text": (NUMBERS, PAIR, ["--text", ""], "there is no column ''"),
    "no such numeric": (NUMBERS, PAIR, ["--numeric", "x", "z"], "there is no column 'z'"),
    "column twice": (NUMBERS.replace("y", "x"), PAIR, [], "there are 2 columns 'x'"),
    "semicolons": (NUMBERS.replace(",", ";"), PAIR, [], "'id;label;x;y' only. Separate cells with commas"),
    "no header": (NUMBERS.partition("\n")[2], PAIR, [], "the header has 'a', '0', '1', '2.5'"),
    "unnamed column": (",id,label\n0,a,0\n1,b,1\n", PAIR, [], "column 1 has no name"),
    "no features": (
        "id,label\na,0\nb,1\n",
        PAIR,
        [],
        "no feature column; the only columns are 'id' and 'label'",
    ),
    "label as feature": (NUMBERS, PAIR, ["--numeric", "x", "label"], "column 'label' is given twice"),
    "id as label": (NUMBERS, PAIR, ["--label", "id"], "--id and --label are both 'id'"),
    "two kinds": (NODES, EDGES, [*WORDS, "--numeric", "x"], "not allowed with argument"),
    "empty nodes": ("", PAIR, [], "nodes.csv: the file is empty"),
    "header alone": ("id,label,x\n", PAIR, [], "nodes.csv: column 'label' holds no labels"),
    "missing nodes": (None, PAIR, [], "nodes.csv: no such file."),
    "latin-1": (node("c,1,é,1").encode("latin-1"), PAIR, [], "nodes.csv: line 4: the byte 0xe9 is not UTF-8"),
    "utf-16": (NUMBERS.encode("utf-16"), PAIR, [], "nodes.csv: line 1: the byte 0xff is not UTF-8"),
    "id twice": (node("a,1,1,1"), PAIR, [], "nodes.csv: line 4: column 'id' holds 'a', as does line 2"),
    "empty id": (node(" ,1,1,1"), PAIR, [], "nodes.csv: line 4: column 'id' is empty"),
    "short row": (node("c,1,1"), PAIR, [], "nodes.csv: line 4: found 3 cells; expected 4"),
    "long row": (node("c,1,1,1,1"), PAIR, [], "nodes.csv: line 4: found 5 cells; expected 4"),
    "NaN": (node("c,1,nan,1"), PAIR, [], "nodes.csv: line 4: column 'x' holds 'nan'; expected a number"),
    "infinite": (node("c,1,1,-inf"), PAIR, [], "nodes.csv: line 4: column 'y' holds '-inf'"),
    "over 32 bits": (node("c,1,1,1e39"), PAIR, [], "nodes.csv: line 4: column 'y' holds '1e39'"),
    "empty number": (node("c,1,,1"), PAIR, [], "nodes.csv: line 4: column 'x' holds ''"),
    "decimal comma": (node('c,1,"1,5",1'), PAIR, [], "nodes.csv: line 4: column 'x' holds '1,5'"),
    "text for a number": (NODES, EDGES, [], "line 2: column 'text' holds 'An Apple tree'; expected a number"),
    "damaged, no label": (node("c,,many,1"), PAIR, [], "nodes.csv: line 4: column 'x' holds 'many'"),
    "one class": (NUMBERS.replace("b,1", "b,0"), PAIR, [], "column 'label' holds only one class, '0'"),
    "no label": ("id,label,x\na,,1\nb, ,1\n", PAIR, [], "column 'label' holds no labels"),
    "no common word": (text("x").replace("sky", "sea"), EDGES, WORDS, "no word"),
    "open quote": (text('"An apple'), EDGES, WORDS, "nodes.csv: line 2: a quote is opened here and never"),
    "stray quote": (text('"An" apple'), EDGES, WORDS, "nodes.csv: line 2: a quote is out of place"),
    "huge cell": (
        text("a" * 200_000),
        EDGES,
        WORDS,
        "nodes.csv: line 2: a cell is too long; expected at most 131,072",
    ),
    "a cell of two lines": (text('"An\nx"') + "a,red,x\n", EDGES, WORDS, "line 8: column 'id' holds 'a'"),
    "not .npz": (NUMBERS, PAIR, ["--out", "nodes.csv"], "--out nodes.csv: expected a file name that ends"),
    "no folder": (
        NUMBERS,
        PAIR,
        ["--out", "no/g.npz"],
        "--out no/g.npz cannot be written: there is no folder",
    ),
    "long names": (NUMBERS, PAIR, ["--out", f"{'a' * 300}.npz"], "cannot be written: File name too long"),
    "long nodes": (NUMBERS, PAIR, ["--nodes", "a" * 300], "cannot be read (File name too long)"),
    "one file": (NUMBERS, PAIR, ["--edges", "./nodes.csv"], "--edges and --nodes are the same file"),
    "a folder": (NUMBERS, PAIR, ["--nodes", "."], ".: cannot be read (it is a folder)"),
    "a device": (NUMBERS, PAIR, ["--nodes", "/dev/zero"], "cannot be read (it is not a regular file)"),
    "NUL in a name": (NUMBERS, PAIR, ["--edges", "e\0"], "no such file"),
    "NUL in --out": (NUMBERS, PAIR, ["--out", "g\0.npz"], "cannot be written: embedded null byte"),
    "unknown option": (NUMBERS, PAIR, ["--labels", "x"], "Did you mean '--label'?"),
}


@pytest.mark.parametrize(("nodes", "edges", "options", "says"), BAD.values(), ids=BAD)
def test_malformed_input_is_one_line_and_leaves_nothing(
    nodes: str | bytes | None,
    edges: str | bytes | None,
    options: list[str],
    says: str,
    capsys: pytest.CaptureFixture[str],
    folder: Path,
) -> None:
    assert run(nodes, edges, *options) == 2
    shown = capsys.readouterr()
    assert shown.out == "" and shown.err.startswith("error: ") and says in shown.err
    assert shown.err.count("\n") == 1 and len(shown.err) < 500
    assert {path.name for path in folder.iterdir()} <= {"nodes.csv", "edges.csv"}


def test_a_failed_conversion_leaves_the_old_file_and_a_good_one_replaces_it(folder: Path) -> None:
    assert converted(NUMBERS, PAIR).num_nodes == 2
    old = (folder / "g.npz").read_bytes()
    assert run(NUMBERS, "a,zz\n") == 2
    assert (folder / "g.npz").read_bytes() == old
    assert converted(NUMBERS + "c,1,0,0\n", PAIR).num_nodes == 3


def test_a_full_disk_is_one_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez_compressed", full)
    assert run(NUMBERS, PAIR) == 2
    assert "--out g.npz cannot be written: No space left on device" in capsys.readouterr().err
    assert not (folder / "g.npz").exists()
