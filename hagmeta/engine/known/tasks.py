"""The tasks of a method, with a row for each seed of a pack."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from hagmeta.engine.known.session import Known
from hagmeta.methods.base import Shared, Task
from hagmeta.packs.pack import stack, stack_padded
from hagmeta.scenarios import Protocol
from hagmeta.scenarios.episodes import PseudoStream
from hagmeta.scenarios.scenario import Scenario, Stream
from hagmeta.sparse.graph import Graph

Arrays = Sequence[np.ndarray] | np.ndarray  # one per seed


def repeated_to_equal_shots(earlier: np.ndarray, own: np.ndarray) -> np.ndarray:
    """Return earlier and new supports (classes, shots) in one array.

    Supports are repeated so that all rows have the same length. This does not change the means.
    """
    parts = [rows for rows in (earlier, own) if len(rows)] or [own]
    shots = math.lcm(*(rows.shape[1] for rows in parts))
    return np.concatenate([np.repeat(rows, shots // rows.shape[1], axis=1) for rows in parts])


def stacked(classes: Arrays, averaged: Arrays, support: Arrays, query: Arrays) -> Task:
    """Return a task in host memory, given each of its parts as one array per seed."""
    return Task(stack(classes), stack(averaged), stack(support), stack(query))


@dataclass(frozen=True)
class TaskMaker:
    """Creates the tasks of episodes and sessions, and the arguments that their seeds share."""

    graph: Graph
    scenarios: Sequence[Scenario]
    protocol: Protocol
    n_way: int

    @property
    def pseudo_sessions(self) -> int:
        """The number of sessions in a pseudo-stream."""
        return len(self.scenarios[0].meta_classes) // self.n_way

    @property
    def keeps_prototypes(self) -> bool:
        """Whether no label of an earlier class may be read again, so that computed statistics are kept."""
        return self.protocol.most_rehearsed == 0

    def shared(self, known: Known, sizes: Sequence[int]) -> Shared:
        """Return what seeds share, given the number of classes known at the start and of each later task.

        Of the classes known at the start, the base classes are one task. The others are tasks of N, and the
        last may be smaller.
        """
        first, *later = sizes
        base = len(self.scenarios[0].split.base)
        whole, rest = divmod(first - base, self.n_way)
        earlier = (base, *[self.n_way] * whole, *([rest] if rest else []))
        return Shared(known.graph, known.class_means, (*earlier, *later))

    def episode(self, drawn: Sequence[PseudoStream], session: int) -> tuple[Task, np.ndarray]:
        """Return the task of one session of a pseudo-stream, and the targets of its queries."""
        merged = session * self.n_way
        met = merged + self.n_way
        averaged = self.protocol.averaged_when_merged(merged)
        bases = [scenario.split.base for scenario in self.scenarios]
        count = len(bases[0]) + met
        task = stacked(
            classes=[np.concatenate([b, s.order[:met]]) for b, s in zip(bases, drawn, strict=True)],
            averaged=[np.concatenate([b, s.order[:averaged]]) for b, s in zip(bases, drawn, strict=True)],
            support=[s.support[averaged:met] for s in drawn],
            query=[s.query[session, :count].ravel() for s in drawn],
        )
        return task, np.repeat(np.arange(count), drawn[0].query.shape[-1])

    def session(self, streams: Sequence[Stream], session: int, all_averaged: bool = False) -> Task:
        """Return the classes known after `session` of `streams`, and its queries.

        `all_averaged` is as in `Known`. If only prototypes are kept of earlier classes, the caller adds
        these.
        """
        known = 0 if session and self.keeps_prototypes else len(streams[0].known)
        averaged = [s.met(session) if all_averaged else s.known[:known] for s in streams]
        supports = [repeated_to_equal_shots(*s.supports(0 if all_averaged else session)) for s in streams]
        return Task(
            classes=stack(s.met(session) for s in streams),
            averaged=stack(averaged),
            support=stack(supports),
            query=stack_padded([s.queries[session] for s in streams]),
            exemplars=self._exemplars(streams, session),
        ).on(self.graph.device)

    @staticmethod
    def _exemplars(streams: Sequence[Stream], session: int) -> tuple[Tensor, ...]:
        """Return the exemplars (seeds, classes, M) of all classes up to `session`, if there are any."""
        drawn = [s.exemplars[: len(s.met(session))] for s in streams if s.exemplars is not None]
        return (stack(drawn),) if drawn else ()
