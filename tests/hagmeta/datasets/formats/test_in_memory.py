"""Graphs that a program holds already become datasets, or one line that says why not."""

from __future__ import annotations

import doctest
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import torch
from torch_geometric.data import Data, InMemoryDataset

from hagmeta import datasets
from hagmeta.common.errors import UserError
from hagmeta.datasets import UNLABELLED, Dataset, base
from hagmeta.datasets.formats import npz
from hagmeta.datasets.formats.in_memory import DirectedEdgesWarning

EDGES = [[0, 1], [1, 2], [2, 3]]
LABELS = ["sun", "moon", "sun", None]
FEATURES = np.arange(8.0).reshape(4, 2)
BOTH_WAYS = torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])


def arrays(**changes: Any) -> Dataset:
    given: dict[str, Any] = {"edges": EDGES, "labels": LABELS, "features": FEATURES, "name": "g"}
    return Dataset.from_arrays(**(given | changes))


def pyg(**changes: Any) -> Data:
    y = torch.tensor([5, 9, 5, -1])
    return Data(**({"x": torch.tensor(FEATURES), "y": y, "edge_index": BOTH_WAYS} | changes))


def path_graph(kind: type[nx.Graph] = nx.Graph) -> nx.Graph:
    graph = kind()
    for node, label, x in zip("abcd", LABELS, FEATURES, strict=True):
        graph.add_node(node, label=label, x=x, size=x[0], weight=x[1])
    graph.add_edges_from([("a", "b"), ("b", "c"), ("c", "d")])
    return graph


@pytest.mark.parametrize(
    ("labels", "consecutive", "names"),
    [
        (["sun", "moon", "sun", None], [1, 0, 1, -1], ("moon", "sun")),
        (np.array(["b", "a", "", "-1"]), [1, 0, -1, -1], ("a", "b")),
        (["b", "a", float("nan"), -1], [1, 0, -1, -1], ("a", "b")),
        (["10", "9", "9", "100"], [1, 0, 0, 2], ("9", "10", "100")),  # in the order of their numbers
        ([7, 5, 90, 5], [1, 0, 2, 0], ("5", "7", "90")),
        ([7, None, 5, -1], [1, -1, 0, -1], ("5", "7")),
        (np.array([7.0, np.nan, 5.0, -1.0]), [1, -1, 0, -1], ("5", "7")),
        (np.array([7, 5, 5, 7], dtype=np.uint8), [1, 0, 0, 1], ("5", "7")),
        (torch.tensor([7, 5, -1, 7]), [1, 0, -1, 1], ("5", "7")),
        (pd.Series([7, None, 5, 5], dtype="Int64"), [1, -1, 0, 0], ("5", "7")),
        (pd.Series(["b", None, "a", "a"], dtype="category"), [1, -1, 0, 0], ("a", "b")),
    ],
)
def test_labels_of_any_kind_are_made_consecutive(
    labels: Any, consecutive: list[int], names: tuple[str, ...]
) -> None:
    dataset = arrays(labels=labels)
    assert dataset.labels.tolist() == consecutive and dataset.labels.dtype == np.int64
    assert dataset.class_names == names and dataset.num_classes == len(names)


def test_from_arrays_keeps_names() -> None:
    dataset = arrays(
        labels=[0, 2, 0, 2],
        class_names=["sun", "sea", "moon"],
        node_ids=np.array(["a", "b", "c", "d"]),
        feature_names=["x", "y"],
    )
    assert dataset.class_names == ("sun", "moon")
    assert dataset.node_ids == ("a", "b", "c", "d") and dataset.feature_names == ("x", "y")


def test_the_identity_in_memory_is_the_name_and_the_content() -> None:
    one, other = arrays(), arrays(features=FEATURES + 1)
    assert one.origin is None and one.identity == f"g@{one.fingerprint[:12]}"
    assert one.identity == arrays(node_ids="abcd").identity != other.identity


