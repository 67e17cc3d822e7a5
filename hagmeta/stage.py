"""Where a pack plays: one graph, a world a seed, and the tasks that a method is given there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse
import torch

from hagmeta.config import RunConfig
from hagmeta.episodes import PseudoStream
from hagmeta.graph import ClassMeans, Graph, View
from hagmeta.methods.base import Scene, Task
from hagmeta.pack import stack, stack_padded
from hagmeta.splits import TRAIN
from hagmeta.stream import Stream, World


@dataclass(frozen=True)
class Setting:
    """What is seen and known for a while: through training, or in one session."""

    view: View
    class_means: ClassMeans


@dataclass(frozen=True)
class Stage:
    """Makes the settings, scenes and tasks of a pack."""

    graph: Graph
    worlds: Sequence[World]
    config: RunConfig
    n_way: int

    @property
    def device(self) -> torch.device:
        return self.graph.device

    @property
    def seeds(self) -> list[int]:
        return [world.seed for world in self.worlds]

    def training(self) -> Setting:
        """The setting of meta-training: neither novel-test nor held-out classes are seen."""
        released = self.config.protocol == "released"
        known = [w.validation.known if not released else w.test.known for w in self.worlds]
        return self._setting([w.validation.visible(0) for w in self.worlds], known)

    def session(self, streams: Sequence[Stream], session: int) -> Setting:
        released = self.config.protocol == "released"
        known = [s.met(session) if released else s.known for s in streams]
        return self._setting([s.visible(session) for s in streams], known)

    def _setting(self, visible: list[np.ndarray], known: list[np.ndarray]) -> Setting:
        seen = np.stack(visible)
        members = [self._members(world, classes) for world, classes in zip(self.worlds, known, strict=True)]
        return Setting(self.graph.view(seen), self.graph.class_means(members, seen))

    def _members(self, world: World, classes: np.ndarray) -> scipy.sparse.csr_matrix:
        """Averages over the nodes that make a class known by many: its train nodes.

        Under `released` all its nodes, as the authors' code has it.
        """
        released = self.config.protocol == "released"
        nodes = world.all_nodes_of(classes) if released else world.nodes_of(classes, TRAIN)
        labels = world.labels[nodes]
        share = 1 / np.bincount(labels, minlength=world.num_classes).clip(min=1)
        values = share[labels].astype(np.float32)
        shape = (world.num_classes, self.graph.num_nodes)
        return scipy.sparse.csr_matrix((values, (labels, nodes)), shape=shape)

    def scene(self, setting: Setting, known: int, later: int) -> Scene:
        """A scene of ``known`` classes at the start and ``later`` tasks of N classes since.

        Of the known classes the base ones are one task and the others tasks of N, the last perhaps smaller.
        """
        base = len(self.worlds[0].split.base)
        whole, rest = divmod(known - base, self.n_way)
        sizes = (base, *[self.n_way] * whole, *([rest] if rest else []), *[self.n_way] * later)
        return Scene(self.graph, setting.class_means, sizes)

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
        return Task(
            many=stack((s.known for s in streams), self.device),
            support=stack(
                (s.support[:session].reshape(-1, s.support.shape[-1]) for s in streams), self.device
            ),
            query=stack_padded([s.queries[session] for s in streams], self.device),
        )
