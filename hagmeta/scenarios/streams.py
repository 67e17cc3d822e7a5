"""Draw the streams of sessions of a seed."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from hagmeta.common.errors import UserError
from hagmeta.datasets.base import Dataset
from hagmeta.packs.randomness import stream as random_stream
from hagmeta.scenarios import ProtocolSettings, make_protocol
from hagmeta.scenarios.scenario import (
    CONTEXT,
    NEVER,
    TEST,
    VAL,
    ClassNodes,
    Scenario,
    Stream,
    StreamPlan,
    mislabel,
    training_groups,
)
from hagmeta.scenarios.splits import class_members, make_split


def make_scenario(dataset: Dataset, settings: ProtocolSettings, seed: int) -> Scenario:
    """Draw the split and the streams of ``seed``."""
    assert settings.n_way and settings.k_shot
    split = make_split(dataset, settings, seed)
    nodes = ClassNodes(class_members(dataset.labels, dataset.num_classes), split.role)
    first = np.concatenate([np.empty(0, dtype=np.int64), *split.given.values()])
    nodes = nodes._replace(waits=make_protocol(settings).waits(nodes, dataset.node_order, first, seed))
    kept = len(split.novel_train) - settings.held_out
    meta_classes, held_out = split.novel_train[:kept], split.novel_train[kept:]
    known = np.concatenate([split.base, split.novel_train])
    arriving = _in_sessions(split.novel_test, settings.n_way)[: settings.sessions]
    scored = VAL if settings.scored_on == "validation" else TEST
    builder = _Builder(settings, nodes, "stream", seed, split.given)
    test = builder.stream(known, known, arriving, scored, grows=True)
    if settings.val_classes:
        start = np.concatenate([split.base, meta_classes])
        builder = _Builder(settings, nodes, "validation", seed)
        validation = builder.stream(start, start, _in_sessions(held_out, settings.n_way), VAL)
    else:
        validation = validation_stream(settings, nodes, split.base, meta_classes, known, seed)
    return Scenario(seed, dataset.labels, dataset.num_classes, split, meta_classes, validation, test)


def validation_stream(
    settings: ProtocolSettings,
    nodes: ClassNodes,
    base: np.ndarray,
    meta_classes: np.ndarray,
    known: np.ndarray,
    seed: int,
) -> Stream:
    """Draw the validation stream of ``seed`` if no classes are held out for it.

    Args:
        settings: The numbers of classes and nodes to draw.
        nodes: The nodes of every class, and their roles.
        base: The classes that the model knows at session 0.
        meta_classes: The classes that arrive, in random order.
        known: The classes whose nodes are in the graph from the start.
        seed: The seed.
    """
    assert settings.n_way
    builder = _Builder(settings, nodes, "validation", seed)
    shuffled = builder.rng.permutation(meta_classes)
    return builder.stream(base, known, _in_sessions(shuffled, settings.n_way), VAL)


def half_of(classes: tuple[int, int, int], n_way: int) -> int:
    """Return half of the classes that training plays as new, in whole sessions of N. At least N remain."""
    novel_train = training_groups(classes, n_way)[1]
    if novel_train < 2 * n_way and not classes[1]:
        raise UserError(
            f"val_classes is half, but without novel-train classes {classes[0]} base classes are too few for "
            f"n_way = {n_way}; expected at least {4 * n_way}, or val_classes 0."
        )
    if novel_train < 2 * n_way:
        raise UserError(
            f"val_classes is half, but {novel_train} novel-train classes are too few for n_way = {n_way}; "
            f"expected at least {2 * n_way}: {n_way} for validation and {n_way} for training."
        )
    return novel_train // 2 // n_way * n_way


def check_ways(settings: ProtocolSettings) -> None:
    """Raise an error if N, sessions, val_classes or mislabelled do not fit the class split."""
    assert settings.classes and settings.n_way and settings.k_shot
    novel_train, novel_test = settings.groups[1:]
    n_way, sessions, val_classes = settings.n_way, settings.sessions, settings.held_out
    k_shot, mislabelled = settings.k_shot, settings.mislabelled
    kept = novel_train - val_classes
    if settings.scored_on == "validation" and not make_protocol(settings).validates:
        raise UserError(
            f"scored_on is validation, but {settings.protocol} has no validation nodes; "
            "expected scored_on test, or the protocol strict or growing."
        )
    if settings.scored_on == "validation" and val_classes:
        raise UserError(
            f"scored_on is validation and val_classes is {val_classes}; expected val_classes 0, because both "
            "are ways to score a search."
        )
    if mislabelled and n_way < 2:
        raise UserError(
            f"mislabelled is {mislabelled}, but with n_way 1 a session has no other class; "
            "expected n_way of at least 2."
        )
    if mislabelled and mislabelled >= k_shot:
        raise UserError(f"mislabelled is {mislabelled}; expected less than k_shot, which is {k_shot}.")
    if n_way > novel_test:
        raise UserError(
            f"n_way is {n_way}, but only {novel_test} classes are novel-test; "
            "use a smaller n_way, or more novel-test classes."
        )
    if val_classes and not settings.classes[1] and n_way > kept:
        raise UserError(
            f"val_classes is {val_classes}, but without novel-train classes only {novel_train} of the "
            f"{settings.classes[0]} base classes are played as new; expected at most "
            f"{max(novel_train - n_way, 0)}, so that n_way = {n_way} remain for training."
        )
    if settings.classes[1] and n_way > kept:
        raise UserError(
            f"n_way is {n_way}, but only {kept} classes are left to train on as new ones "
            f"({novel_train} novel-train minus {val_classes} val_classes). "
            "Use a smaller n_way, or more novel-train classes."
        )
    if val_classes and val_classes < n_way:
        raise UserError(
            f"val_classes is {val_classes}; expected 0 or at least n_way = {n_way}, for one session."
        )
    if sessions and sessions * n_way > novel_test:
        raise UserError(
            f"{sessions} sessions of {n_way} classes need {sessions * n_way} "
            f"novel-test classes, but there are {novel_test}; use fewer sessions."
        )


def _in_sessions(classes: np.ndarray, n_way: int) -> np.ndarray:
    sessions = len(classes) // n_way
    return classes[: sessions * n_way].reshape(sessions, n_way)


class _Builder:
    """Draws the supports and queries of one stream."""

    def __init__(
        self,
        settings: ProtocolSettings,
        nodes: ClassNodes,
        purpose: str,
        seed: int,
        given: Mapping[int, np.ndarray] | None = None,
    ) -> None:
        assert settings.k_shot
        self.protocol, self.k_shot, self.nodes = make_protocol(settings), settings.k_shot, nodes
        self.given = given or {}  # supports by class, which are not drawn
        self.seed, self.mislabelled = seed, settings.mislabelled
        self.mislabelled_rng = random_stream(seed, f"{purpose}/mislabelled")
        self.rng = random_stream(seed, purpose)
        # A separate generator, so that the number of sessions does not change the queries.
        self.query_rng = random_stream(seed, f"{purpose}/queries")

    def stream(
        self, known: np.ndarray, there: np.ndarray, arriving: np.ndarray, role: int, *, grows: bool = False
    ) -> Stream:
        """Return a stream.

        Args:
            known: The classes that the model knows at session 0.
            there: The classes whose nodes are in the graph at session 0.
            arriving: The classes (sessions, N) of later sessions.
            role: The role of the queries.
            grows: Whether nodes that wait arrive in later sessions; otherwise they never arrive.
        """
        support = np.array([self._support(c) for c in arriving.ravel()], dtype=np.int64)
        support = support.reshape(*arriving.shape, self.k_shot)
        support = mislabel(support, self.mislabelled, self.mislabelled_rng)
        by_session = (known, *arriving), (np.empty((0, self.k_shot), dtype=np.int64), *support)
        arrival = self._arrival(there, arriving, grows)
        labelled_from = arrival.copy()
        labelled_from[self.nodes.role == CONTEXT] = NEVER  # they have no labels to read
        plan = StreamPlan(self.nodes, *by_session, role, arrival)
        queries = self.protocol.queries(plan, self.query_rng)
        again = self.protocol.rehearsed(plan, self.seed), self.protocol.exemplars(plan, self.seed)
        return Stream(*by_session, queries, arrival, labelled_from, *again)

    def _arrival(self, there: np.ndarray, arriving: np.ndarray, grows: bool) -> np.ndarray:
        """Return the session (nodes,) in which each node arrives. Nodes without a class do not need one."""
        arrival = np.full(len(self.nodes.role), NEVER, dtype=np.int16)
        for number, session in enumerate(arriving, start=1):
            for c in session:
                arrival[self.nodes.members[c]] = number
        for c in there:
            arrival[self.nodes.members[c]] = 0
        arrival[self.nodes.role == CONTEXT] = 0
        waits = self.nodes.waits
        if waits is None:
            return arrival
        late = (waits > 0) & (arrival < NEVER)
        left = len(arriving) - arrival[late]  # sessions after that of the class
        arrival[late] += np.minimum(np.floor(waits[late] * left) + 1, left).astype(np.int16)
        return arrival if grows else np.where(late, NEVER, arrival).astype(np.int16)

    def _support(self, c: int) -> np.ndarray:
        if c in self.given:
            return self.given[c]
        return self.rng.choice(self.protocol.support_candidates(self.nodes, c), self.k_shot, replace=False)
