"""What the gradient steps of a session learn from: labels that `strict` allows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from hagmeta.methods.base import Scene, Task
from hagmeta.packs.pack import Pack, stack
from hagmeta.packs.randomness import stream as random_stream
from hagmeta.phases.context import Stage
from hagmeta.phases.memory import Memory
from hagmeta.protocol.episodes import ClassPools
from hagmeta.protocol.splits import TRAIN
from hagmeta.protocol.streams import Stream, World
from hagmeta.sparse.graph import View


class SessionLesson(ABC):
    """What is learnt from in the steps of a session."""

    @abstractmethod
    def begin(self, pack: Pack, scene: Scene, view: View, session: int) -> None:
        """Get ready for a session's steps."""

    @abstractmethod
    def task(self, session: int) -> tuple[Task, Tensor]:
        """The task of one step, and the targets of its queries."""


class HeldOutLesson(SessionLesson):
    """In each step one support of every class plays the query and the others the support.

    Classes known by many add queries from their train nodes; to an oracle all classes are such. With K = 1
    nothing could be left of a support, so that new classes then take part as prototypes only.
    """

    def __init__(self, stage: Stage, streams: Sequence[Stream], purpose: str) -> None:
        self.stage, self.streams = stage, streams
        self.rng = [random_stream(seed, f"finetune/{purpose}") for seed in stage.seeds]
        self.pools: list[ClassPools] = []

    def begin(self, pack: Pack, scene: Scene, view: View, session: int) -> None:
        if not self.pools or self.stage.method.oracle:
            pairs = zip(self.stage.worlds, self.streams, strict=True)
            self.pools = [self._pools(world, stream, session) for world, stream in pairs]

    def _pools(self, world: World, stream: Stream, session: int) -> ClassPools:
        if not self.stage.method.oracle:
            return ClassPools([world.nodes_of(np.array([c]), TRAIN) for c in stream.known])
        nodes = world.train_nodes_met(stream, session)
        return ClassPools([nodes[world.labels[nodes] == c] for c in stream.met(session)])

    def task(self, session: int) -> tuple[Task, Tensor]:
        oracle = self.stage.method.oracle
        supports, queries = [], []
        for rng, pools, stream in zip(self.rng, self.pools, self.streams, strict=True):
            rows = np.arange(len(pools.sizes))
            of_known = pools.distinct(rows, rng.random((len(rows), self.stage.config.query_shot or 1)))
            shots = stream.support.shape[-1]
            few = stream.support[: 0 if oracle else session].reshape(-1, shots)
            order = rng.permuted(np.tile(np.arange(shots), (len(few), 1)), axis=1)
            few = np.take_along_axis(few, order, axis=1)
            held_out = few[:, :1] if shots > 1 else few[:, :0]
            supports.append(few[:, held_out.shape[1] :])
            queries.append(np.concatenate([of_known.ravel(), held_out.ravel()]))
        known, shots = of_known.shape
        target = np.repeat(np.arange(known), shots)
        target = np.concatenate([target, known + np.arange(held_out.size)])
        classes = [s.met(session) for s in self.streams]
        many = [c[:known] for c in classes]
        task = self.stage.stacked(classes, many, supports, queries)
        return task, stack([target] * len(self.streams))


class ReplayLesson(SessionLesson):
    """Every step learns all of the new supports, and all that is kept of the classes met before."""

    def __init__(self, stage: Stage, streams: Sequence[Stream], memory: Memory) -> None:
        self.stage, self.streams, self.memory = stage, streams, memory

    def begin(self, pack: Pack, scene: Scene, view: View, session: int) -> None:
        new = [s.support[session - 1] for s in self.streams]  # (N, K)
        queries = [np.concatenate([k, n.ravel()]) for k, n in zip(self.memory.nodes(), new, strict=True)]
        classes = [s.met(session) for s in self.streams]
        ways, shots = new[0].shape
        first = len(classes[0]) - ways
        target = np.concatenate([self.memory.targets(), np.repeat(first + np.arange(ways), shots)])
        nothing = [c[:0] for c in classes]
        none_known = [c[:0, None] for c in classes]
        batch = self.stage.stacked(classes, nothing, none_known, queries).on(self.stage.device)
        self.batch = batch._replace(recalled=recall(pack, scene, view, batch))
        self.target = stack([target] * len(self.streams)).to(self.stage.device)

    def task(self, session: int) -> tuple[Task, Tensor]:
        return self.batch, self.target


@torch.no_grad()
def recall(pack: Pack, scene: Scene, view: View, task: Task) -> tuple[Tensor, ...]:
    """What the model, as it is before a session's first step, gives the task's queries."""
    recalled: tuple[Tensor, ...] = pack.run("recall", (scene,), view, task)
    return recalled
