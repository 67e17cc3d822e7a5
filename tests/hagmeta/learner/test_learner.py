"""Labels, nodes and features may change between the calls of a learner."""

from __future__ import annotations

import re
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch
from torch_geometric.data import Data

from hagmeta import Dataset, Learner, UserError
from hagmeta.learner.scenario import level
from hagmeta.learner.state import learns_once
from hagmeta.learner.table import (
    FewSharedNodesWarning,
    UnknownFeaturesWarning,
    kept_slots,
    slots_of,
)
from hagmeta.methods import METHODS
from tests.hagmeta.learner.playing import clear_graph, part

KNOWN, NEW = ("0", "1", "2", "3"), ("4", "5", "6")


def nodes_of(dataset: Dataset, name: str) -> list[str]:
    return [f"n{node}" for node in np.flatnonzero(dataset.labels == dataset.class_names.index(name))]


def labels_of(dataset: Dataset, names: tuple[str, ...] = KNOWN) -> dict[str, str]:
    return {node: name for name in names for node in nodes_of(dataset, name)[:12]}


def without(dataset: Dataset, nodes: list[str]) -> Dataset:
    """The graph without some nodes."""
    assert dataset.node_ids
    stays = np.array([node not in nodes for node in dataset.node_ids])
    ids = tuple(np.array(dataset.node_ids)[stays].tolist())
    return replace(part(dataset, stays), node_ids=ids)


def reordered(dataset: Dataset) -> Dataset:
    order = np.random.default_rng(0).permutation(dataset.num_nodes)
    assert dataset.node_ids
    return replace(
        dataset,
        edges=np.sort(np.argsort(order)[dataset.edges], axis=1),
        labels=dataset.labels[order],
        features=dataset.features[order],
        node_ids=tuple(dataset.node_ids[node] for node in order),
    )


@pytest.fixture(scope="module")
def graph() -> Dataset:
    return clear_graph()


def fitted(graph: Any, **settings: Any) -> Learner:
    given = {"method": "sgc-ncm", "features": "propagated", "device": "cpu", **settings}
    return Learner(**given).fit(graph, labels_of(clear_graph()))


def probabilities(learner: Learner, graph: Dataset, nodes: list[str]) -> np.ndarray:
    found = learner.predict_proba(graph, nodes)
    assert found.columns.tolist() == ["node", "class", "probability"]
    assert found["node"].tolist() == [node for node in nodes for _ in learner.classes_]
    table = found["probability"].to_numpy().reshape(len(nodes), -1)
    assert table.sum(1) == pytest.approx(1)
    return table


def test_fit_learn_and_predict(graph: Dataset) -> None:
    learner = fitted(graph)
    assert learner.classes_ == list(KNOWN)
    assert learner.learn(graph, {"4": nodes_of(graph, "4")[:5]}) is learner
    asked = nodes_of(graph, "4")[5:] + nodes_of(graph, "0")[12:]
    predicted = learner.predict(graph, asked)
    truth = ["4"] * len(nodes_of(graph, "4")[5:]) + ["0"] * len(nodes_of(graph, "0")[12:])
    assert (predicted == truth).mean() > 0.8
    table = probabilities(learner, graph, asked)
    assert (np.array(learner.classes_)[table.argmax(1)] == predicted).all()
    assert len(learner.predict(graph)) == graph.num_nodes
    assert len(learner.predict(graph, [])) == 0 == len(learner.predict_proba(graph, []))


@pytest.mark.parametrize("method", ["sgc-ncm", "proto-gcn"])
def test_order_of_nodes_after_fit_does_not_matter(graph: Dataset, method: str) -> None:
    small = {
        "hidden": 8,
        "embedding": 4,
        "pretrain_epochs": 3,
        "episodes": 3,
        "finetune_steps": 2,
        "n_way": 2,
    }
    labels = {"4": nodes_of(graph, "4")[:5]}
    asked = nodes_of(graph, "4") + nodes_of(graph, "2")
    one, other = (fitted(graph, method=method, k_shot=2, **small) for _ in range(2))
    table = probabilities(one.learn(graph, labels), graph, asked)
    moved = reordered(graph)
    assert (probabilities(other.learn(moved, labels), moved, asked) == table).all()