def test_the_identity_of_a_loaded_graph_is_the_name_that_loads_it() -> None:
    debian = datasets.load("debian", Path())
    assert debian.origin == debian.identity == "debian"
    # A changed copy is another graph, whatever it is called.
    changed = replace(debian, features=debian.features * 2)
    assert changed.identity == f"debian@{changed.fingerprint[:12]}"


@pytest.mark.parametrize("name", ["", " ", "a:b", "a@b", "a/b", "a\0b", "a\nb", "\ud800", None, 7])
def test_a_name_that_cannot_be_in_an_identity_is_refused(name: Any) -> None:
    with pytest.raises(UserError, match=r"^Dataset.from_arrays: name is .*; expected a string without : @ /"):
        arrays(name=name)


def test_graphs_may_have_no_labels(tmp_path: Path) -> None:
    made = arrays(labels=None, node_ids=list("abcd"))
    assert (made.labels == UNLABELLED).all() and made.class_names == () and made.num_nodes == 4
    (tmp_path / "nodes.csv").write_text("id,x\na,1\nb,2\n")
    (tmp_path / "edges.csv").write_text("a,b\n")
    read = Dataset.from_csv(tmp_path / "nodes.csv", tmp_path / "edges.csv", label=None)
    assert read.feature_names == ("x",) and read.class_names == ()


def test_pyg_and_networkx_and_arrays_give_the_same_graph() -> None:
    one, two = arrays(), Dataset.from_networkx(path_graph(), name="g")
    three = Dataset.from_pyg(
        pyg(y=torch.tensor([[1], [0], [1], [-1]])), name="g", class_names=["moon", "sun"]
    )
    assert one.identity == two.identity == three.identity
    assert one.class_names == two.class_names == three.class_names == ("moon", "sun")


def test_from_pyg_takes_sparse_features_and_an_adjacency() -> None:
    whole = Dataset.from_pyg(pyg(), name="g")
    adjacency = torch.sparse_coo_tensor(BOTH_WAYS, torch.ones(6), (4, 4)).to_sparse_csr()
    dataset = Dataset.from_pyg(
        pyg(edge_index=None, adj_t=adjacency, x=torch.tensor(FEATURES).to_sparse()), name="g"
    )
    assert np.array_equal(dataset.edges, whole.edges)
    assert np.array_equal(dataset.features, whole.features)


class OneGraph(InMemoryDataset):
    def __init__(self, graphs: int = 1) -> None:
        super().__init__()
        self.data, self.slices = self.collate([pyg()] * graphs)


def test_from_pyg_takes_a_dataset_of_one_graph() -> None:
    assert Dataset.from_pyg(OneGraph(), name="g").identity == Dataset.from_pyg(pyg(), name="g").identity
    with pytest.raises(UserError, match="data has 2 graphs; expected one graph"):
        Dataset.from_pyg(OneGraph(2), name="g")


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (pyg(x=None), "data.x is missing; expected x, y, and edge_index or adj_t"),
        (pyg(y=None), "data.y is missing"),
        (pyg(edge_index=None), "data.edge_index is missing"),
        (SimpleNamespace(edge_index=BOTH_WAYS), "data.x is missing"),
        ({"x": 1}, "data is of type dict and has no edge_index; expected a torch_geometric.data.Data"),
        (pyg(edge_index=BOTH_WAYS.T), "'data.edge_index' has shape (6, 2); expected (2, edges)"),
        (
            pyg(edge_index=BOTH_WAYS + 1),
            "'data.edge_index.T' holds node 4 in row 4, column 1; expected 0 to 3",
        ),
        (pyg(y=torch.eye(4)), "'data.y' has shape (4, 4); expected 1 dimension (for one-hot labels, use"),
        (pyg(y=torch.tensor([0.5, 1, 1, 0])), "'data.y' holds 0.5 in row 0; expected whole numbers from 0"),
        (pyg(y=torch.tensor([0, 1])), "'data.x' has shape (4, 2); expected (2, features)"),
        (pyg(x=torch.tensor(FEATURES).fill_(torch.nan)), "'data.x' holds nan in row 0, column 0"),
    ],
)
def test_from_pyg_says_what_is_wrong(data: Any, says: str) -> None:
    assert says in refused(lambda: Dataset.from_pyg(data, name="g"), "Dataset.from_pyg")


