"""The interface of protocols: which nodes and labels a model may see, learn from and predict.

The loops that use a protocol are in ``hagmeta.engine``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from hagmeta.common.errors import UserError, shown
from hagmeta.common.settings.domains import MOST_NODES, Choice, Domain, Whole, whole
from hagmeta.common.settings.setting import BY_METHOD, Settings, setting
from hagmeta.scenarios.scenario import (
    CONTEXT,
    LEAST_BASE,
    TRAIN,
    ClassNodes,
    Rehearsed,
    Scenario,
    Stream,
    StreamPlan,
    training_groups,
)


class ClassSplit(Domain):
    """The numbers of base, novel-train and novel-test classes."""

    def convert(self, value: Any) -> tuple[int, int, int]:
        parts = value.replace(",", " ").split() if isinstance(value, str) else value
        base, train, test = map(whole, parts)
        return base, train, test

    def __str__(self) -> str:
        return "three whole numbers B T E"


@dataclass(frozen=True, kw_only=True)
class TaskSettings(Settings):
    """The task: the order of classes, and the number of labels and queries."""

    classes: tuple[int, int, int] | None = setting(
        None,
        "number of base, novel-train and novel-test classes (default: from the dataset); "
        "with 0 novel-train classes, episodes use part of the base classes",
        ClassSplit(),
        scope="task",
    )
    split: str = setting(
        "drawn",
        "draw the groups of classes, their order and the supports by the seed (drawn), or read them from the "
        "dataset (fixed)",
        Choice(("drawn", "fixed")),
        scope="task",
    )
    drop_small: bool = setting(
        False, "leave out classes with too few nodes instead of stopping", scope="task"
    )
    n_way: int | None = setting(
        None,
        "new classes per session (default: from the dataset)",
        Whole(at_least=1, at_most=MOST_NODES),
        scope="task",
    )
    k_shot: int | None = setting(
        None,
        "labelled nodes per new class (default: from the dataset)",
        Whole(at_least=1, at_most=MOST_NODES),
        scope="task",
    )
    sessions: int | None = setting(
        None,
        "maximum number of sessions (default: as many as N and the classes allow)",
        Whole(at_least=1, at_most=MOST_NODES),
        scope="task",
    )
    query_shot: int | None = setting(
        None,
        "training queries per class (default: K, or 20 under released)",
        Whole(at_least=1, at_most=MOST_NODES),
        scope="method",
    )
    queries_per_class: int = setting(
        0,
        "maximum number of test queries per class, not under released (0: all test nodes)",
        Whole(at_least=0, at_most=MOST_NODES),
        scope="task",
    )
    val_classes: int | str = setting(
        0,
        "number of novel-train classes held out of meta-training for validation, or half "
        "(0: hold out none, validate on all)",
        Whole(words=("half",), at_least=0, at_most=MOST_NODES),
        scope="task",
    )
    scored_on: str = setting(
        "test",
        "nodes that test streams are scored on: test nodes, or validation nodes, for searches on streams "
        "as long as the test's",
        Choice(("test", "validation")),
        scope="task",
    )
    visibility: str = setting(
        "arriving",
        "show nodes and edges when their class arrives (arriving), or all from the start (whole)",
        Choice(("arriving", "whole")),
        scope="task",
    )
    mislabelled: int = setting(
        0,
        "number of wrong supports per arriving class, taken from another class of the same session",
        Whole(at_least=0, at_most=MOST_NODES),
        scope="task",
    )
    unlabelled_nodes: str = setting(
        "all",
        "visible nodes that methods may learn from without labels: all, or train nodes alone (training), so "
        "that nothing is learnt from queries",
        Choice(("all", "training")),
        scope="task",
    )

    def check(self) -> None:
        if self.classes is None:
            return
        base, novel_train, novel_test = self.classes
        if not (base >= 1 <= novel_test and novel_train >= 0 and max(self.classes) <= MOST_NODES):
            raise UserError(
                f"classes is {shown(self.classes)}; expected three counts (base, novel-train, novel-test), "
                f"each from 1 to {MOST_NODES}. Only novel-train may be 0."
            )
        if not novel_train and base < LEAST_BASE:
            raise UserError(
                f"classes is {shown(self.classes)}; expected at least {LEAST_BASE} base classes if there are "
                "no novel-train classes."
            )

    def without_effect(self) -> Mapping[str, str]:
        return {"drop_small": "split"} if self.split == "fixed" else {}

    @property
    def groups(self) -> tuple[int, int, int]:
        """Return the numbers of classes as training uses them. Only resolved settings have them."""
        assert self.classes and self.n_way
        return training_groups(self.classes, self.n_way)

    @property
    def held_out(self) -> int:
        """Return the number of held-out validation classes. Only resolved settings have it."""
        assert isinstance(self.val_classes, int)
        return self.val_classes


@dataclass(frozen=True, kw_only=True)
class LabelSettings(TaskSettings):
    """Which labels a method may use, and which it may use again, if the protocol leaves that open."""

    pretrain_on: str | None = setting(
        BY_METHOD,
        "classes to pre-train on: base, or all that are known at session 0 "
        "(default: known, unless episodes of the method train the encoder on novel-train classes)",
        Choice(("base", "known")),
        scope="method",
    )
    rehearsal: str = setting(
        "all",
        "labels per class that may be used again after its session: all, none, or a maximum number",
        Whole(words=("all", "none"), at_least=1, at_most=MOST_NODES, as_text=True),
        scope="labels",
    )

    @property
    def rehearsed(self) -> int | None:
        """Return the maximum number of labels per class that may be used again; None means all."""
        return {"all": None, "none": 0}[self.rehearsal] if self.rehearsal.isalpha() else int(self.rehearsal)

    @property
    def exemplars(self) -> int:
        """Return the number of labels per class that are used again by a method that keeps statistics."""
        return 0


class Protocol(ABC):
    """The rules of one configuration. A protocol does not depend on methods, packs or devices."""

    name: ClassVar[str]
    leaks: ClassVar[bool]  # whether training uses labels that are scored later
    revision: ClassVar[int] = 1  # increase it when the same settings give different results
    decides: ClassVar[Mapping[str, Any]] = {}  # settings that the protocol overrides
    validates: ClassVar[bool]  # validation streams exist: for early stopping and for tuning
    scores_while_learning: ClassVar[bool]  # accuracy comes from the forward pass of a training step
    drawn_from: ClassVar[str] = ""  # for messages: which nodes supports and queries need
    has_oracles: ClassVar[bool]  # whether oracles see more labels than other methods

    def __init__(self, settings: LabelSettings) -> None:
        self.settings = settings

    @classmethod
    @abstractmethod
    def default_query_shot(cls, k_shot: int) -> int:
        """Return the default number of training queries per class."""

    @property
    @abstractmethod
    def queries_needed(self) -> int:
        """Return the number of queries that each class needs in addition to its supports."""

    @abstractmethod
    def large_enough(self, counts: np.ndarray) -> np.ndarray:
        """Return a mask of classes with enough nodes for supports and queries.

        Args:
            counts: The number of nodes of each class, (classes,).
        """

    def visible(self, scenario: Scenario, stream: Stream, session: int) -> np.ndarray:
        """Return a mask (nodes,) of the nodes that are in the graph at ``session``. Labels stay hidden.

        With ``visibility=whole``, this is the graph of the last test session, for every stream. Classes that
        never arrive stay out, so both settings end with the same graph.
        """
        if self.settings.visibility == "whole":
            return scenario.test.arrived(scenario.test.sessions)
        return stream.arrived(session)

    def learnable(self, scenario: Scenario, visible: np.ndarray) -> np.ndarray:
        """Return a mask (nodes,) of the ``visible`` nodes that a method may learn from without labels."""
        if self.settings.unlabelled_nodes == "all":
            return visible
        return visible & np.isin(scenario.split.role, (TRAIN, CONTEXT))

    def waits(
        self, nodes: ClassNodes, order: np.ndarray | None, first: np.ndarray, seed: int
    ) -> np.ndarray | None:
        """Return how long each node waits after the session of its class; None if no node does.

        Args:
            nodes: The nodes of every class, and their roles.
            order: The position of each node in the source, if the dataset has one.
            first: Nodes that may not wait: supports that the dataset gives.
            seed: The seed.

        Returns:
            Numbers (nodes,) from 0 to below 1: 0 for no wait, otherwise the share of the sessions that are
            left after the session of the class.
        """
        return None

    @abstractmethod
    def support_candidates(self, nodes: ClassNodes, c: int) -> np.ndarray:
        """Return the nodes from which the supports of class ``c`` are drawn."""

    @property
    def most_rehearsed(self) -> int | None:
        """Return the maximum number of labels per class used after its session; None means all."""
        return None

    def rehearsed(self, plan: StreamPlan, seed: int) -> Rehearsed | None:
        """Return the nodes of each class whose labels may be used again; None means all."""
        return None

    def exemplars(self, plan: StreamPlan, seed: int) -> np.ndarray | None:
        """Return the nodes (classes, M) whose labels a method uses again besides statistics, if it does."""
        return None

    @abstractmethod
    def queries(self, plan: StreamPlan, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
        """Return the queries of every session of a stream, from session 0, each in ascending order."""

    @abstractmethod
    def pretrain_classes(self, scenario: Scenario) -> np.ndarray:
        """Return the classes to pre-train on. Their validation labels are used for early stopping."""

    @abstractmethod
    def labelled(self, scenario: Scenario, classes: np.ndarray) -> np.ndarray:
        """Return the nodes of ``classes`` whose labels training may use. Gradient steps of sessions draw from
        them too, up to `most_rehearsed`."""

    @abstractmethod
    def known_in_training(self, scenario: Scenario, classes: np.ndarray) -> np.ndarray:
        """Return the nodes whose mean represents each of ``classes`` in training."""

    @abstractmethod
    def known_in_session(self, scenario: Scenario, stream: Stream, session: int) -> np.ndarray:
        """Return the nodes whose mean represents the initially known classes in ``session``.

        Gradient steps read the labels of `labelled` or `rehearsed` instead.
        """

    @abstractmethod
    def averaged_when_merged(self, merged: int) -> int:
        """Return how many merged classes of a pseudo-stream are represented by means, not by supports."""

    def remarks(self) -> list[str]:
        """Return notes for the user, shown before a run."""
        return []
