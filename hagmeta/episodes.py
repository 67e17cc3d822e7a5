"""Episodes of graph pseudo-incremental learning: pseudo-streams drawn from the training labels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hagmeta.config import RunConfig
from hagmeta.randomness import stream as random_stream
from hagmeta.splits import TRAIN
from hagmeta.stream import World


@dataclass(frozen=True)
class PseudoStream:
    """Session i merges the i-th N classes of ``order``; their supports are kept for the later ones."""

    order: np.ndarray  # (sessions * N,) novel-train classes
    support: np.ndarray  # (sessions * N, K) nodes, a row a class of ``order``
    query: np.ndarray  # (sessions, base + sessions * N, query_shot) nodes; no support among them


class EpisodeSampler:
    """Draws one seed's pseudo-streams, whole streams at a time."""

    def __init__(self, world: World, config: RunConfig) -> None:
        assert config.n_way and config.k_shot and config.query_shot
        self.shots, self.queries = config.k_shot, config.query_shot
        self.sessions = len(world.meta_classes) // config.n_way
        self.base, self.novel = world.split.base, world.meta_classes
        self.classes = self.sessions * config.n_way
        self.rng = random_stream(world.seed, "episodes")
        drawn = [np.array([c]) for c in (*self.base, *self.novel)]
        if config.protocol == "released":
            self.pools = ClassPools([world.all_nodes_of(c) for c in drawn])
        else:
            self.pools = ClassPools([world.nodes_of(c, TRAIN) for c in drawn])

    def draw(self) -> PseudoStream:
        order = self.rng.permutation(len(self.novel))[: self.classes]
        rows = np.concatenate([np.arange(len(self.base)), len(self.base) + order])
        support = self.rng.random((len(rows), self.shots))
        query = self.rng.random((self.sessions, len(rows), self.queries))
        kept = np.broadcast_to(support, (self.sessions, *support.shape))
        nodes = self.pools.distinct(rows, np.concatenate([kept, query], axis=-1))
        return PseudoStream(
            order=self.novel[order],
            support=nodes[0, len(self.base) :, : self.shots],
            query=nodes[:, :, self.shots :],
        )


class ClassPools:
    """Labelled nodes by class, for drawing many distinct ones at once."""

    def __init__(self, pools: list[np.ndarray]) -> None:
        self.sizes = np.array([len(pool) for pool in pools])
        self.nodes = np.zeros((len(pools), self.sizes.max()), dtype=np.int64)
        for row, pool in enumerate(pools):
            self.nodes[row, : len(pool)] = pool

    def distinct(self, rows: np.ndarray, uniform: np.ndarray) -> np.ndarray:
        """Nodes of the classes at ``rows``, distinct along the last axis of ``uniform`` (..., rows, m)."""
        picks = sample_distinct(uniform, self.sizes[rows])
        return self.nodes[rows[:, None], picks]


def sample_distinct(uniform: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Uniform numbers (..., classes, draws) to distinct positions below ``sizes`` (classes,).

    The i-th draw picks one of the positions that are left, counted without those already taken.
    """
    draws = uniform.shape[-1]
    picks = (uniform * (sizes[:, None] - np.arange(draws))).astype(np.int64)
    for i in range(1, draws):
        taken = np.sort(picks[..., :i], axis=-1)
        for j in range(i):
            picks[..., i] += picks[..., i] >= taken[..., j]
    return picks
