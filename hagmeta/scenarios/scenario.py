"""The random choices of one seed: roles of classes and nodes, and the streams of sessions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

import numpy as np

TRAIN, VAL, TEST, CONTEXT = 0, 1, 2, 3  # roles of nodes; CONTEXT nodes have no label and are always visible
NEVER = np.iinfo(np.int16).max  # arrival session of nodes of unused classes
Count = TypeVar("Count", int, np.ndarray)
LEAST_BASE = 2  # base classes; pre-training needs at least two


def held_out_size(count: Count) -> Count:
    """Return the number of validation nodes of a class with ``count`` nodes. It has as many test nodes."""
    return count // 5


def training_groups(classes: tuple[int, int, int], n_way: int) -> tuple[int, int, int]:
    """Return the numbers of base, novel-train and novel-test classes as training uses them.

    Without novel-train classes, half of the base classes take their role, in whole sessions of N. There are
    none if fewer than two base classes would remain.
    """
    base, novel_train, novel_test = classes
    if novel_train:
        return classes
    played = base // 2 // n_way * n_way
    played = played if base - played >= LEAST_BASE else 0
    return base - played, played, novel_test


def mislabel(support: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """Move ``count`` supports of every class to the previous class of its session, cyclically.

    Each class then has ``count`` supports of the next class, at random positions, and no node appears twice.

    Args:
        support: Nodes (..., N, K). The row of a support is its class for the model.
        count: The number of wrong supports per class.
        rng: The generator that draws the positions.

    Returns:
        The nodes (..., N, K).
    """
    if not count:
        return support
    shots = np.broadcast_to(np.arange(support.shape[-1]), support.shape)
    places = rng.permuted(shots, axis=-1)[..., :count]
    moved, given = np.take_along_axis(support, places, axis=-1), support.copy()
    np.put_along_axis(given, places, np.roll(moved, -1, axis=-2), axis=-1)
    return given


@dataclass(frozen=True)
class Split:
    """The split of one seed. Base classes are the largest; the seed breaks ties and shuffles the others.

    With ``split: fixed``, the dataset gives the order of classes and the supports of those that arrive.
    Without novel-train classes, the seed moves part of the base classes to ``novel_train``.
    """

    base: np.ndarray  # (B,) classes
    novel_train: np.ndarray  # (T,) classes, in random order
    novel_test: np.ndarray  # (E,) classes, in the order of arrival
    role: np.ndarray  # (nodes,) TRAIN, VAL, TEST or CONTEXT
    given: Mapping[int, np.ndarray] = field(
        default_factory=dict
    )  # supports (K,) of the test stream, by class

    @property
    def order(self) -> np.ndarray:
        """Return all classes in the order in which they are met."""
        return np.concatenate([self.base, self.novel_train, self.novel_test])


class ClassNodes(NamedTuple):
    """The nodes of every class in ascending order, and their roles."""

    members: list[np.ndarray]  # by class
    role: np.ndarray  # (nodes,)
    waits: np.ndarray | None = None  # (nodes,) as `Protocol.waits` returns them

    def of_role(self, c: int, role: int) -> np.ndarray:
        """Return the nodes of class ``c`` with ``role``."""
        return self.members[c][self.role[self.members[c]] == role]

    def at_once(self, c: int, role: int) -> np.ndarray:
        """Return the nodes of class ``c`` with ``role`` that arrive together with their class."""
        nodes = self.of_role(c, role)
        return nodes if self.waits is None else nodes[self.waits[nodes] == 0]


class StreamPlan(NamedTuple):
    """A stream before its queries are drawn."""

    nodes: ClassNodes
    arriving: tuple[np.ndarray, ...]  # as in `Stream`
    support: tuple[np.ndarray, ...]  # as in `Stream`
    role: int  # of the queries, if the protocol uses it
    arrival: np.ndarray  # (nodes,) session in which a node arrives

    @property
    def known(self) -> np.ndarray:
        """Return the classes that are known at session 0."""
        return self.arriving[0]


class Rehearsed(NamedTuple):
    """Labelled nodes that may be used again after the session of their class. They are drawn in advance."""

    known: tuple[np.ndarray, ...]  # for each class known at session 0
    support: tuple[np.ndarray, ...]  # by session: (classes, at most K) nodes; none in session 0


@dataclass(frozen=True)
class Stream:
    """A stream of sessions. Session 0 has many labels per class; later sessions add N classes with K each.

    `arriving`, `support` and `queries` have an array for each session, from session 0.
    """

    arriving: tuple[np.ndarray, ...]  # classes; those of session 0 are known at the start
    support: tuple[np.ndarray, ...]  # (classes, K) nodes; none in session 0, whose array is (0, K)
    queries: tuple[np.ndarray, ...]  # nodes to classify after the session; ascending
    arrival: np.ndarray  # (nodes,) session in which a node arrives
    labelled_from: (
        np.ndarray
    )  # (nodes,) session in which a node with a label arrives, whatever its role; else NEVER
    rehearsed: Rehearsed | None = None  # if only some labels may be used again
    exemplars: np.ndarray | None = None  # (classes, M) nodes of them, if statistics are kept too; -1 pads
    guessed: np.ndarray | None = None  # (classes, nodes) pseudo-labelled nodes that extend the supports

    @property
    def known(self) -> np.ndarray:
        """Return the classes that are known at session 0."""
        return self.arriving[0]

    @property
    def sessions(self) -> int:
        """Return the number of sessions after session 0."""
        return len(self.arriving) - 1

    def sizes(self, session: int) -> tuple[int, ...]:
        """Return the number of classes of each session up to ``session``."""
        return tuple(len(classes) for classes in self.arriving[: session + 1])

    def met(self, session: int) -> np.ndarray:
        """Return all classes up to ``session``. The position of a class is its label for the model."""
        return np.concatenate(self.arriving[: session + 1])

    def arrived(self, session: int) -> np.ndarray:
        """Return a mask (nodes,) of nodes that have arrived. The protocol decides what is visible."""
        return self.arrival <= session

    def labelled_by(self, session: int) -> np.ndarray:
        """Return a mask (nodes,) of nodes with labels that have arrived. Roles say who may read them."""
        return self.labelled_from <= session

    def supports(self, session: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the supports (classes, shots) of earlier sessions, and those of ``session``."""
        again = self.support if self.rehearsed is None else self.rehearsed.support
        own, earlier = self.support[session], np.concatenate(again[: max(session, 1)])
        if not earlier.shape[1]:  # no label may be used again
            earlier = own[:0]
        if self.guessed is None:
            return earlier, own
        # Earlier classes with fewer labels get more pseudo-labels, so that all have as many supports.
        fewer = own.shape[1] - earlier.shape[1]
        of_earlier, of_own = np.split(self.guessed, [len(earlier)])
        of_own = of_own[: len(own), : of_own.shape[1] - fewer]
        return np.hstack([earlier, of_earlier]), np.hstack([own, of_own])


