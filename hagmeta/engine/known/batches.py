"""The training tasks of a session's gradient steps, made from labels that the protocol allows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hagmeta.engine.context import Context
from hagmeta.engine.known.memory import Memory
from hagmeta.engine.known.tasks import repeated_to_equal_shots, stacked
from hagmeta.methods.base import Method, SessionLearning, Shared, Task
from hagmeta.packs.pack import Pack, stack
from hagmeta.packs.randomness import stream as random_stream
from hagmeta.scenarios.episodes import ClassPools, training_pools
from hagmeta.scenarios.scenario import Scenario, Stream
from hagmeta.sparse.graph import View


class SessionBatches(ABC):
    """The training tasks for the gradient steps of a session."""

    has_targets = True  # False if its tasks have nothing to predict

    @abstractmethod
    def begin(self, pack: Pack, shared: Shared, view: View, streams: Sequence[Stream], session: int) -> None:
        """Prepare for the steps of `session`, which learn the supports of `streams`."""

    def parts(self, steps: int) -> Sequence[int]:
        """Split the number of `steps` of a session into parts. `begin` is called before each part."""
        return (steps,)

    @abstractmethod
    def task(self, session: int) -> tuple[Task, Tensor]:
        """Return the task of one step, and the targets of its queries."""

    def end(self) -> None:  # noqa: B027 (most subclasses have nothing to do)
        """Release what only the steps of a session need."""

    def state(self) -> list[Any]:
        """Return the state on which later tasks depend, for checkpoints."""
        return []

    def load(self, state: list[Any]) -> None:
        """Continue from a state that `state` returned."""
        assert not state


class HeldOutBatches(SessionBatches):
    """In each step, one support of every class is the query and the others are the supports.

    Classes known by averages add queries from their train nodes. For an oracle, all classes are such classes.
    With K = 1 there is no support to hold out, so new classes take part as prototypes only. The same holds
    for earlier classes if at most one of their labels may be read again.
    """

    def __init__(self, context: Context, streams: Sequence[Stream], purpose: str) -> None:
        self.context, self.streams = context, streams
        self.rng = [random_stream(seed, f"finetune/{purpose}") for seed in context.seeds]
        self.pools: list[ClassPools] = []
        wanted, most = context.settings.query_shot or 1, context.protocol.most_rehearsed
        self.queries = wanted if most is None else min(wanted, most)  # per class known by its average
        self.has_targets = self.queries > 0 or streams[0].support[0].shape[-1] > 1

    def begin(self, pack: Pack, shared: Shared, view: View, streams: Sequence[Stream], session: int) -> None:
        self.streams = streams
        if not self.pools or self.context.known.oracle:
            pairs = zip(self.context.scenarios, self.streams, strict=True)
            self.pools = [self._pools(scenario, stream, session) for scenario, stream in pairs]

    def _pools(self, scenario: Scenario, stream: Stream, session: int) -> ClassPools:
        if stream.rehearsed is not None:
            return ClassPools(list(stream.rehearsed.known))
        if not self.context.known.oracle:
            return training_pools(scenario, stream.known, self.context.settings)
        nodes = scenario.train_nodes_met(stream, session)
        return ClassPools([nodes[scenario.labels[nodes] == c] for c in stream.met(session)])

    def state(self) -> list[Any]:
        return [rng.bit_generator.state for rng in self.rng]

    def load(self, state: list[Any]) -> None:
        for rng, each in zip(self.rng, state, strict=True):
            rng.bit_generator.state = each

    def task(self, session: int) -> tuple[Task, Tensor]:
        supports, queries = [], []
        for rng, pools, stream in zip(self.rng, self.pools, self.streams, strict=True):
            rows = np.arange(len(pools.sizes))
            of_known = pools.distinct(rows, rng.random((len(rows), self.queries)))
            few = stream.supports(0 if self.context.known.oracle else session)
            (earlier, asked_earlier), (own, asked_own) = (self._held_one_out(rng, nodes) for nodes in few)
            supports.append(repeated_to_equal_shots(earlier, own))
            queries.append(np.concatenate([of_known.ravel(), asked_earlier.ravel(), asked_own.ravel()]))
        classes = [s.met(session) for s in self.streams]
        known, new = len(rows), len(classes[0]) - len(own)  # where earlier and new classes begin
        target = np.concatenate(
            [
                np.repeat(rows, self.queries),
                known + np.arange(asked_earlier.size),
                new + np.arange(asked_own.size),
            ]
        )
        averaged = [c[: 0 if self.context.tasks.keeps_prototypes else known] for c in classes]
        task = stacked(classes, averaged, supports, queries)
        return task, stack([target] * len(self.streams))

    @staticmethod
    def _held_one_out(rng: np.random.Generator, support: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Shuffle supports (classes, shots). Return those that stay, and the held-out one, if any."""
        classes, shots = support.shape
        order = rng.permuted(np.tile(np.arange(shots), (classes, 1)), axis=1)
        shuffled, asked = np.take_along_axis(support, order, axis=1), int(shots > 1)
        return _without(shuffled[:, asked:], shuffled[:, :asked]), shuffled[:, :asked]


