"""What one seed fixes before anything learns: roles of classes and nodes, and the streams of sessions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np

TRAIN, VAL, TEST, CONTEXT = 0, 1, 2, 3  # roles of nodes; CONTEXT: those without a label, always visible
NEVER = np.iinfo(np.int16).max  # of an unused class: the session in which its nodes arrive
Count = TypeVar("Count", int, np.ndarray)


def held_out_size(count: Count) -> Count:
    """Nodes of a class of ``count`` kept for validation, and as many for testing."""
    return count // 5


def mislabel(support: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """Supports (..., N, K) with ``count`` of every class given to the class before it, cyclically.

    So each of a session's N classes has as many nodes of the next one, in places that are drawn, and no node
    is given to two. To whoever is handed them a support's class is its row.
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
    """One seed's split. Base classes are the largest; the seed chooses among equals and shuffles the rest."""

    base: np.ndarray  # (B,) classes
    novel_train: np.ndarray  # (T,) classes, in the seed's order
    novel_test: np.ndarray  # (E,) classes, in the order in which they will arrive
    role: np.ndarray  # (nodes,) TRAIN, VAL, TEST or CONTEXT

    @property
    def order(self) -> np.ndarray:
        """Every class in the order in which it is met."""
        return np.concatenate([self.base, self.novel_train, self.novel_test])


class ClassNodes(NamedTuple):
    """The nodes of every class, ascending, and their roles: what supports and queries are drawn from."""

    members: list[np.ndarray]  # by class
    role: np.ndarray  # (nodes,)

    def of_role(self, c: int, role: int) -> np.ndarray:
        return self.members[c][self.role[self.members[c]] == role]


class StreamPlan(NamedTuple):
    """A stream before its queries are drawn."""

    nodes: ClassNodes
    known: np.ndarray  # (classes,) met at session 0
    arriving: np.ndarray  # (sessions, N) classes
    support: np.ndarray  # (sessions, N, K) nodes
    role: int  # of the nodes to ask, where that counts


class Rehearsed(NamedTuple):
    """Labelled nodes that may be read again after their class's session: drawn once, before any."""

    known: tuple[np.ndarray, ...]  # of each class met at session 0
    support: np.ndarray  # (sessions, N, at most K) nodes


@dataclass(frozen=True)
class Stream:
    """Session 0 knows its classes by many labels; each later session brings N more with K labels each."""

    known: np.ndarray  # (classes,) met at session 0
    arriving: np.ndarray  # (sessions, N) classes
    support: np.ndarray  # (sessions, N, K) nodes
    queries: tuple[np.ndarray, ...]  # nodes to classify after each session, 0 included; ascending
    arrival: np.ndarray  # (nodes,) the session in which a node comes into the graph, if not there before
    readable_from: np.ndarray  # (nodes,) the session before which nobody may read a node's label
    rehearsed: Rehearsed | None = None  # where not every label may be read again
    guessed: np.ndarray | None = None  # (classes, nodes) that a method adds to the supports of a session

    @property
    def sessions(self) -> int:
        return len(self.arriving)

    def met(self, session: int) -> np.ndarray:
        """Classes met by then, in that order: a class's position is its label to the model."""
        return np.concatenate([self.known, self.arriving[:session].ravel()])

    def arrived(self, session: int) -> np.ndarray:
        """Nodes (nodes,) that have come by then. What is visible, the protocol says."""
        return self.arrival <= session

    def readable(self, session: int) -> np.ndarray:
        """Nodes (nodes,) whose labels somebody may read by then, whatever is visible."""
        return self.readable_from <= session

    def supports(self, session: int) -> tuple[np.ndarray, np.ndarray]:
        """Supports (classes, shots) that may be read in a session: those of earlier ones, and its own."""
        first = max(session - 1, 0)
        again = self.support if self.rehearsed is None else self.rehearsed.support
        own = self.support[first:session].reshape(-1, self.support.shape[-1])
        earlier = again[:first].reshape(-1, again.shape[-1]) if again.size else own[:0]
        if self.guessed is None:
            return earlier, own
        # With fewer labels to read again, more are guessed: all classes have as many supports.
        fewer = own.shape[1] - earlier.shape[1]
        of_earlier, of_own = np.split(self.guessed, [len(earlier)])
        of_own = of_own[: len(own), : of_own.shape[1] - fewer]
        return np.hstack([earlier, of_earlier]), np.hstack([own, of_own])


@dataclass(frozen=True)
class Scenario:
    """All that one seed fixes before anything learns, and the labels.

    Splits, supports and arrivals are drawn here, once. What learns afterwards reads ``labels`` at the
    nodes its protocol allows and at no other, which the tests prove by replacing the others.
    """

    seed: int
    labels: np.ndarray  # (nodes,); UNLABELLED where the role is CONTEXT
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
        """Nodes of one role labelled with one of ``classes``, among those of classes known at the start."""
        candidates = np.flatnonzero((self.split.role == role) & self.test.readable(0))
        return candidates[np.isin(self.labels[candidates], classes)]

    def train_nodes_met(self, stream: Stream, session: int) -> np.ndarray:
        """Train nodes of every class met by a session of a stream: what only an oracle may ask."""
        candidates = np.flatnonzero((self.split.role == TRAIN) & stream.readable(session))
        return candidates[np.isin(self.labels[candidates], stream.met(session))]

    def train_nodes_arrived(self, stream: Stream, session: int) -> np.ndarray:
        """Those of them that are of classes which came after the stream's start."""
        nodes = self.train_nodes_met(stream, session)
        return nodes[~np.isin(self.labels[nodes], stream.known)]

    def all_nodes_of(self, classes: np.ndarray) -> np.ndarray:
        """Every node labelled with one of ``classes``: what only a protocol that leaks may ask."""
        return np.flatnonzero(np.isin(self.labels, classes) & (self.split.role != CONTEXT))