@pytest.mark.parametrize("kind", [nx.Graph, nx.MultiGraph])
def test_from_networkx_keeps_ids_and_merges_edges(kind: type[nx.Graph]) -> None:
    graph = path_graph(kind)
    graph.add_edges_from([("b", "a"), ("d", "d")])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dataset = Dataset.from_networkx(graph, name="g", features=["weight", "size"])
    assert dataset.edges.tolist() == EDGES and dataset.node_ids == ("a", "b", "c", "d")
    assert dataset.feature_names == ("weight", "size")
    assert np.array_equal(dataset.features, FEATURES[:, ::-1])


def without(key: str, node: str = "b") -> nx.Graph:
    graph = path_graph()
    del graph.nodes[node][key]
    return graph


def with_x(x: Any) -> nx.Graph:
    graph = path_graph()
    graph.nodes["b"]["x"] = x
    return graph


def test_a_networkx_node_without_the_attribute_has_no_label() -> None:
    assert Dataset.from_networkx(without("label"), name="g").labels.tolist() == [0, -1, 0, -1]


@pytest.mark.parametrize(
    ("graph", "options", "says"),
    [
        (EDGES, {}, "graph is of type list; expected a networkx graph"),
        (nx.Graph(), {}, "'label' is empty; expected at least one node"),
        (
            path_graph(),
            {"label": "kind"},
            "no node has the attribute label='kind'; found: label",
        ),
        (
            without("x"),
            {},
            "node 'b' has no attribute 'x', which is given as features; found: label, size, weight",
        ),
        (without("size"), {"features": ["weight", "size"]}, "node 'b' has no attribute 'size'"),
        (with_x([1.0]), {}, "node 'b' has 1 features and node 'a' has 2; expected the same number"),
        (with_x([1.0, np.nan]), {}, "'x' of node 'b' is [1.0, nan]; expected finite numbers"),
        (with_x(np.full(60, np.nan)), {}, "'x' of node 'b' is array([nan, nan,"),
        (with_x("word"), {}, "'x' of node 'b' is 'word'; expected finite numbers"),
        (with_x(None), {}, "'x' of node 'b' is None; expected finite numbers"),
    ],
)
def test_from_networkx_says_what_is_wrong(graph: Any, options: dict[str, Any], says: str) -> None:
    refusal = refused(lambda: Dataset.from_networkx(graph, name="g", **options), "Dataset.from_networkx")
    assert says in refusal


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"edges": [[0, 1], [2]]}, "'edges' is not an array of numbers"),
        ({"edges": [["a", "b"]]}, "'edges' has type <U1; expected whole numbers from 0"),
        ({"labels": [None] * 4}, "'labels' holds no labels; expected at least one class"),
        ({"labels": ["a", ("b",), "b", "a"]}, "'labels' holds ('b',) in row 1; expected strings or whole"),
        ({"class_names": ["a", "b"]}, "'labels' holds strings, which are already class names; remove"),
        ({"features": None}, "'features' has shape (); expected (4, features), one row per label"),
        ({"node_ids": "abc"}, "'node_ids' has 3 entries; expected 4, since there are 4 nodes"),
        ({"node_ids": "abca"}, "'node_ids' holds 'a' twice; expected unique names"),
        ({"node_ids": ["a", "b", "c", ["d"]]}, "'node_ids' holds ['d']; expected strings or whole numbers"),
        ({"feature_names": ["x"]}, "'feature_names' has 1 entries; expected 2, since there are 2 features"),
    ],
)
def test_from_arrays_says_what_is_wrong(changes: dict[str, Any], says: str) -> None:
    assert says in refused(lambda: arrays(**changes), "Dataset.from_arrays")


