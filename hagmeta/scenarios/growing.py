"""The strict protocol on a graph that grows: nodes and edges of old classes arrive in every session."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from hagmeta.packs.randomness import stream as random_stream
from hagmeta.scenarios.scenario import CONTEXT, TEST, TRAIN, VAL, ClassNodes, Count, StreamPlan, held_out_size
from hagmeta.scenarios.strict import Strict


def first_half(count: Count) -> Count:
    """Return how many of ``count`` nodes arrive with their class: half of them, rounded up."""
    return count - count // 2


class Growing(Strict):
    """Like `strict`, but only half of the nodes of a class arrive with it. The others arrive later.

    They arrive evenly, up to the last session, each with its edges to nodes that are there. So the last graph
    is that of `strict`. Nodes without a class are treated like those of a class known at session 0.

    The order is that of the dataset if it has one (``Dataset.node_order``). Otherwise the seed draws it. It
    is applied within each class and role, so it tells nothing about the class of a node.

    Labels do not grow. Supports, train labels and validation labels come from nodes that arrive with their
    class, and later nodes bring none. The queries of a session are all test nodes that are there. Validation
    streams take place before session 1, so they have only nodes of session 0.
    """

    name = "growing"
    revision = 1
    drawn_from = " among the nodes that arrive with their class"
    # Nodes arrive by their own time, so there is no graph that is whole from the start.
    decides: ClassVar = {**Strict.decides, "visibility": "arriving"}

    def large_enough(self, counts: np.ndarray) -> np.ndarray:
        assert self.settings.k_shot
        held_out = held_out_size(counts)
        train = first_half(counts - 2 * held_out)
        return (held_out >= 1) & (train >= self.settings.k_shot + self.queries_needed)

    def waits(
        self, nodes: ClassNodes, order: np.ndarray | None, first: np.ndarray, seed: int
    ) -> np.ndarray | None:
        drawn = random_stream(seed, "growth").permutation(len(nodes.role))
        position = drawn if order is None else order.copy()
        position[first] -= len(position)
        waits = np.zeros(len(position))
        for group in self._groups(nodes):
            later = group[np.argsort(position[group])][first_half(len(group)) :]
            waits[later] = (np.arange(len(later)) + 0.5) / len(later)
        return waits

    @staticmethod
    def _groups(nodes: ClassNodes) -> Iterator[np.ndarray]:
        """Yield the nodes of each class and role, and those without a class."""
        for c in range(len(nodes.members)):
            yield from (nodes.of_role(c, role) for role in (TRAIN, VAL, TEST))
        yield np.flatnonzero(nodes.role == CONTEXT)

    def queries(self, plan: StreamPlan, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
        """Return the nodes of one role that are there, or at most ``queries_per_class`` per class."""
        every = super().queries(plan, rng)
        return tuple(asked[plan.arrival[asked] <= session] for session, asked in enumerate(every))

    def asked(self, nodes: ClassNodes, c: int, role: int, rng: np.random.Generator) -> np.ndarray:
        """Draw at most ``queries_per_class`` nodes, half of them from those that arrive with their class."""
        shuffled, most = rng.permutation(nodes.of_role(c, role)), self.settings.queries_per_class
        if not most:
            return shuffled
        early = np.isin(shuffled, nodes.at_once(c, role))
        return np.concatenate([shuffled[early][: first_half(most)], shuffled[~early][: most // 2]])
