"""Where a pack plays: one graph, a world a seed, and the tasks that a method is given there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse
import torch

from hagmeta.config import RunConfig
from hagmeta.episodes import PseudoStream
from hagmeta.graph import Graph
from hagmeta.matrix import SeedwiseMatrix
from hagmeta.methods.base import Scene, Task
from hagmeta.pack import stack, stack_padded
from hagmeta.splits import TRAIN
from hagmeta.stream import Stream, World


@dataclass(frozen=True)
class Stage:
    graph: Graph
    worlds: Sequence[World]
    config: RunConfig
    n_way: int
    class_means: SeedwiseMatrix

    @property
    def device(self) -> torch.device:
        return self.graph.device

    @property
    def seeds(self) -> list[int]:
        return [world.seed for world in self.worlds]

    def scene(self, known: int, later: int) -> Scene:
        """A scene of ``known`` classes at the start and ``later`` tasks of N classes since.

        Of the known classes the base ones are one task and the others tasks of N, the last perhaps smaller.
        """
        base = len(self.worlds[0].split.base)
        whole, rest = divmod(known - base, self.n_way)
        sizes = (base, *[self.n_way] * whole, *([rest] if rest else []), *[self.n_way] * later)
        return Scene(self.graph, self.class_means, sizes)

    def episode(self, drawn: Sequence[PseudoStream], session: int) -> tuple[Task, np.ndarray]:
        """A pseudo-stream's task, session by session, and the targets of its queries."""
        base, merged = self.worlds[0].split.base, session * self.n_way
        met = merged + self.n_way
        # Under `released` a merged class is known by all its nodes, otherwise by its cached supports.
        first_few = merged if self.config.protocol == "released" else 0
        task = Task(
            many=stack((np.concatenate([base, s.order[:first_few]]) for s in drawn), self.device),
            support=stack((s.support[first_few:met] for s in drawn), self.device),
            query=stack((s.query[session, : len(base) + met].ravel() for s in drawn), self.device),
        )
        return task, np.repeat(np.arange(len(base) + met), drawn[0].query.shape[-1])

    def task(self, streams: Sequence[Stream], session: int) -> Task:
        """What is known after a session of a stream, and its queries."""
        few = slice(session - 1, session) if self.config.protocol == "released" else slice(0, session)
        if session == 0:
            few = slice(0, 0)
        many = [s.met(session - 1) if self.config.protocol == "released" and session else s.known for s in streams]
        return Task(
            many=stack(many, self.device),
            support=stack((s.support[few].reshape(-1, s.support.shape[-1]) for s in streams), self.device),
            query=stack_padded([s.queries[session] for s in streams], self.device),
        )


def make_stage(graph: Graph, worlds: Sequence[World], config: RunConfig) -> Stage:
    assert config.n_way
    return Stage(graph, worlds, config, config.n_way, _class_means(graph, worlds, config))


def _class_means(graph: Graph, worlds: Sequence[World], config: RunConfig) -> SeedwiseMatrix:
    """Averages over the nodes that make a class known by many: its train nodes.

    Under `released` all nodes of every class, as the authors' code has it.
    """
    matrices = []
    for world in worlds:
        if config.protocol == "released":
            nodes = world.nodes_of(world.split.order)
        else:
            nodes = world.nodes_of(np.concatenate([world.split.base, world.split.novel_train]), TRAIN)
        labels = world.labels[nodes]
        share = 1 / np.bincount(labels, minlength=world.num_classes).clip(min=1)
        values = share[labels].astype(np.float32)
        shape = (world.num_classes, graph.num_nodes)
        matrices.append(scipy.sparse.csr_matrix((values, (labels, nodes)), shape=shape))
    return SeedwiseMatrix(matrices, graph.device)
