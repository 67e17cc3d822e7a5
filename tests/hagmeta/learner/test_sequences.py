"""After any sequence of calls, a learner answers like one that was taught the same labels at once."""

from __future__ import annotations

import tempfile
import warnings
from copy import copy
from functools import cache
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from hagmeta import Dataset, Learner
from tests.hagmeta.learner.playing import clear_graph
from tests.hagmeta.learner.test_learner import labels_of, nodes_of, reordered, without

GRAPH = clear_graph()
NEW = ("4", "5", "6", "7")
CALLS = st.one_of(
    st.tuples(st.just("label"), st.sampled_from(NEW), st.integers(0, 20), st.integers(1, 6)),
    st.tuples(st.just("correct"), st.sampled_from(NEW), st.integers(0, 20), st.just(1)),
    st.tuples(st.just("remove"), st.just(""), st.integers(0, 150), st.integers(1, 60)),
    st.tuples(
        st.sampled_from(["restore", "reorder", "save", "predict"]), st.just(""), st.just(0), st.just(0)
    ),
)


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


@given(st.lists(CALLS, min_size=3, max_size=8))
@settings(max_examples=20, deadline=None, derandomize=True)
def test_any_sequence_of_calls(calls: list[tuple[str, str, int, int]]) -> None:
    warnings.simplefilter("ignore")
    learner, graph, told = restart(), GRAPH, dict[str, str]()
    for call, name, first, count in [("label", "4", 0, 3), *calls]:
        nodes = list(graph.node_ids or ())
        if call == "label":
            own = [node for node in nodes_of(GRAPH, name) if node in nodes][first:][:count]
            change = {node: name for node in own}
        elif call == "correct":
            # Move one label to a class, if the class that loses it has others in the graph.
            others = [n for n, c in told.items() if c != name and n in nodes]
            moved = others[first % len(others) :][:1] if others else []
            left = [n for n, c in told.items() if moved and c == told[moved[0]] and n in nodes]
            change = {moved[0]: name} if len(left) > 1 else {}
        else:
            change = {}
        if change:
            told |= change
            learner.learn(graph, {name: list(change)})
        elif call == "remove":
            gone = nodes[first : first + count]
            rest = set(nodes) - set(gone)
            needed = set(labels_of(GRAPH))
            if all(any(n in rest for n, c in told.items() if c == each) for each in set(told.values())):
                graph = without(graph, [node for node in gone if node not in needed])
        elif call == "restore":
            graph = GRAPH
        elif call == "reorder":
            graph = reordered(graph)
        elif call == "save":
            with tempfile.TemporaryDirectory() as folder:
                learner = Learner.load(learner.save(Path(folder) / "saved"), device="cpu")
        else:
            learner.predict(graph)
    at_once = restart()
    if told:
        classes = dict.fromkeys(told.values())
        at_once.learn(GRAPH, {name: [n for n, c in told.items() if c == name] for name in classes})
        learner.learn(GRAPH, {"0": nodes_of(GRAPH, "0")[:1]})  # no news, but it calibrates on the same graph
    assert sorted(learner.classes_) == sorted(at_once.classes_)
    np.testing.assert_allclose(probabilities(learner, graph), probabilities(at_once, graph), atol=1e-4)