def test_new_nodes_are_predicted_without_learning(graph: Dataset) -> None:
    late = nodes_of(graph, "1")[12:]
    earlier = without(graph, late)
    learner = Learner("sgc-lda", features="propagated", device="cpu").fit(earlier, labels_of(graph))
    assert (learner.predict(graph, late) == "1").mean() > 0.8


def test_answers_right_after_fit_do_not_depend_on_the_call(graph: Dataset, tmp_path: Path) -> None:
    # The method chooses its shrinkage after training, before the statistics of session 0.
    learner = fitted(graph, method="posterior-means", random_features=20)
    loaded = Learner.load(learner.save(tmp_path / "learner"), device="cpu")
    assert np.array_equal(learner.probabilities(graph)[1], loaded.probabilities(graph)[1])


def test_many_new_classes_take_several_sessions(graph: Dataset) -> None:
    labels = {name: nodes_of(graph, name)[:5] for name in NEW}
    together, apart = fitted(graph, n_way=2), fitted(graph, n_way=2)
    together.learn(graph, labels)
    apart.learn(graph, {name: labels[name] for name in NEW[:2]}).learn(graph, {"6": labels["6"]})
    asked = nodes_of(graph, "6")
    assert (probabilities(together, graph, asked) == probabilities(apart, graph, asked)).all()


def test_classifiers_refuse_changed_labels(graph: Dataset) -> None:
    settings = {"hidden": 8, "embedding": 4, "pretrain_epochs": 2, "episodes": 2, "k_shot": 2}
    learner = Learner("lwf", device="cpu", **settings).fit(graph, labels_of(graph))
    learner.learn(graph, {"4": nodes_of(graph, "4")[:3]})
    with pytest.raises(UserError, match="lwf learns the labels of a class only once"):
        learner.learn(graph, {"4": nodes_of(graph, "4")[3:5]})
    assert learner.classes_ == [*KNOWN, "4"]


def test_the_guide_names_the_methods_that_learn_once() -> None:
    guide = (Path(__file__).parents[3] / "docs/guides/learner.md").read_text()
    (listed,) = re.findall(r"^(.*) learn the labels of a class only once", guide, re.MULTILINE)
    assert re.findall(r"`(.*?)`", listed) == [name for name, each in METHODS.items() if learns_once(each)]


def test_a_refused_call_changes_nothing(graph: Dataset) -> None:
    learner = fitted(graph)
    before = probabilities(learner, graph, ["n0", "n1"])
    bad: list[tuple[dict[Any, Any], str]] = [
        ({"4": []}, "holds no node for class '4'; a class needs at least one label"),
        ({"4": ["nobody"]}, "holds node 'nobody', which is not in .*; expected an id from node_ids"),
        ({"4": ["n1"], "5": ["n1"]}, "holds node 'n1' for '4' and '5'; expected one class"),
        ({"4": [["n1"]]}, r"a node id is \['n1'\]; expected a string or a whole number"),
        ({"4": "n1"}, r"labels\['4'\] is 'n1'; expected a list of node ids"),
        ({"4": [node for node, name in labels_of(graph).items() if name == "3"]}, "no labelled node of '3'"),
    ]
    for labels, message in bad:
        with pytest.raises(UserError, match=message):
            learner.learn(graph, labels)
    assert learner.classes_ == list(KNOWN)
    assert (probabilities(learner, graph, ["n0", "n1"]) == before).all()


