"""The read-out uses the labels that a method is handed in a session, and no others.

Labels that are forbidden, or gone, are replaced: no answer changes. Each check is also run on a planted leak,
which it must find. (That they do not tell when a node arrived is in `test_arrival.py`.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

from hagmeta.config.run_config import RunConfig
from hagmeta.datasets.base import Dataset
from hagmeta.engine.known.session import Known
from hagmeta.engine.scores.readout import Labels, ReadOut, smoothed
from hagmeta.methods import METHODS, SessionLearning, Task
from hagmeta.packs.pack import Pack, Step
from hagmeta.scenarios.scenario import TRAIN, Scenario, Stream
from hagmeta.testing import Answers, same_answers, with_other_labels
from tests.hagmeta.kinds import kinds_with, one_of_each_kind
from tests.hagmeta.scenarios.leaks.replayed import (
    Life,
    memories_made,
    readable_again,
    with_own_labels,
)

CPU = torch.device("cpu")
ALL: dict[str, Any] = {"smoothing": 0.75, "logit_adjustment": 1.0, "prior": "estimated", "self_training": 2}
TRIED = ("proto-gcn",)  # with leaks that the checks must find, in slow tests
HONEST = [name for name, method in METHODS.items() if not method.traits.oracle]
REPLAYING = [name for name, m in METHODS.items() if m.session_learning is SessionLearning.REPLAY]
Tiny = Callable[..., RunConfig]
Nodes = Callable[[Scenario, int], np.ndarray]  # of a session
honest_labels = ReadOut._labels


def reading_more(nodes: Nodes) -> Callable[..., Iterator[Labels]]:
    """A leak: some nodes are held at what is their label, whoever may know it."""

    def labels(self: ReadOut, known: Known, task: Task) -> Iterator[Labels]:
        for seed, (honest, position) in enumerate(honest_labels(self, known, task)):
            scenario, classes = self._context.scenarios[seed], task.classes[seed].numpy()
            session = (len(classes) - len(scenario.test.known)) // self._context.tasks.n_way
            more = np.setdiff1d(nodes(scenario, session), honest)
            at = scenario.positions(classes)[scenario.labels[more]]
            met = at >= 0
            yield Labels(np.concatenate([honest, more[met]]), np.concatenate([position, at[met]]))

    return labels


# Test nodes, and nodes of novel classes that are no supports.


def some_queries(scenario: Scenario, session: int) -> np.ndarray:
    return scenario.test.queries[session][:5]


def unlabelled_nodes_of_novel_classes(scenario: Scenario, session: int) -> np.ndarray:
    """Train nodes, as an oracle knows them."""
    return scenario.train_nodes_arrived(scenario.test, session)


@pytest.mark.parametrize("method", one_of_each_kind(kinds=("sgc-lda",)))
def test_labels_that_nobody_may_know_change_no_answer(
    tiny_graph: Dataset, tiny: Tiny, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    life = Life(tiny(method=method, **ALL), tiny_graph)
    other = with_other_labels(life.context, "permuted")
    assert same_answers(life.sessions(life.context), life.sessions(other))
    if method in TRIED:  # a leak must be found
        monkeypatch.setattr(ReadOut, "_labels", reading_more(some_queries))
        assert not same_answers(life.sessions(life.context), life.sessions(other))
        monkeypatch.setattr(ReadOut, "_labels", reading_more(unlabelled_nodes_of_novel_classes))
        assert not same_answers(life.sessions(life.context), life.sessions(other))


# Labels that may not be read again.


def spoiled(life: Life, monkeypatch: pytest.MonkeyPatch) -> Answers:
    """The answers where, after each session, garbage stands for every label that may not be read again."""
    context = with_own_labels(life.context)

    def spoil(session: int) -> None:
        rng = np.random.default_rng(session)
        for seed, scenario in enumerate(context.scenarios):
            stream = scenario.test
            again = readable_again(stream, memories[-1] if memories else None, seed, session)
            gone = np.setdiff1d(np.flatnonzero(stream.arrival <= session), again)
            assert len(gone) > 100
            scenario.labels[gone] = rng.choice(stream.met(session), len(gone))
            for support in stream.support[: session + 1]:
                support[:] = rng.choice(gone, support.shape)

    with monkeypatch.context() as patch:
        memories = memories_made(patch)
        return life.sessions(context, spoil)


def base_train_nodes(scenario: Scenario, session: int) -> np.ndarray:
    return scenario.nodes_of(scenario.test.known, TRAIN)


def supports_of_earlier_sessions(scenario: Scenario, session: int) -> np.ndarray:
    return np.unique(np.concatenate(scenario.test.support[: max(session, 1)]))


@pytest.mark.parametrize(
    ("method", "rehearsal"),
    kinds_with(["none", "1"], kinds=("hag-meta", "sgc-lda"), fully=(), methods=HONEST),
)
def test_labels_that_may_not_be_read_again_change_no_answer(
    tiny_graph: Dataset, tiny: Tiny, monkeypatch: pytest.MonkeyPatch, method: str, rehearsal: str
) -> None:
    life = Life(tiny(method=method, rehearsal=rehearsal, **ALL), tiny_graph)
    assert same_answers(life.sessions(life.context), spoiled(life, monkeypatch))
    for leak in (base_train_nodes, supports_of_earlier_sessions) if method in TRIED else ():
        monkeypatch.setattr(ReadOut, "_labels", reading_more(leak))
        assert not same_answers(life.sessions(life.context), spoiled(life, monkeypatch)), leak


# What is held, node by node.


def held_nodes(life: Life, monkeypatch: pytest.MonkeyPatch) -> list[list[dict[int, int]]]:
    """By session and seed: the nodes that are held, and the positions of their classes."""
    found: list[list[dict[int, int]]] = []
    ordinary = Pack.run

    def watched(self: Pack, step: Step, shared: tuple[Any, ...], *seedwise: Any) -> Any:
        if step is smoothed:
            pairs = zip(*(part.tolist() for part in seedwise[-2:]), strict=True)
            found.append([dict(zip(*pair, strict=True)) for pair in pairs])
        return ordinary(self, step, shared, *seedwise)

    with monkeypatch.context() as patch:
        patch.setattr(Pack, "run", watched)
        life.sessions(life.context)
    return found


def readable_in(stream: Stream, scenario: Scenario, rehearsal: str, session: int) -> np.ndarray:
    """What the protocol's table lets a session read."""
    if rehearsal == "none":
        return stream.support[session].ravel() if session else base_train_nodes(scenario, 0)
    if rehearsal == "all" or not session:
        return np.concatenate(
            [base_train_nodes(scenario, 0), np.concatenate(stream.support[: session + 1]).ravel()]
        )
    assert stream.rehearsed is not None
    earlier = np.concatenate(stream.rehearsed.support[:session]).ravel()
    return np.concatenate([*stream.rehearsed.known, earlier, stream.support[session].ravel()])