@dataclass(frozen=True)
class Scenario:
    """All random choices of one seed that come before training, and the labels.

    Splits, supports and arrivals are drawn once. Training then reads ``labels`` only at the nodes that the
    protocol allows. Tests prove this by replacing all other labels.
    """

    seed: int
    labels: np.ndarray  # (nodes,); UNLABELLED for CONTEXT nodes
    num_classes: int
    split: Split
    meta_classes: np.ndarray  # novel-train classes for meta-training
    validation: Stream
    test: Stream

    @property
    def trained(self) -> np.ndarray:
        """Return the classes that training may use, without held-out validation classes."""
        return np.concatenate([self.split.base, self.meta_classes])

    def positions(self, classes: np.ndarray) -> np.ndarray:
        """Return the position of every class of the dataset in ``classes``; -1 if it is not there."""
        positions = np.full(self.num_classes, -1, dtype=np.int64)
        positions[classes] = np.arange(len(classes))
        return positions

    def nodes_of(self, classes: np.ndarray, role: int) -> np.ndarray:
        """Return nodes with ``role`` of ``classes``. Only classes known at session 0 are considered."""
        candidates = np.flatnonzero((self.split.role == role) & self.test.labelled_by(0))
        return candidates[np.isin(self.labels[candidates], classes)]

    def train_nodes_met(self, stream: Stream, session: int) -> np.ndarray:
        """Return the train nodes of all classes up to ``session``. Only oracles may use this."""
        candidates = np.flatnonzero((self.split.role == TRAIN) & stream.labelled_by(session))
        return candidates[np.isin(self.labels[candidates], stream.met(session))]

    def train_nodes_arrived(self, stream: Stream, session: int) -> np.ndarray:
        """Return the train nodes of classes that arrived after session 0. Only oracles may use this."""
        nodes = self.train_nodes_met(stream, session)
        return nodes[~np.isin(self.labels[nodes], stream.known)]

    def all_nodes_of(self, classes: np.ndarray) -> np.ndarray:
        """Return all nodes of ``classes``. Only a protocol that leaks may use this."""
        return np.flatnonzero(np.isin(self.labels, classes) & (self.split.role != CONTEXT))