def test_bad_arguments_are_named(graph: Dataset) -> None:
    with pytest.raises(UserError, match="not fitted; call `fit` first"):
        Learner(device="cpu").predict(graph)
    with pytest.raises(
        UserError, match="rehearsal is not a setting of a learner: a learner keeps all labels"
    ):
        Learner(rehearsal="none")
    with pytest.raises(UserError, match="labels has 1 classes; expected at least 2"):
        Learner(device="cpu").fit(graph, {"n0": "a", "n1": "a"})
    with pytest.raises(
        UserError, match="class 'b' has 4 labels to train on and 1 to validate; cec needs 10 and 1"
    ):
        labels = {f"n{node}": "b" if node < 5 else f"{node % 6}" for node in range(200)}
        Learner("cec", device="cpu").fit(graph, labels)
    with pytest.raises(UserError, match="labels is of type list; expected a mapping from node ids"):
        Learner(device="cpu").fit(graph, ["a", "b"])  # type: ignore[arg-type]


def test_few_shared_nodes_are_reported(graph: Dataset) -> None:
    learner = fitted(graph)
    labelled = list(labels_of(graph))
    assert graph.node_ids
    others = tuple(node if node in labelled else f"x{node}" for node in graph.node_ids)
    with pytest.warns(FewSharedNodesWarning, match="has 48 of the 200 nodes"):
        learner.predict(replace(graph, node_ids=others), labelled)


def test_features_are_known_by_name(graph: Dataset) -> None:
    words = tuple(f"w{column}" for column in range(graph.num_features))
    with_words = replace(graph, feature_names=words)
    learner = fitted(with_words)
    asked = nodes_of(graph, "0")
    expected = probabilities(learner, with_words, asked)
    order = np.random.default_rng(0).permutation(graph.num_features)
    counts = scipy.sparse.csr_matrix(graph.features)
    turned = replace(
        with_words, features=counts[:, order], feature_names=tuple(words[column] for column in order)
    )
    assert probabilities(learner, turned, asked) == pytest.approx(expected, abs=1e-6)
    more = scipy.sparse.csr_matrix(scipy.sparse.hstack([counts[:, order], counts[:, :1]]))
    names = (*(words[column] for column in order), "unheard")
    other = replace(with_words, features=more, feature_names=names)
    with pytest.warns(UnknownFeaturesWarning, match="has 1 features .* such as 'unheard'"):
        assert probabilities(learner, other, asked) == pytest.approx(expected, abs=1e-6)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        learner.predict(other, asked)  # it is reported once
    with pytest.raises(UserError, match="has 33 features, but the learner was fitted on 32"):
        learner.predict(replace(other, feature_names=None), asked)


def test_pyg_graphs_need_no_labels(graph: Dataset) -> None:
    edges = torch.from_numpy(graph.edges.T)
    data = Data(
        x=torch.from_numpy(graph.features.toarray()),  # type: ignore[union-attr]
        edge_index=torch.cat([edges, edges.flip(0)], 1),
        n_id=1000 + torch.arange(graph.num_nodes),
    )
    labels = {1000 + int(node[1:]): name for node, name in labels_of(graph).items()}
    learner = Learner("sgc-ncm", features="propagated", device="cpu").fit(data, labels)
    assert learner.predict(data, [1099]).tolist() == ["3"]
    assert "y" not in data


def test_labels_of_one_class_under_two_keys_are_joined(graph: Dataset) -> None:
    a, b, c = nodes_of(graph, "4")[:3]
    learner = fitted(graph).learn(graph, {7: [a, b], "7": (c, a)})  # type: ignore[dict-item]
    assert learner.classes_ == [*KNOWN, "7"] and learner.summary() == "5 classes, 51 labels"
    by_tensor = fitted(graph).learn(graph, {torch.tensor(7): [a, b], np.int8(7): [c]})  # type: ignore[dict-item]
    assert by_tensor.classes_ == learner.classes_ and by_tensor.summary() == learner.summary()


@pytest.mark.parametrize("nothing", [None, float("nan"), np.nan, pd.NA, pd.NaT, -1, "-1", "", " "])
def test_no_label_means_the_same_in_fit_and_learn(graph: Dataset, nothing: Any) -> None:
    labels = labels_of(graph)
    learner = Learner("sgc-ncm", features="propagated", device="cpu")
    assert (
        learner.fit(graph, {**labels, nodes_of(graph, "4")[0]: nothing}).summary() == "4 classes, 48 labels"
    )
    with pytest.raises(UserError, match=r"labels holds nodes for .*, which means no label; expected a class"):
        learner.learn(graph, {nothing: nodes_of(graph, "4")[:3]})
    assert learner.classes_ == list(KNOWN)


