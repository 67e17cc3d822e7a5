"""Draw training data for meta-training: pseudo-streams, N-way K-shot tasks and batches."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hagmeta.packs.randomness import stream as random_stream
from hagmeta.scenarios import ProtocolSettings, make_protocol
from hagmeta.scenarios.scenario import Scenario, mislabel


@dataclass(frozen=True)
class PseudoStream:
    """A simulated stream. Session i adds the i-th group of N classes in ``order``; supports stay the same."""

    order: np.ndarray  # (sessions * N,) novel-train classes
    support: np.ndarray  # (sessions * N, K) nodes, one row per class of ``order``
    query: np.ndarray  # (sessions, base + sessions * N, query_shot) nodes, without supports


class EpisodeSampler:
    """Draws the pseudo-streams of one seed."""

    def __init__(self, scenario: Scenario, settings: ProtocolSettings) -> None:
        assert settings.n_way and settings.k_shot and settings.query_shot
        self.shots, self.queries = settings.k_shot, settings.query_shot
        self.sessions = len(scenario.meta_classes) // settings.n_way
        self.base, self.novel = scenario.split.base, scenario.meta_classes
        self.classes = self.sessions * settings.n_way
        self.ways, self.mislabelled = settings.n_way, settings.mislabelled
        self.rng = random_stream(scenario.seed, "episodes")
        self.mislabelled_rng = random_stream(scenario.seed, "episodes/mislabelled")
        self.pools = training_pools(scenario, scenario.trained, settings)

    def draw(self) -> PseudoStream:
        """Return the next pseudo-stream."""
        order = self.rng.permutation(len(self.novel))[: self.classes]
        rows = np.concatenate([np.arange(len(self.base)), len(self.base) + order])
        support = self.rng.random((len(rows), self.shots))
        query = self.rng.random((self.sessions, len(rows), self.queries))
        kept = np.broadcast_to(support, (self.sessions, *support.shape))
        nodes = self.pools.distinct(rows, np.concatenate([kept, query], axis=-1))
        support = nodes[0, len(self.base) :, : self.shots].reshape(-1, self.ways, self.shots)
        return PseudoStream(
            order=self.novel[order],
            support=mislabel(support, self.mislabelled, self.mislabelled_rng).reshape(-1, self.shots),
            query=nodes[:, :, self.shots :],
        )


class TaskSampler:
    """Draws the N-way K-shot tasks of one seed, each with N novel-train classes, or two if N is 1."""

    def __init__(self, scenario: Scenario, settings: ProtocolSettings) -> None:
        assert settings.n_way and settings.k_shot and settings.query_shot
        self.classes = scenario.meta_classes
        self.ways = min(max(settings.n_way, 2), len(self.classes))  # one class gives no training signal
        self.shots, self.queries = settings.k_shot, settings.query_shot
        self.mislabelled = settings.mislabelled
        self.rng = random_stream(scenario.seed, "episodes/tasks")
        self.mislabelled_rng = random_stream(scenario.seed, "episodes/tasks/mislabelled")
        self.pools = training_pools(scenario, self.classes, settings)

    def draw(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return classes (N,), supports (N, K) and queries (N, query_shot)."""
        rows = self.rng.permutation(len(self.classes))[: self.ways]
        nodes = self.pools.distinct(rows, self.rng.random((self.ways, self.shots + self.queries)))
        support = mislabel(nodes[:, : self.shots], self.mislabelled, self.mislabelled_rng)
        return self.classes[rows], support, nodes[:, self.shots :]


class BatchSampler:
    """Draws the batches of one seed: some nodes of every training class."""

    def __init__(self, scenario: Scenario, settings: ProtocolSettings) -> None:
        assert settings.query_shot
        self.queries, self.classes = settings.query_shot, scenario.trained
        self.rng = random_stream(scenario.seed, "episodes/batches")
        self.pools = training_pools(scenario, self.classes, settings)

    def draw(self) -> np.ndarray:
        """Return nodes (classes, query_shot)."""
        rows = np.arange(len(self.classes))
        return self.pools.distinct(rows, self.rng.random((len(rows), self.queries)))


def training_pools(scenario: Scenario, classes: np.ndarray, settings: ProtocolSettings) -> ClassPools:
    """Return, for each class, the nodes whose labels training may use."""
    protocol = make_protocol(settings)
    return ClassPools([protocol.labelled(scenario, np.array([c])) for c in classes])


class ClassPools:
    """Labelled nodes by class, from which many distinct nodes can be drawn at once."""

    def __init__(self, pools: list[np.ndarray]) -> None:
        self.sizes = np.array([len(pool) for pool in pools])
        self.nodes = np.zeros((len(pools), self.sizes.max()), dtype=np.int64)
        for row, pool in enumerate(pools):
            self.nodes[row, : len(pool)] = pool

    def distinct(self, rows: np.ndarray, uniform: np.ndarray) -> np.ndarray:
        """Return nodes of the classes at ``rows``, distinct along the last axis.

        Args:
            rows: Positions of classes.
            uniform: Uniform random numbers (..., rows, m).
        """
        picks = sample_distinct(uniform, self.sizes[rows])
        return self.nodes[rows[:, None], picks]


def sample_distinct(uniform: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Map uniform numbers (..., classes, draws) to distinct positions below ``sizes`` (classes,).

    The i-th draw picks one of the remaining positions.
    """
    draws = uniform.shape[-1]
    picks = (uniform * (sizes[:, None] - np.arange(draws))).astype(np.int64)
    for i in range(1, draws):
        taken = np.sort(picks[..., :i], axis=-1)
        for j in range(i):
            picks[..., i] += picks[..., i] >= taken[..., j]
    return picks
