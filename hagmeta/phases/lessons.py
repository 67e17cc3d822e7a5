"""What the gradient steps of a session learn from: labels that the protocol allows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from hagmeta.methods.base import Shared, Task
from hagmeta.packs.pack import Pack, stack
from hagmeta.packs.randomness import stream as random_stream
from hagmeta.phases.context import Context
from hagmeta.phases.memory import Memory
from hagmeta.protocol.episodes import ClassPools, training_pools
from hagmeta.protocol.scenario import Scenario, Stream
from hagmeta.sparse.graph import View


class Lesson(ABC):
    """What is learnt from in the steps of a session."""

    @abstractmethod
    def begin(self, pack: Pack, shared: Shared, view: View, session: int) -> None:
        """Get ready for a session's steps."""

    @abstractmethod
    def task(self, session: int) -> tuple[Task, Tensor]:
        """The task of one step, and the targets of its queries."""


class HeldOutLesson(Lesson):
    """In each step one support of every class plays the query and the others the support.

    Classes known by averages add queries from their train nodes; to an oracle all classes are such. With
    K = 1 nothing could be left of a support, so that new classes then take part as prototypes only.
    """

    def __init__(self, context: Context, streams: Sequence[Stream], purpose: str) -> None:
        self.context, self.streams = context, streams
        self.rng = [random_stream(seed, f"finetune/{purpose}") for seed in context.seeds]
        self.pools: list[ClassPools] = []

    def begin(self, pack: Pack, shared: Shared, view: View, session: int) -> None:
        if not self.pools or self.context.oracle:
            pairs = zip(self.context.scenarios, self.streams, strict=True)
            self.pools = [self._pools(scenario, stream, session) for scenario, stream in pairs]

    def _pools(self, scenario: Scenario, stream: Stream, session: int) -> ClassPools:
        if not self.context.oracle:
            return training_pools(scenario, stream.known, self.context.settings)
        nodes = scenario.train_nodes_met(stream, session)
        return ClassPools([nodes[scenario.labels[nodes] == c] for c in stream.met(session)])

    def task(self, session: int) -> tuple[Task, Tensor]:
        oracle = self.context.oracle
        supports, queries = [], []
        for rng, pools, stream in zip(self.rng, self.pools, self.streams, strict=True):
            rows = np.arange(len(pools.sizes))
            of_known = pools.distinct(rows, rng.random((len(rows), self.context.settings.query_shot or 1)))
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
        averaged = [c[:known] for c in classes]
        task = self.context.stacked(classes, averaged, supports, queries)
        return task, stack([target] * len(self.streams))


class ReplayLesson(Lesson):
    """Every step learns all of the new supports, and all that is kept of the classes met before."""

    def __init__(self, context: Context, streams: Sequence[Stream], memory: Memory) -> None:
        self.context, self.streams, self.memory = context, streams, memory

    def begin(self, pack: Pack, shared: Shared, view: View, session: int) -> None:
        new = [s.support[session - 1] for s in self.streams]  # (N, K)
        queries = [np.concatenate([k, n.ravel()]) for k, n in zip(self.memory.nodes(), new, strict=True)]
        classes = [s.met(session) for s in self.streams]
        ways, shots = new[0].shape
        first = len(classes[0]) - ways
        target = np.concatenate([self.memory.targets(), np.repeat(first + np.arange(ways), shots)])
        nothing = [c[:0] for c in classes]
        none_known = [c[:0, None] for c in classes]
        batch = self.context.stacked(classes, nothing, none_known, queries).on(self.context.device)
        self.batch = batch._replace(recalled=recall(pack, shared, view, batch))
        self.target = stack([target] * len(self.streams)).to(self.context.device)

    def task(self, session: int) -> tuple[Task, Tensor]:
        return self.batch, self.target


@torch.no_grad()
def recall(pack: Pack, shared: Shared, view: View, task: Task) -> tuple[Tensor, ...]:
    """What the model, as it is before a session's first step, gives the task's queries."""
    recalled: tuple[Tensor, ...] = pack.run("recall", (shared,), view, task)
    return recalled