@pytest.mark.parametrize(
    ("method", "rehearsal"),
    kinds_with(["all", "1", "none"], methods=[name for name in HONEST if name not in REPLAYING]),
)
def test_held_are_the_labels_of_the_session_and_those_that_are_read_again(
    tiny_graph: Dataset, tiny: Tiny, monkeypatch: pytest.MonkeyPatch, method: str, rehearsal: str
) -> None:
    life = Life(tiny(method=method, rehearsal=rehearsal, smoothing=0.5), tiny_graph)
    found = held_nodes(life, monkeypatch)
    assert len(found) == 3
    for session, by_seed in enumerate(found):
        for scenario, held in zip(life.context.scenarios, by_seed, strict=True):
            stream = scenario.test
            assert set(held) == set(readable_in(stream, scenario, rehearsal, session))
            positions = scenario.positions(stream.met(session))
            assert all(positions[scenario.labels[node]] == place for node, place in held.items())


@pytest.mark.parametrize(("rehearsal", "base", "later"), [("all", 3, 2), ("1", 1, 1)])
@pytest.mark.parametrize("method", REPLAYING)
def test_of_what_is_replayed_the_memory_is_held(
    tiny_graph: Dataset,
    tiny: Tiny,
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    rehearsal: str,
    base: int,
    later: int,
) -> None:
    # Of the labels that there were the method has chosen some.
    life = Life(tiny(method=method, rehearsal=rehearsal, smoothing=0.5), tiny_graph)
    for session, by_seed in enumerate(held_nodes(life, monkeypatch)):
        for scenario, held in zip(life.context.scenarios, by_seed, strict=True):
            assert set(held) <= set(readable_in(scenario.test, scenario, "all", session))
            counts = np.bincount(list(held.values()), minlength=4 + 2 * session)
            assert counts.tolist() == [base] * 4 + [later] * 2 * session
