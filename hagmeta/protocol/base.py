"""What a protocol must say: what a model may see, learn from and be asked. The loops are in ``phases``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from hagmeta.common.errors import UserError, shown
from hagmeta.common.settings import BY_METHOD, MOST_NODES, Settings, setting
from hagmeta.protocol.scenario import ClassNodes, Rehearsed, Scenario, Stream, StreamPlan


@dataclass(frozen=True, kw_only=True)
class TaskSettings(Settings):
    """Which classes come when, with how many labels and queries."""

    classes: tuple[int, int, int] | None = setting(
        None, "how many classes are base, novel-train and novel-test (default: the dataset's)"
    )
    drop_small: bool = setting(False, "leave out classes with too few nodes instead of stopping")
    n_way: int | None = setting(
        None, "new classes a session (default: the dataset's)", at_least=1, at_most=MOST_NODES
    )
    k_shot: int | None = setting(
        None, "labelled nodes a new class (default: the dataset's)", at_least=1, at_most=MOST_NODES
    )
    sessions: int | None = setting(
        None, "at most so many sessions (default: all that N allows)", at_least=1, at_most=MOST_NODES
    )
    query_shot: int | None = setting(
        None,
        "training queries a class (default: K under strict, 20 under released)",
        at_least=1,
        at_most=MOST_NODES,
    )
    queries_per_class: int = setting(
        0,
        "at most so many test nodes a class are asked under strict (0: all)",
        at_least=0,
        at_most=MOST_NODES,
    )
    val_classes: int | str = setting(
        0,
        "novel-train classes kept out of meta-training to validate on (0: validate on all), or half of them",
        words=("half",),
        at_least=0,
        at_most=MOST_NODES,
    )
    visibility: str = setting(
        "arriving",
        "nodes and edges are there when their class is met (arriving), or all from the start (whole)",
        choices=("arriving", "whole"),
        birth="arriving",
    )
    mislabelled: int = setting(
        0,
        "supports of every arriving class, in streams and episodes, that are nodes of another of its session",
        at_least=0,
        at_most=MOST_NODES,
        birth=0,
    )

    def check(self) -> None:
        if self.classes is not None and not 1 <= min(self.classes) <= max(self.classes) <= MOST_NODES:
            raise UserError(
                f"classes is {shown(self.classes)}: each of the three counts must be at least 1 and at most "
                f"{MOST_NODES}."
            )

    @property
    def held_out(self) -> int:
        """So many classes to validate on, of resolved settings."""
        assert isinstance(self.val_classes, int)
        return self.val_classes


@dataclass(frozen=True, kw_only=True)
class LabelSettings(TaskSettings):
    """Which labels are learnt from, and which again, where the protocol leaves that open."""

    pretrain_on: str | None = setting(
        BY_METHOD,
        "classes whose train labels pre-training learns from: base, or all known at session 0 "
        "(default: known, unless the method's episodes train the encoder on the others)",
        choices=("base", "known"),
        birth="base",
    )
    rehearsal: str = setting(
        "all",
        "labels of a class that are read again after its session: all, none, or at most so many",
        words=("all", "none"),
        at_least=1,
        at_most=MOST_NODES,
        birth="all",
    )

    @property
    def rehearsed(self) -> int | None:
        """So many labels of a class are read again at most; None: all of them."""
        return {"all": None, "none": 0}[self.rehearsal] if self.rehearsal.isalpha() else int(self.rehearsal)


class Protocol(ABC):
    """Answers questions, for one configuration; it knows no method, no pack and no device."""

    name: ClassVar[str]
    leaks: ClassVar[bool]  # whether what is scored was learnt from
    revision: ClassVar[int] = 1  # raise it when the same settings would give other results
    decides: ClassVar[Mapping[str, Any]] = {}  # settings that it fixes, whatever is configured
    validates: ClassVar[bool]  # training is stopped, and settings can be chosen, by validation streams
    scores_while_learning: ClassVar[bool]  # accuracy is read from the pass whose loss is then descended
    has_oracles: ClassVar[bool]  # an oracle knows more than the other methods

    def __init__(self, settings: LabelSettings) -> None:
        self.settings = settings

    @classmethod
    @abstractmethod
    def default_query_shot(cls, k_shot: int) -> int:
        """Training queries a class, where none are given."""

    # Which classes can be used.

    @property
    @abstractmethod
    def queries_needed(self) -> int:
        """Queries that a class must have beside its supports."""

    @abstractmethod
    def large_enough(self, counts: np.ndarray) -> np.ndarray:
        """Which classes of so many nodes have enough for supports and queries."""

    # What is visible, and what is asked.

    def visible(self, scenario: Scenario, stream: Stream, session: int) -> np.ndarray:
        """Which nodes (nodes,) take part in the graph at a session. It says nothing of their labels.

        Where all is visible from the start, that is what the last session of the test stream sees, whichever
        the stream: classes that never arrive stay out, so that either setting ends in the same graph.
        """
        if self.settings.visibility == "whole":
            return scenario.test.arrived(scenario.test.sessions)
        return stream.arrived(session)

    @abstractmethod
    def support_candidates(self, nodes: ClassNodes, c: int) -> np.ndarray:
        """The nodes from which the supports of a class are drawn."""

    @property
    def most_rehearsed(self) -> int | None:
        """At most so many labels of a class are read again after its session; None: all of them."""
        return None

    def rehearsed(self, plan: StreamPlan, seed: int) -> Rehearsed | None:
        """The nodes of a stream's classes that they are read at, where it is not all."""
        return None

    @abstractmethod
    def queries(self, plan: StreamPlan, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
        """The queries of every session of a stream, 0 included, each ascending."""

    # What training may read, and by what a class is known.

    @abstractmethod
    def pretrain_classes(self, scenario: Scenario) -> np.ndarray:
        """Classes whose train labels pre-training learns from, and whose val labels stop it."""

    @abstractmethod
    def labelled(self, scenario: Scenario, classes: np.ndarray) -> np.ndarray:
        """Nodes whose labels training may read, of some classes that it may know."""

    @abstractmethod
    def known_in_training(self, scenario: Scenario, classes: np.ndarray) -> np.ndarray:
        """The nodes over which ``classes`` are averaged in training."""

    @abstractmethod
    def known_in_session(self, scenario: Scenario, stream: Stream, session: int) -> np.ndarray:
        """The nodes over which classes are averaged in a session."""

    @abstractmethod
    def averaged_when_merged(self, merged: int) -> int:
        """How many of the classes that a pseudo-stream has merged are known by averages, not by supports."""

    def remarks(self) -> list[str]:
        """What a user should know before a run."""
        return []