@pytest.mark.parametrize("name", ["a\0", "\ud800", 1.5, b"a", ("a",), ["a"], object(), pd.Series(["a", "b"])])
def test_class_that_cannot_be_kept_is_refused(graph: Dataset, name: Any) -> None:
    with pytest.raises(UserError, match=r"^labels holds the class .*; expected ") as caught:
        fitted(graph).fit(graph, {**labels_of(graph), "n4": name, "n12": name})
    assert "\n" not in str(caught.value)
    if not isinstance(name, list | pd.Series):
        with pytest.raises(UserError, match=r"^labels holds the class .*; expected "):
            fitted(graph).learn(graph, {name: ["n4", "n12"]})
    if isinstance(name, str):
        with pytest.raises(UserError, match=r"^clear holds the class .*; expected "):
            Learner(device="cpu").fit(replace(graph, class_names=(name, *graph.class_names[1:])))


def test_node_with_two_labels_is_refused(graph: Dataset) -> None:
    labels, node = labels_of(graph), nodes_of(graph, "0")[0]
    with pytest.raises(UserError, match="labels holds node 'n0' for '0' and '1'; expected one class"):
        Learner(device="cpu").fit(graph, pd.Series([*labels.values(), "1"], index=[*labels, node]))
    with pytest.raises(UserError, match="labels holds node 0 for 'a' and 'b'; expected one class"):
        Learner(device="cpu").fit(replace(graph, node_ids=None), {torch.tensor(0): "a", 0: "b"})
    with pytest.raises(UserError, match="validation holds node 'n0' for '1', but labels for '0'"):
        Learner(device="cpu").fit(graph, labels, validation={node: "1"})


def test_nodes_may_be_given_as_tensors_arrays_and_series(graph: Dataset) -> None:
    numbered = replace(graph, node_ids=None)
    labels = {int(node[1:]): name for node, name in labels_of(graph).items()}
    learner = Learner("sgc-ncm", features="propagated", device="cpu").fit(numbered, labels)
    expected = learner.predict(numbered, [0, 1, 2, 3, 4]).tolist()
    forms = [
        torch.arange(5),
        list(torch.arange(5)),
        np.arange(5),
        pd.Series(range(5)),
        range(5),
        iter(range(5)),
    ]
    for nodes in forms:
        assert learner.predict(numbered, nodes).tolist() == expected
    new = torch.from_numpy(np.flatnonzero(graph.labels == 4)[:3])
    assert learner.learn(numbered, {"4": new}).predict(numbered, new).tolist() == ["4"] * 3  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        (5, "nodes is 5; expected a list of node ids"),
        (torch.tensor(5), r"nodes is tensor\(5\); expected a list of node ids"),
        ("n5", "nodes is 'n5'; expected a list of node ids"),
        (b"n5", "nodes is b'n5'; expected a list of node ids"),
        (torch.zeros(200, dtype=torch.bool), "a node id is False; expected a string or a whole number"),
        (np.array([[0, 1]]), r"a node id is \[0, 1\]; expected"),
        ([("n5", [])], r"a node id is \('n5', \[\]\); expected"),
        ([pd.NA], "nodes holds node <NA>, which is not in clear"),
    ],
)
def test_nodes_that_are_no_list_of_ids_are_refused(graph: Dataset, nodes: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        fitted(graph).predict(graph, nodes)


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (["a"] * 200, "holds 'a' twice; expected unique ids"),
        (["a", "b"], "has 2 entries; expected 200, one per node"),
        (range(300), "has 300 entries; expected 200, one per node"),
        (["\ud800", *map(str, range(199))], r"holds '\\ud800'; expected Unicode text"),
        ([True, *range(2, 201)], "a node id is True; expected a string or a whole number"),
        ([[0]] * 200, r"a node id is \[0\]; expected a string or a whole number"),
        (5, "is 5; expected a list of node ids"),
    ],
)
def test_ids_of_a_graph_are_checked(graph: Dataset, ids: Any, message: str) -> None:
    edges = torch.from_numpy(graph.edges.T)
    data = Data(
        x=torch.from_numpy(graph.features.toarray()),  # type: ignore[union-attr]
        edge_index=torch.cat([edges, edges.flip(0)], 1),
        n_id=ids,
    )
    for other, name in ((data, "data.n_id"), (replace(graph, node_ids=ids), "clear.node_ids")):
        for call in (
            lambda given: Learner(device="cpu").fit(given, labels_of(graph)),
            lambda given: fitted(graph).learn(given, {"4": ["n4"]}),
            lambda given: fitted(graph).predict(given),
        ):
            with pytest.raises(
                UserError, match=message if message.startswith("a node") else f"^{name} {message}"
            ):
                call(other)