def refused(make: Callable[[], Dataset], source: str) -> str:
    with pytest.raises(UserError) as error:
        make()
    assert str(error.value).startswith(f"{source}: ") and "\n" not in str(error.value)
    return str(error.value)


def test_edges_in_one_direction_count_in_both_and_a_warning_says_so() -> None:
    with pytest.warns(DirectedEdgesWarning, match=r"^g: 2 of 4 edges are given in one direction only; all"):
        dataset = Dataset.from_pyg(pyg(edge_index=BOTH_WAYS[:, [0, 1, 2, 5]]), name="g")
    assert dataset.edges.tolist() == EDGES
    with pytest.warns(DirectedEdgesWarning, match="3 of 3 edges") as seen:
        assert Dataset.from_networkx(path_graph(nx.DiGraph), name="g").edges.tolist() == EDGES
    assert seen[0].filename == __file__  # it points at the user's line, not at ours
    with pytest.warns(DirectedEdgesWarning, match="2 of 4 edges"):
        assert arrays(edges=[[0, 1], [1, 0], [1, 2], [3, 2]]).edges.tolist() == EDGES


def test_edges_in_both_directions_or_once_each_are_taken_without_a_word() -> None:
    both = path_graph(nx.DiGraph)
    both.add_edges_from([("b", "a"), ("c", "b"), ("d", "c")])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Dataset.from_pyg(pyg(), name="g")
        Dataset.from_networkx(both, name="g")
        arrays()  # a list of pairs, as most have it


def test_from_csv_reads_what_convert_reads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes, edges = tmp_path / "cities.csv", tmp_path / "roads.csv"
    nodes.write_text("id,label,x,y\na,sun,0,1\nb,moon,2,3\nc,sun,4,5\nd,,6,7\n")
    edges.write_text("a,b\nb,c\nc,d\n")
    dataset = Dataset.from_csv(nodes, str(edges))
    assert dataset.name == "cities" and dataset.identity == replace(arrays(), name="cities").identity
    assert dataset.node_ids == ("a", "b", "c", "d") and dataset.feature_names == ("x", "y")
    printed = capsys.readouterr()
    assert printed.out == "" and "1 node without a label; kept as context" in printed.err
    assert Dataset.from_csv(nodes, edges, name="mine", numeric=["y"]).num_features == 1
    assert "name is 'a/b'" in refused(lambda: Dataset.from_csv(nodes, edges, name="a/b"), "Dataset.from_csv")


def test_a_path_names_an_npz_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    npz.save(tmp_path / "my.npz", arrays())
    for reference in (Path("my.npz"), "my.npz", "npz:my.npz"):
        assert datasets.name_of(reference) == "npz:my.npz"
        assert datasets.load(reference, tmp_path).identity == "npz:my.npz"
        assert datasets.describe(reference, tmp_path).name == "npz:my.npz"
        assert datasets.files_at_hand(reference) == [Path("my.npz")]
        assert datasets.revision(reference) == 1
    assert datasets.name_of("debian") == "debian" and datasets.name_of("mat:a.npz") == "mat:a.npz"


@pytest.mark.parametrize(
    ("reference", "says"),
    [
        (Path("debian"), "dataset is the path 'debian'; expected a path that ends in .npz"),
        (None, "dataset is None; expected a name, or a path"),
        ("no.npz", "no.npz: no such file"),
        (Path("no.npz"), "no.npz: no such file"),
    ],
)
def test_what_names_no_dataset_is_said_in_one_line(reference: Any, says: str, tmp_path: Path) -> None:
    with pytest.raises(UserError) as error:
        datasets.load(reference, tmp_path)
    assert says in str(error.value) and "\n" not in str(error.value)


def test_the_examples_of_the_docstrings_run() -> None:
    results = doctest.testmod(base)
    assert results.attempted >= 6 and not results.failed