def _without(stay: np.ndarray, asked: np.ndarray) -> np.ndarray:
    """Replace copies of the `asked` node (classes, 1) in `stay` (classes, shots) by other nodes of its row.

    Rows have copies only if classes have different numbers of labels. A class with one label keeps it.
    """
    if not asked.size:
        return stay
    copies = (stay == asked) & (stay != asked).any(1, keepdims=True)
    stay = stay.copy() if copies.any() else stay
    for row in np.flatnonzero(copies.any(1)):
        stay[row, copies[row]] = np.resize(stay[row, ~copies[row]], copies[row].sum())
    return stay


class SupportBatches(SessionBatches):
    """Every step learns all new supports."""

    def __init__(self, context: Context) -> None:
        self.context = context

    def earlier(self, streams: Sequence[Stream]) -> tuple[list[np.ndarray], np.ndarray]:
        """Return the nodes of earlier classes to learn, one array per seed, and their targets."""
        nothing = np.empty(0, dtype=np.int64)
        return [nothing] * len(streams), nothing

    def begin(self, pack: Pack, shared: Shared, view: View, streams: Sequence[Stream], session: int) -> None:
        kept, kept_target = self.earlier(streams)
        new = [s.supports(session)[1] for s in streams]  # (N, K)
        queries = [np.concatenate([k, n.ravel()]) for k, n in zip(kept, new, strict=True)]
        classes = [s.met(session) for s in streams]
        ways, shots = new[0].shape
        first = len(classes[0]) - ways
        target = np.concatenate([kept_target, np.repeat(first + np.arange(ways), shots)])
        nothing = [c[:0] for c in classes]
        none_known = [c[:0, None] for c in classes]
        batch = stacked(classes, nothing, none_known, queries).on(self.context.runtime.device)
        self.batch = before_steps(pack, shared, view, batch)
        self.target = stack([target] * len(streams)).to(self.context.runtime.device)

    def task(self, session: int) -> tuple[Task, Tensor]:
        return self.batch, self.target


class ReplayBatches(SupportBatches):
    """Every step learns all new supports and all stored nodes of earlier classes."""

    def __init__(self, context: Context, memory: Memory) -> None:
        super().__init__(context)
        self.memory = memory

    def earlier(self, streams: Sequence[Stream]) -> tuple[list[np.ndarray], np.ndarray]:
        return self.memory.nodes(), self.memory.targets()


class PseudoLabelBatches(SessionBatches):
    """Steps learn all readable labels, and the method's predictions before the first step and halfway."""

    def __init__(self, context: Context) -> None:
        self.context = context
        settings = context.settings
        self.has_targets = settings.finetune_steps > 0 and "finetune_steps" not in settings.idle

    def begin(self, pack: Pack, shared: Shared, view: View, streams: Sequence[Stream], session: int) -> None:
        task = self.context.tasks.session(streams, session)
        self.batch = before_steps(pack, shared, view, task)._replace(query=task.query[:, :0])

    def parts(self, steps: int) -> Sequence[int]:
        return [half for half in (steps - steps // 2, steps // 2) if half]

    def task(self, session: int) -> tuple[Task, Tensor]:
        return self.batch, self.batch.query

    def end(self) -> None:
        del self.batch


@torch.no_grad()
def before_steps(pack: Pack, shared: Shared, view: View, task: Task) -> Task:
    """Return `task` with what the coming steps need of the current model (`Method.before_steps`)."""
    return task._replace(before_steps=pack.run("before_steps", (shared,), view, task))


def batches_of(method: type[Method]) -> type[SessionBatches]:
    """Return what kind of batches a session of `method` is."""
    if method.session_learning is SessionLearning.REPLAY:
        return ReplayBatches
    if method.session_learning is SessionLearning.SUPPORTS:
        return SupportBatches
    return PseudoLabelBatches if method.session_learning is SessionLearning.PSEUDO_LABELS else HeldOutBatches
