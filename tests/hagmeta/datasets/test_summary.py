from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse

from hagmeta.__main__ import main
from hagmeta.datasets import UNLABELLED, Dataset, DatasetInfo
from hagmeta.datasets.base import make_dataset
from hagmeta.datasets.descriptions.probes import TEST, TRAIN, VAL, _neighbour_classes, _split
from hagmeta.datasets.descriptions.show import _fact_rows
from hagmeta.datasets.descriptions.summary import Summary, summary_of
from hagmeta.datasets.formats import npz

INFO = DatasetInfo("g", "a graph", "here")


def look(
    edges: object, labels: list[int], features: object = None, names: list[str] | None = None
) -> Summary:
    features = np.ones((len(labels), 1)) if features is None else features
    return summary_of(make_dataset("g", edges, labels, features, names, source="g"), INFO)


def test_the_numbers_of_a_small_graph() -> None:
    # A path 0-1-2-3, and node 4 alone; classes a: 0, 1, 4 and b: 2, 3.
    summary = look(
        [[0, 1], [1, 2], [2, 3]],
        [0, 0, 1, 1, 0],
        scipy.sparse.csr_matrix([[1, 0], [0, 0], [0, 1], [1, 1], [0, 0]]),
        ["a", "b"],
    )
    assert (summary.nodes, summary.edges, summary.features) == (5, 3, 2)
    assert summary.features_described == "2 binary columns (40.0 % non-zero)"
    assert summary.classes == [("a", 3), ("b", 2)]
    assert summary.homophily == pytest.approx(2 / 3)
    assert summary.homophily_by_chance == pytest.approx((3 / 6) ** 2 + (3 / 6) ** 2)
    assert (summary.isolated, summary.without_features) == (1, 2)
    assert summary.degree_quantiles == {
        **{"min": 0, "25%": 1, "median": 1, "75%": 2, "90%": 2, "99%": 2, "max": 2}
    }
    assert summary.chance == 0.5
    assert summary.probes == [], "no class has five nodes"


def planted(*, features: bool, neighbours: bool, dense: bool) -> Dataset:
    """Four classes of 50 that show in the features, in the neighbours, in both or in neither."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(4), 50)
    told = labels if features else rng.permutation(labels)
    rows = np.eye(4)[told] + 0.1 * rng.random((200, 4))
    near = labels if neighbours else rng.permutation(labels)
    edges = [(a, b) for a in range(200) for b in rng.choice(np.flatnonzero(near == near[a]), 4)]
    matrix = rows if dense else scipy.sparse.csr_matrix(rows)
    return make_dataset("planted", np.array(edges), labels, matrix, source="planted")


@pytest.mark.parametrize("dense", [True, False])
@pytest.mark.parametrize("features", [True, False])
@pytest.mark.parametrize("neighbours", [True, False])
def test_a_linear_model_finds_what_is_there_and_nothing_else(
    features: bool, neighbours: bool, dense: bool
) -> None:
    summary = summary_of(planted(features=features, neighbours=neighbours, dense=dense), INFO)
    by_features, by_neighbours, by_two_hops = (probe.accuracy for probe in summary.probes)
    assert by_features == 1 if features else by_features < 0.5
    assert by_neighbours > 0.95 if neighbours else by_neighbours < 0.5
    if features and neighbours:
        assert by_two_hops > 0.95
    if not features and not neighbours:
        assert by_two_hops < 0.5


def test_labels_of_test_nodes_are_not_used() -> None:
    # Train nodes know those of their class, and test nodes theirs: with the labels of the test nodes, what is
    # learnt of the train nodes would solve them.
    dataset = planted(features=False, neighbours=True, dense=True)
    role, labels = _split(dataset), dataset.labels
    nodes = range(dataset.num_nodes)
    pairs = [
        (a, b) for a in nodes for b in nodes if a < b and labels[a] == labels[b] and role[a] == role[b] != VAL
    ]
    summary = summary_of(replace(dataset, edges=np.array(pairs)), INFO)
    assert summary.probes[1].accuracy <= 0.25


@pytest.mark.parametrize("dense", [True, False])
def test_nodes_without_a_label_are_counted_and_not_asked(dense: bool) -> None:
    dataset = planted(features=True, neighbours=True, dense=dense)
    labels = dataset.labels.copy()
    labels[:25] = UNLABELLED  # half of a class
    summary = summary_of(replace(dataset, labels=labels), INFO)
    assert ("nodes without a label", "25 (12.5 %)") in _fact_rows(summary)
    assert dict(summary.classes) == {"0": 25, "1": 50, "2": 50, "3": 50}
    assert summary.homophily == 1  # of edges between two nodes with labels
    by_features, by_neighbours, _ = (probe.accuracy for probe in summary.probes)
    assert by_features == 1 and by_neighbours > 0.95
    assert "nodes without a label" not in dict(_fact_rows(summary_of(dataset, INFO)))


def test_a_graph_whose_labelled_nodes_share_no_edge_is_described() -> None:
    dataset = make_dataset("g", [[0, 1], [1, 2]], [0, -1, 1], np.ones((3, 1)), source="g")
    summary = summary_of(dataset, INFO)
    assert (summary.homophily, summary.homophily_by_chance, summary.probes) == (0, 0, [])


def test_classes_of_neighbours_are_those_of_train_nodes_and_not_its_own() -> None:
    dataset = make_dataset("g", [[0, 1], [0, 2], [0, 3], [1, 2]], [0, 1, 1, 0], np.ones((4, 1)), source="g")
    shares = _neighbour_classes(dataset, np.array([TRAIN, TRAIN, TEST, TRAIN]))
    assert shares.tolist() == [[0.5, 0.5, 1], [1, 0, 1], [0.5, 0.5, 1], [1, 0, 1]]


def test_a_file_is_described_and_its_names_are_shown_to_the_letter(
    graph: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ("[bold]", "a\nb", ":cat:", "x" * 200, "\x1b[31m")
    npz.save(tmp_path / "g.npz", replace(graph, class_names=names))
    assert main(["datasets", f"npz:{tmp_path / 'g.npz'}"]) == 0
    shown = capsys.readouterr().out
    assert "[bold]" in shown and "a\N{REPLACEMENT CHARACTER}b" in shown and ":cat:" in shown
    assert "x" * 37 + "…" in shown and "\x1b" not in shown


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["debain"], "Did you mean 'debian'?"),
        (["npz:/no/such.npz"], "/no/such.npz: no such file"),
        (["mat:/no/such"], "/no/such_network: no such file"),
        (["npz:[/b].npz"], "[/b].npz: no such file"),
        (["npz:" + "a" * 300], "aaa: cannot be read (File name too long)"),
        (["mat:" + "a" * 300], "aaa_network: cannot be read (File name too long)"),
        (["npz:~nobody-of-this-name/g.npz"], "~nobody-of-this-name/g.npz: not a valid path"),
        (["mat:~\0/g"], "not a valid path (embedded null byte)"),
        (["--spead"], "unknown option '--spead'"),
    ],
)
def test_bad_names_are_one_line(arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["datasets", *arguments]) == 2
    shown = capsys.readouterr()
    assert shown.out == "" and says in shown.err and shown.err.count("\n") == 1


def test_datasets_must_come_first(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "3", "datasets"]) == 2
    assert "datasets must be the first argument" in capsys.readouterr().err
