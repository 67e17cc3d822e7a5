"""After any sequence of calls, a learner answers like one that was taught the same labels at once."""

from __future__ import annotations

import tempfile
import warnings
from copy import copy
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hagmeta import Dataset, Learner, UserError
from tests.hagmeta.learner.playing import clear_graph
from tests.hagmeta.learner.test_learner import labels_of, nodes_of, reordered, without

GRAPH = clear_graph()
NEW = ("4", "5", "6", "7")
CALLS = st.one_of(
    st.tuples(st.just("label"), st.sampled_from(NEW), st.integers(0, 20), st.integers(1, 6)),
    st.tuples(st.just("correct"), st.sampled_from(NEW), st.integers(0, 20), st.just(1)),
    st.tuples(st.just("remove"), st.just(""), st.integers(0, 150), st.integers(1, 60)),
    st.tuples(
        st.sampled_from(["restore", "reorder", "save", "predict", "refuse"]),
        st.just(""),
        st.just(0),
        st.just(0),
    ),
)
SEQUENCES = st.lists(CALLS, min_size=3, max_size=8)


@cache
def fitted() -> Learner:
    return Learner("sgc-ncm", features="propagated", device="cpu").fit(GRAPH, labels_of(GRAPH))


def restart() -> Learner:
    """A copy of the fitted learner. Calls replace what it keeps, and never change it."""
    return copy(fitted())


def probabilities(learner: Learner, graph: Dataset) -> np.ndarray:
    """The probabilities of all nodes, with the classes in the order of their names."""
    _, found = learner.probabilities(graph)
    return found[:, np.argsort(learner.classes_)]


@given(SEQUENCES)
@settings(max_examples=6, deadline=None, derandomize=True)
def test_any_sequence_of_calls(calls: list[tuple[str, str, int, int]]) -> None:
    play(calls)


@pytest.mark.slow
@given(SEQUENCES)
@settings(max_examples=200, deadline=None)
def test_many_sequences_of_calls(calls: list[tuple[str, str, int, int]]) -> None:
    play(calls)


def play(calls: list[tuple[str, str, int, int]]) -> None:
    """Make the calls, and compare the learner with one that was taught the same labels at once."""
    warnings.simplefilter("ignore")
    learner, graph, told = restart(), GRAPH, dict[str, str]()
    for call, name, first, count in [("label", "4", 0, 3), *calls]:
        nodes = list(graph.node_ids or ())
        if call == "label":
            own = [node for node in nodes_of(GRAPH, name) if node in nodes][first:][:count]
            change = {node: name for node in own}
        elif call == "correct":
            others = [n for n, c in told.items() if c != name and n in nodes]
            change = dict.fromkeys(others[first % len(others) :][:1] if others else [], name)
        else:
            change = {}
        if change and {*told.values(), name} == labelled(told | change, nodes):
            told |= change
            learner.learn(graph, {name: list(change)})
        elif change:
            with pytest.raises(UserError, match="has no labelled node of"):
                learner.learn(graph, {name: list(change)})
        elif call == "remove":
            gone = nodes[first : first + count]
            needed = set(labels_of(GRAPH))
            if set(told.values()) == labelled(told, [node for node in nodes if node not in gone]):
                graph = without(graph, [node for node in gone if node not in needed])
        elif call == "restore":
            graph = GRAPH
        elif call == "reorder":
            graph = reordered(graph)
        elif call == "save":
            with tempfile.TemporaryDirectory() as folder:
                learner = Learner.load(learner.save(Path(folder) / "saved"), device="cpu")
        elif call == "refuse":
            before = learner.classes_
            with pytest.raises(UserError, match="holds no node for class 'none'"):
                learner.learn(graph, {"none": []})
            assert learner.classes_ == before
        else:
            check_probabilities(learner, graph)
    at_once = restart()
    if told:
        classes = dict.fromkeys(told.values())
        at_once.learn(GRAPH, {name: [n for n, c in told.items() if c == name] for name in classes})
        learner.learn(GRAPH, {"0": nodes_of(GRAPH, "0")[:1]})  # no news, but it calibrates on the same graph
    assert sorted(learner.classes_) == sorted(at_once.classes_)
    np.testing.assert_allclose(probabilities(learner, graph), probabilities(at_once, graph), atol=1e-4)
    _, one = learner.unknown_probabilities(graph)
    _, other = at_once.unknown_probabilities(graph)
    np.testing.assert_allclose(one, other, atol=1e-3)


def labelled(told: dict[str, str], nodes: list[str]) -> set[str]:
    """Return the classes with a label on some of `nodes`."""
    return {told[node] for node in nodes if node in told}


def check_probabilities(learner: Learner, graph: Dataset) -> None:
    """Assert what holds for the answers of every learner."""
    nodes, found = learner.probabilities(graph)
    assert nodes == list(graph.node_ids or ()) and found.shape == (len(nodes), len(learner.classes_))
    np.testing.assert_allclose(found.sum(1), 1, atol=1e-6)
    _, unknown = learner.unknown_probabilities(graph)
    assert ((found >= 0) & (found <= 1)).all() and ((unknown >= 0) & (unknown <= 1)).all()
