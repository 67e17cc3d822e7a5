"""What meta-training draws from the training labels: pseudo-streams, N-way K-shot tasks, batches."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hagmeta.config import RunConfig
from hagmeta.packs.randomness import stream as random_stream
from hagmeta.protocol.splits import TRAIN
from hagmeta.protocol.streams import World


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
        self.pools = training_pools(world, world.trained, config)

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


class TaskSampler:
    """Draws one seed's N-way K-shot tasks, each of N novel-train classes."""

    def __init__(self, world: World, config: RunConfig) -> None:
        assert config.n_way and config.k_shot and config.query_shot
        self.ways, self.shots, self.queries = config.n_way, config.k_shot, config.query_shot
        self.classes = world.meta_classes
        self.rng = random_stream(world.seed, "episodes/tasks")
        self.pools = training_pools(world, self.classes, config)

    def draw(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Classes (N,), supports (N, K) and queries (N, query_shot)."""
        rows = self.rng.permutation(len(self.classes))[: self.ways]
        nodes = self.pools.distinct(rows, self.rng.random((self.ways, self.shots + self.queries)))
        return self.classes[rows], nodes[:, : self.shots], nodes[:, self.shots :]


class BatchSampler:
    """Draws one seed's batches: some nodes of every class that training may know."""

    def __init__(self, world: World, config: RunConfig) -> None:
        assert config.query_shot
        self.queries, self.classes = config.query_shot, world.trained
        self.rng = random_stream(world.seed, "episodes/batches")
        self.pools = training_pools(world, self.classes, config)

    def draw(self) -> np.ndarray:
        """Nodes (classes, query_shot)."""
        rows = np.arange(len(self.classes))
        return self.pools.distinct(rows, self.rng.random((len(rows), self.queries)))


def training_pools(world: World, classes: np.ndarray, config: RunConfig) -> ClassPools:
    """The labelled nodes of each class: train nodes, under `released` all."""
    if config.protocol == "released":
        return ClassPools([world.all_nodes_of(np.array([c])) for c in classes])
    return ClassPools([world.nodes_of(np.array([c]), TRAIN) for c in classes])


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
