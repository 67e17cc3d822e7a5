"""The sequence of sessions that one seed's model lives through."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hagmeta.common.errors import UserError
from hagmeta.config import RELEASED_QUERIES, RunConfig
from hagmeta.datasets.base import NodeDataset
from hagmeta.packs.randomness import stream as random_stream
from hagmeta.protocol.splits import TEST, TRAIN, VAL, Split, class_members, make_split

NEVER = np.iinfo(np.int16).max  # the session in which nodes of an unused class become visible


@dataclass(frozen=True)
class Stream:
    """Session 0 knows its classes by many labels; each later session brings N more with K labels each."""

    known: np.ndarray  # (classes,) met at session 0
    arriving: np.ndarray  # (sessions, N) classes
    support: np.ndarray  # (sessions, N, K) nodes
    queries: tuple[np.ndarray, ...]  # nodes to classify after each session, 0 included; ascending
    arrival: np.ndarray  # (nodes,) the session in which a node becomes visible

    @property
    def sessions(self) -> int:
        return len(self.arriving)

    def met(self, session: int) -> np.ndarray:
        """Classes met by then, in that order: a class's position is its label to the model."""
        return np.concatenate([self.known, self.arriving[:session].ravel()])

    def visible(self, session: int) -> np.ndarray:
        return self.arrival <= session


@dataclass(frozen=True)
class World:
    """All that one seed fixes before anything learns, and the labels.

    Splits, supports and visibility are drawn here, once. What learns afterwards reads ``labels`` at the
    nodes its protocol allows and at no other, which the tests prove by replacing the others.
    """

    seed: int
    labels: np.ndarray  # (nodes,)
    num_classes: int
    split: Split
    meta_classes: np.ndarray  # the novel-train classes that meta-training may use
    validation: Stream
    test: Stream

    @property
    def trained(self) -> np.ndarray:
        """Classes that training may know: held-out ones are not among them."""
        return np.concatenate([self.split.base, self.meta_classes])

    def positions(self, classes: np.ndarray) -> np.ndarray:
        """The place of every class of the dataset among ``classes``; -1 for those that have none."""
        positions = np.full(self.num_classes, -1, dtype=np.int64)
        positions[classes] = np.arange(len(classes))
        return positions

    def nodes_of(self, classes: np.ndarray, role: int) -> np.ndarray:
        """Nodes of one role labelled with one of ``classes``, among those seen before any session."""
        candidates = np.flatnonzero((self.split.role == role) & self.test.visible(0))
        return candidates[np.isin(self.labels[candidates], classes)]

    def train_nodes_met(self, stream: Stream, session: int) -> np.ndarray:
        """Train nodes of every class met by a session of a stream: what only an oracle may ask."""
        candidates = np.flatnonzero((self.split.role == TRAIN) & stream.visible(session))
        return candidates[np.isin(self.labels[candidates], stream.met(session))]

    def all_nodes_of(self, classes: np.ndarray) -> np.ndarray:
        """Every node labelled with one of ``classes``: what only the `released` protocol may ask."""
        return np.flatnonzero(np.isin(self.labels, classes))


def make_world(dataset: NodeDataset, config: RunConfig, seed: int) -> World:
    """Draw one seed's split and streams."""
    assert config.n_way and config.k_shot
    split = make_split(dataset, config, seed)
    members = class_members(dataset.labels, dataset.num_classes)
    kept = len(split.novel_train) - config.val_classes
    meta_classes, held_out = split.novel_train[:kept], split.novel_train[kept:]
    known = np.concatenate([split.base, split.novel_train])
    arriving = _in_sessions(split.novel_test, config.n_way)[: config.sessions]
    test = _Builder(dataset, config, split, members, "stream", seed).stream(known, known, arriving, TEST)
    builder = _Builder(dataset, config, split, members, "validation", seed)
    if config.val_classes:
        start = np.concatenate([split.base, meta_classes])
        validation = builder.stream(start, start, _in_sessions(held_out, config.n_way), VAL)
    else:
        shuffled = builder.rng.permutation(meta_classes)
        validation = builder.stream(split.base, known, _in_sessions(shuffled, config.n_way), VAL)
    return World(seed, dataset.labels, dataset.num_classes, split, meta_classes, validation, test)