@pytest.mark.parametrize(
    "make", [lambda n: (n // 20, n % 20), lambda n: frozenset([n]), lambda n: (n, "x")[n % 2]]
)
def test_ids_may_be_of_any_hashable_type(graph: Dataset, make: Any) -> None:
    names = {f"n{n}": make(n) if make(n) != "x" else f"x{n}" for n in range(200)}
    labels = {names[node]: name for node, name in labels_of(graph).items()}
    other = replace(graph, node_ids=tuple(names.values()))
    learner = Learner("sgc-ncm", features="propagated", device="cpu").fit(other, labels)
    assert learner.predict(other, [names["n99"]]).tolist() == ["3"]


def test_level_repeats_entries_equally_often() -> None:
    rows = level([np.array([1]), np.array([2, 3]), np.array([4, 5, 6])])
    assert rows.shape == (3, 6)
    assert all(len(set(np.unique(row, return_counts=True)[1])) == 1 for row in rows)
    many = level([np.arange(7), np.arange(11), np.arange(13)])
    assert many.shape == (3, 60)
    assert level([np.arange(5), np.arange(5)]).shape == (2, 5)


def test_slots_of_nodes_stay() -> None:
    assert slots_of([2, 0, 1], {}) == {2: 2, 0: 0, 1: 1}
    assert slots_of(["b", "a"], {}) == {"b": 0, "a": 1}
    assert slots_of(["c", "a"], {"b": 0, "a": 1}) == {"c": 2, "a": 1}
    assert slots_of([10**9, 1], {}) == {10**9: 2, 1: 1}
    known = {f"n{number}": number for number in range(10)}
    assert kept_slots({"n0": 0, "n9": 9}, known) == {"n0": 0, "n9": 1}  # most rows would be empty
    assert kept_slots({f"n{number}": number for number in range(8)}, known) == known


def with_strangers(dataset: Dataset, first_word: int) -> Dataset:
    """The graph and 40 more nodes without edges or labels, whose words begin at ``first_word``."""
    words = np.zeros((40, dataset.num_features), dtype=np.float32)
    words[:, first_word : first_word + 3] = 1
    assert dataset.node_ids
    return replace(
        dataset,
        labels=np.concatenate([dataset.labels, np.zeros(40, dtype=np.int64)]),
        features=scipy.sparse.vstack([dataset.features, scipy.sparse.csr_matrix(words)]).tocsr(),
        node_ids=(*dataset.node_ids, *(f"s{number}" for number in range(40))),
    )


@pytest.mark.slow
@pytest.mark.parametrize("unlabelled", ["all", "training"])
def test_with_training_nodes_only_nothing_is_learnt_from_the_others(graph: Dataset, unlabelled: str) -> None:
    asked, tables = nodes_of(graph, "4") + nodes_of(graph, "2"), []
    for first_word in (0, 12):
        given = with_strangers(graph, first_word)
        learner = fitted(given, method="posterior-means", features="propagated", unlabelled_nodes=unlabelled)
        tables.append(probabilities(learner.learn(given, {"4": nodes_of(graph, "4")[:5]}), given, asked))
    assert np.array_equal(tables[0], tables[1]) == (unlabelled == "training")
