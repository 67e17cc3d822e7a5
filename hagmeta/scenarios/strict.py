"""The protocol of the paper's text, without leaks. Tests prove that nothing leaks."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from hagmeta.packs.randomness import stream as random_stream
from hagmeta.scenarios.base import Protocol
from hagmeta.scenarios.scenario import (
    TRAIN,
    ClassNodes,
    Rehearsed,
    Scenario,
    Stream,
    StreamPlan,
    held_out_size,
)


class Strict(Protocol):
    """Methods train on train nodes, choose by validation nodes, and are scored on test nodes afterwards.

    A class known at session 0 is represented by its train nodes. A class that arrives later is represented by
    its K supports. The setting `rehearsal` decides which labels may be used again after the session of their
    class: all, at most M per class, or none. With none, a method keeps what it computed in that session.
    """

    name = "strict"
    leaks = False
    # Revision 1 broke ties between class sizes by name, and averaged validation over queries, not classes.
    revision = 2
    # Degrees in the whole graph would reveal nodes that are not visible yet.
    decides: ClassVar = {"faithful": False}
    validates = True
    scores_while_learning = False
    has_oracles = True

    @classmethod
    def default_query_shot(cls, k_shot: int) -> int:
        return k_shot

    @property
    def queries_needed(self) -> int:
        assert self.settings.query_shot
        return self.settings.query_shot

    def large_enough(self, counts: np.ndarray) -> np.ndarray:
        assert self.settings.k_shot
        held_out = held_out_size(counts)
        return (held_out >= 1) & (counts - 2 * held_out >= self.settings.k_shot + self.queries_needed)

    def support_candidates(self, nodes: ClassNodes, c: int) -> np.ndarray:
        return nodes.at_once(c, TRAIN)

    @property
    def most_rehearsed(self) -> int | None:
        return self.settings.rehearsed

    def rehearsed(self, plan: StreamPlan, seed: int) -> Rehearsed | None:
        return None if self.most_rehearsed is None else self._drawn(plan, seed, self.most_rehearsed)

    def exemplars(self, plan: StreamPlan, seed: int) -> np.ndarray | None:
        most = self.settings.exemplars
        if not most:
            return None
        known, support = self._drawn(plan, seed, most)
        rows = [*known, *support.reshape(-1, support.shape[-1])]
        return np.stack([np.pad(nodes, (0, most - len(nodes)), constant_values=-1) for nodes in rows])

    @staticmethod
    def _drawn(plan: StreamPlan, seed: int, most: int) -> Rehearsed:
        """Draw at most `most` nodes per class. The draw depends only on the seed and the class."""

        def drawn(c: int, nodes: np.ndarray) -> np.ndarray:
            return random_stream(seed, f"rehearsal/{c}").permutation(nodes)[:most]

        known = tuple(drawn(c, plan.nodes.at_once(c, TRAIN)) for c in plan.known)
        pairs = zip(plan.arriving, plan.support, strict=True)
        support = [[drawn(c, nodes) for c, nodes in zip(*pair, strict=True)] for pair in pairs]
        return Rehearsed(known, np.array(support, dtype=np.int64))

    def queries(self, plan: StreamPlan, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
        """Return all nodes of one role, or ``queries_per_class`` per class, the same in every session."""

        def of(classes: np.ndarray) -> list[np.ndarray]:
            return [self.asked(plan.nodes, c, plan.role, rng) for c in classes]

        chosen = of(plan.known)
        queries = [np.sort(np.concatenate(chosen))]
        for session in plan.arriving:
            chosen += of(session)
            queries.append(np.sort(np.concatenate(chosen)))
        return tuple(queries)

    def asked(self, nodes: ClassNodes, c: int, role: int, rng: np.random.Generator) -> np.ndarray:
        """Return the queries of class ``c``: nodes with ``role``, at most ``queries_per_class``."""
        return rng.permutation(nodes.of_role(c, role))[: self.settings.queries_per_class or None]

    def pretrain_classes(self, scenario: Scenario) -> np.ndarray:
        return scenario.split.base if self.settings.pretrain_on == "base" else scenario.trained

    def labelled(self, scenario: Scenario, classes: np.ndarray) -> np.ndarray:
        return scenario.nodes_of(classes, TRAIN)

    def known_in_training(self, scenario: Scenario, classes: np.ndarray) -> np.ndarray:
        return scenario.nodes_of(classes, TRAIN)

    def known_in_session(self, scenario: Scenario, stream: Stream, session: int) -> np.ndarray:
        if session == 0 or stream.rehearsed is None:
            return scenario.nodes_of(stream.known, TRAIN)
        return np.concatenate(stream.rehearsed.known)

    def averaged_when_merged(self, merged: int) -> int:
        return 0