def check_ways(config: RunConfig) -> None:
    """Refuse an N that the class split cannot feed."""
    assert config.classes and config.n_way
    _, novel_train, novel_test = config.classes
    kept = novel_train - config.val_classes
    if config.n_way > novel_test:
        raise UserError(f"n_way is {config.n_way}, but only {novel_test} classes are novel-test.")
    if config.n_way > kept:
        raise UserError(
            f"n_way is {config.n_way}, but meta-training has only {kept} classes "
            f"({novel_train} novel-train less {config.val_classes} val_classes)."
        )
    if config.val_classes and config.val_classes < config.n_way:
        raise UserError(
            f"val_classes is {config.val_classes}; a validation session needs n_way = {config.n_way} of them."
        )
    if config.sessions and config.sessions * config.n_way > novel_test:
        raise UserError(
            f"{config.sessions} sessions of {config.n_way} classes need {config.sessions * config.n_way} "
            f"novel-test classes; there are {novel_test}."
        )


def _in_sessions(classes: np.ndarray, n_way: int) -> np.ndarray:
    sessions = len(classes) // n_way
    return classes[: sessions * n_way].reshape(sessions, n_way)


class _Builder:
    """Draws one stream's supports and queries from the seed's generator for it."""

    def __init__(
        self,
        dataset: NodeDataset,
        config: RunConfig,
        split: Split,
        members: list[np.ndarray],
        purpose: str,
        seed: int,
    ) -> None:
        self.config, self.split, self.members = config, split, members
        self.num_nodes = dataset.num_nodes
        self.rng = random_stream(seed, purpose)
        self.query_rng = random_stream(seed, f"{purpose}/queries")  # fewer sessions leave them as they are

    def stream(self, known: np.ndarray, visible: np.ndarray, arriving: np.ndarray, role: int) -> Stream:
        """A stream whose ``visible`` classes are seen from the start, with queries of one role."""
        support = np.array([[self._support(c) for c in session] for session in arriving])
        arrival = np.full(self.num_nodes, NEVER, dtype=np.int16)
        for number, session in enumerate(arriving, start=1):
            for c in session:
                arrival[self.members[c]] = number
        for c in visible:
            arrival[self.members[c]] = 0
        if self.config.protocol == "released":
            queries = self._redrawn_queries(known, arriving, support)
        else:
            queries = self._fixed_queries(known, arriving, role)
        return Stream(known, arriving, support, queries, arrival)

    def _support(self, c: int) -> np.ndarray:
        nodes = self.members[c]
        if self.config.protocol == "strict":
            nodes = nodes[self.split.role[nodes] == TRAIN]
        return self.rng.choice(nodes, self.config.k_shot, replace=False)

    def _fixed_queries(self, known: np.ndarray, arriving: np.ndarray, role: int) -> tuple[np.ndarray, ...]:
        """At most ``queries_per_class`` nodes of one role, the same in every session."""

        def of(classes: np.ndarray) -> list[np.ndarray]:
            pools = [self.members[c][self.split.role[self.members[c]] == role] for c in classes]
            return [self.query_rng.permutation(pool)[: self.config.queries_per_class] for pool in pools]

        chosen = of(known)
        queries = [np.sort(np.concatenate(chosen))]
        for session in arriving:
            chosen += of(session)
            queries.append(np.sort(np.concatenate(chosen)))
        return tuple(queries)

    def _redrawn_queries(
        self, known: np.ndarray, arriving: np.ndarray, support: np.ndarray
    ) -> tuple[np.ndarray, ...]:
        """As the authors draw them: anew in each session, from all nodes of a class but its supports."""
        queries = []
        for number in range(len(arriving) + 1):
            met = np.concatenate([known, arriving[:number].ravel()])
            taken = support[number - 1] if number else np.empty(0, dtype=np.int64)
            pools = [np.setdiff1d(self.members[c], taken) for c in met]
            drawn = [self.query_rng.choice(pool, RELEASED_QUERIES, replace=False) for pool in pools]
            queries.append(np.sort(np.concatenate(drawn)))
        return tuple(queries)
