"""The engine of the sessions: it learns from a few labels in each session, then classifies the queries."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from hagmeta.engine.context import Context
from hagmeta.engine.hooks import add_classes, consolidate
from hagmeta.engine.known.batches import (
    HeldOutBatches,
    PseudoLabelBatches,
    ReplayBatches,
    SessionBatches,
    SupportBatches,
    batches_of,
)
from hagmeta.engine.known.memory import Memory
from hagmeta.engine.known.session import Known
from hagmeta.engine.scores.readout import ReadOut
from hagmeta.engine.scores.temperature import fitted_temperature
from hagmeta.engine.training.divergence import check_losses, check_scores
from hagmeta.methods.base import SessionLearning, Shared, Task
from hagmeta.packs.pack import Pack, Parameters, stack_padded
from hagmeta.packs.randomness import fold, keys
from hagmeta.scenarios.scenario import VAL, Stream
from hagmeta.sparse.graph import View

# A tuple per seed: queries, their predicted classes, and the probabilities of these, if there are any. Then
# these probabilities with a temperature, if there is one.
Answers = list[tuple[np.ndarray, np.ndarray, np.ndarray | None, np.ndarray | None]]


@dataclass
class EngineState:
    """Everything on which later sessions and predictions depend. Checkpoints and learners keep it."""

    parameters: list[Parameters] = field(default_factory=list)  # of each seed, in host memory
    finished: int = 0  # number of sessions that were learnt and answered
    # Parameters that the session changed after its statistics were computed, as they were before.
    before: list[Parameters] = field(default_factory=list)
    class_statistics: tuple[Tensor, ...] = ()  # of earlier classes, with a pack axis, if only these are kept
    label_counts: np.ndarray = field(default_factory=lambda: np.empty((1, 0), dtype=np.int64))  # behind them
    replay: list[list[np.ndarray]] = field(default_factory=list)  # as in `Memory`
    draws: list[Any] = field(default_factory=list)  # states of random generators
    step: int = 0  # gradient steps in all sessions
    temperature: Tensor | None = None  # (pack,)

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> EngineState:
        """Return the state that a checkpoint has, in which all arrays are tensors."""
        return cls(
            **{
                **stored,
                "class_statistics": tuple(stored["class_statistics"]),
                "label_counts": stored["label_counts"].numpy(),
                "replay": [[rows.numpy() for rows in kept] for kept in stored["replay"]],
            }
        )


class Learnt(NamedTuple):
    """What is known in a session."""

    given: Known  # by the protocol
    known: Known  # for predictions: with the statistics of the method, and classes known by its memory
    streams: Sequence[Stream]  # with self-training nodes, if there are any


class Engine(ABC):
    """Plays the sessions of some streams, one per seed, with a pack.

    Call `learn` and `answer` for each session, and `consolidate` before the next.
    """

    def __init__(self, context: Context, pack: Pack, streams: Sequence[Stream], purpose: str) -> None:
        self.context, self.pack, self.streams, self.purpose = context, pack, streams, purpose
        self.key = keys(context.seeds, f"dropout/{purpose}")
        self.diagnosed: dict[str, np.ndarray] = {}  # diagnostics of the last session: a number per seed
        self.finished = 0

    @abstractmethod
    def learn(self, session: int) -> Learnt:
        """Learn from the labels of `session`. Return what its predictions need."""

    @abstractmethod
    def answer(self, learnt: Learnt, session: int) -> Answers:
        """Return the predictions for the queries of `session`."""

    def consolidate(self, learnt: Learnt, session: int) -> None:
        """Let the method summarise what it learnt in `session`."""
        consolidate(self.context, self.pack, learnt.given, self.streams, session)

    @property
    def state(self) -> EngineState:
        """The state after a session."""
        return EngineState(_on_host(self.pack.states()), self.finished)

    def load(self, state: EngineState) -> None:
        """Continue from a state."""
        self.pack.load(state.parameters)
        self.finished = state.finished

    def _begin(self, session: int) -> Known:
        """Return what the protocol makes known in `session`, and add its classes to the parameters."""
        given = self.context.known.session(self.streams, session)
        add_classes(self.context, self.pack, given, self.streams, session)
        return given

    def _phase(self, session: int) -> str:
        return f"session {session} of the {self.purpose} stream"

    @torch.no_grad()
    def _diagnose(self, shared: Shared, view: View, task: Task) -> None:
        """Store the diagnostics of the method after `task`."""
        found: dict[str, Tensor] = self.pack.run("diagnostics", (shared,), view, task)
        self.diagnosed = {name: values.cpu().numpy() for name, values in found.items()}


class SessionEngine(Engine):
    """Predicts in evaluation mode, after the gradient steps of the session.

    Args:
        context: The configuration, the graph, the scenarios and the options.
        pack: The methods, one per seed.
        streams: The stream of each seed.
        purpose: "test" or "validation"; it selects the random streams.
    """

    def __init__(self, context: Context, pack: Pack, streams: Sequence[Stream], purpose: str) -> None:
        super().__init__(context, pack, streams, purpose)
        self.before: list[Parameters] = []
        self.class_statistics: tuple[Tensor, ...] = ()
        self.read_out = ReadOut(context)
        # It is fitted to validation nodes, unless predictions of these are scored.
        self.fits_temperature = purpose == "test" and context.settings.scored_on == "test"
        self.temperature: Tensor | None = None
        self.memory: Memory | None = None
        self.batches: SessionBatches
        kind = batches_of(context.method)
        if kind is ReplayBatches:
            self.memory = Memory(context, streams)
            self.batches = ReplayBatches(context, self.memory)
        elif kind is SupportBatches:
            self.batches = SupportBatches(context)
        elif kind is PseudoLabelBatches:
            self.batches = PseudoLabelBatches(context)
        else:
            self.batches = HeldOutBatches(context, streams, purpose)
        self.learns = context.method.session_learning is not SessionLearning.NONE and self.batches.has_targets
        self.step = 0

    def learn(self, session: int) -> Learnt:
        given, streams = self._begin(session), self.streams
        known = self.context.known.with_fixed_features(self.pack, given)
        if session == 0:
            self._call_hook("after_training", known, streams, session)
        if self.context.method.has("session_statistics"):
            self.before = self.pack.states()
        known = self._with_statistics(known, session)
        if session > 0:
            self._call_hook("before_session", known, streams, session)
            self._finetune(known, streams, session)
            if self.context.settings.self_training:
                streams = self._with_guesses(known, session)
                self._finetune(known, streams, session)
        if self.memory is not None:
            self.memory.keep(self.pack, known, session)
        self.finished = session + 1
        return Learnt(given, self._remembered(known, session), streams)

    def known_after(self, session: int) -> Learnt:
        """Return what is known after `session`, which was learnt before, perhaps on another graph."""
        given = self.context.known.session(self.streams, session)
        now = self.pack.snapshot()
        self.pack.load(self.before)
        known = self.context.known.with_fixed_features(self.pack, given)
        known = self._with_statistics(known, session)
        self.pack.restore(now)
        return Learnt(given, self._remembered(known, session), self.streams)

    def _remembered(self, known: Known, session: int) -> Known:
        """Return `known` by the nodes in the memory, if the method has one."""
        if self.memory is None or self.context.tasks.keeps_prototypes:
            return known
        kept = self.memory.nodes(), self.memory.labels(session)
        return self.context.known.known_by(self.streams, session, *kept)

    @torch.no_grad()
    def probabilities(self, learnt: Learnt, session: int) -> tuple[Tensor, Tensor]:
        """Return probabilities of the queries of `session`, and logits that say how well they fit each class.

        Both are (pack, queries, classes). If all logits are low, a query may belong to none of the classes.
        """
        task, shared = self._task(learnt.known, learnt.streams, session)
        scores = self.read_out.scores(self.pack, shared, learnt.known, task)
        self._confidence(scores, session)
        logits = self.read_out.logits(scores)
        if self.context.method.has("open_set_logits"):
            logits = self.pack.run("open_set_logits", (shared,), learnt.known.view, task)
        return self.read_out.probabilities(scores), logits

    @torch.no_grad()
    def _with_statistics(self, known: Known, session: int) -> Known:
        """Return `known` with the statistics that no step of the session changes."""
        if not self.context.method.has("session_statistics"):
            return known
        task, shared = self._task(known, self.streams, session)
        found = self.pack.run("session_statistics", (shared,), known.view, task)
        return replace(known, view=known.view._replace(session_statistics=found))

    @property
    def state(self) -> EngineState:
        parameters = _on_host(self.pack.states())
        pairs = zip(_on_host(self.before), parameters, strict=False)
        return EngineState(
            parameters=parameters,
            finished=self.finished,
            before=[
                {name: old[name] for name in old if not old[name].equal(now[name])} for old, now in pairs
            ],
            class_statistics=self.class_statistics,
            label_counts=self.read_out.kept,
            replay=self.memory.kept if self.memory else [],
            draws=self.batches.state(),
            step=self.step,
            temperature=self.temperature,
        )

    def load(self, state: EngineState) -> None:
        super().load(state)
        device = self.context.runtime.device
        self.before, self.step = state.before, state.step
        self.class_statistics = tuple(part.to(device) for part in state.class_statistics)
        self.read_out.kept = state.label_counts
        if self.memory:
            self.memory.kept = state.replay
        self.batches.load(state.draws)
        self.temperature = None if state.temperature is None else state.temperature.to(device)

    def _with_guesses(self, known: Known, session: int) -> list[Stream]:
        """Return the streams with self-training nodes added to the supports of `session`."""
        task, shared = self._task(known, self.streams, session)
        earlier, own = self.streams[0].supports(session)
        count = self.context.settings.self_training + own.shape[1] - earlier.shape[1]
        guesses = self.read_out.guesses(self.pack, shared, known, task, count).cpu().numpy()
        return [replace(s, guessed=nodes) for s, nodes in zip(self.streams, guesses, strict=True)]

    def _finetune(self, known: Known, streams: Sequence[Stream], session: int) -> None:
        if not self.learns:
            return
        for steps in self.batches.parts(self.context.settings.finetune_steps):
            self._gradient_steps(steps, known, streams, session)
        self._call_hook("after_session", known, streams, session)

    @torch.no_grad()
    def _call_hook(self, hook: str, known: Known, streams: Sequence[Stream], session: int) -> None:
        """Let the method change its parameters, if it defines `hook`."""
        if self.context.method.has(hook):
            task, shared = self._task(known, streams, session)
            self.pack.assign(self.pack.run(hook, (shared,), known.view, task))

    def _gradient_steps(self, number: int, known: Known, streams: Sequence[Stream], session: int) -> None:
        """Take `number` gradient steps."""
        shared = self.context.tasks.shared(known, streams[0].sizes(session))
        self.batches.begin(self.pack, shared, known.view, streams, session)
        batches = (self.batches.task(session) for _ in range(number))
        batches = (
            (task._replace(class_statistics=self.class_statistics), target) for task, target in batches
        )
        with self.context.runtime.capture() as capture:
            rate = self.context.runtime.values("finetune_rate")
            steps = self.context.runtime.steps(self.pack, rate, capture)
            for task, target in self.context.runtime.ahead(batches):
                key = fold(self.key, self.step)
                steps.take("session_loss", (shared,), (known.view,), (task, target, key))
                self.step += 1
            check_losses(self.context, steps, self._phase(session))
        self.batches.end()

    def _task(self, known: Known, streams: Sequence[Stream], session: int) -> tuple[Task, Shared]:
        task = self.context.tasks.session(streams, session, known.all_averaged)
        task = task._replace(class_statistics=self.class_statistics)
        return task, self.context.tasks.shared(known, streams[0].sizes(session))

    @torch.no_grad()
    def answer(self, learnt: Learnt, session: int) -> Answers:
        context, known, streams = self.context, learnt.known, learnt.streams
        task, shared = self._task(known, streams, session)
        fitted = self._validation_nodes() if self.fits_temperature and session == 0 else []
        query = task.query
        if fitted:  # in the same pass
            query = torch.cat([query, stack_padded(fitted).to(query.device)], 1)
        scores = self.read_out.scores(self.pack, shared, known, task._replace(query=query))
        if fitted:
            scores, of_known = scores.tensor_split([task.query.shape[1]], 1)
            self._confidence(of_known, session)
            self.temperature = self._fitted_temperature(of_known, fitted)
        assert scores.shape[-1] == task.classes.shape[-1], "a method must score all classes, even kept ones"
        self._diagnose(shared, known.view, task)
        if context.tasks.keeps_prototypes:
            self.class_statistics = self.pack.run("class_statistics", (shared,), known.view, task)
        rows, shares = scores.argmax(-1).cpu().numpy(), self._confidence(scores, session)
        tempered: Sequence[np.ndarray | None] = [None] * len(streams)
        if self.temperature is not None:
            tempered = list(self.read_out.confidence(scores, self.temperature).cpu().numpy())
        queries = [stream.queries[session] for stream in streams]
        return [
            (
                asked,
                stream.met(session)[row[: len(asked)]],
                share[: len(asked)],
                None if other is None else other[: len(asked)],
            )
            for asked, stream, row, share, other in zip(queries, streams, rows, shares, tempered, strict=True)
        ]

    def _confidence(self, scores: Tensor, session: int) -> np.ndarray:
        """Return the probability of each prediction (pack, queries); raise an error if it is not finite."""
        found = self.read_out.confidence(scores).cpu().numpy()
        check_scores(self.context, found, self._phase(session))
        return found

    def _validation_nodes(self) -> list[np.ndarray]:
        """Return the validation nodes of the known classes, one array per seed."""
        pairs = zip(self.context.scenarios, self.streams, strict=True)
        return [scenario.nodes_of(stream.known, VAL) for scenario, stream in pairs]

    def _fitted_temperature(self, scores: Tensor, nodes: Sequence[np.ndarray]) -> Tensor:
        """Return the temperature of each seed (pack,), fitted to `scores` (pack, nodes, classes)."""
        found = [
            fitted_temperature(row[: len(own)], scenario.positions(stream.known)[scenario.labels[own]])
            for row, own, scenario, stream in zip(
                self.read_out.log_shares(scores).cpu().numpy(),
                nodes,
                self.context.scenarios,
                self.streams,
                strict=True,
            )
        ]
        return torch.tensor(found, dtype=torch.float32, device=scores.device)


def _on_host(parameters: Sequence[Parameters]) -> list[Parameters]:
    return [{name: value.cpu() for name, value in of_seed.items()} for of_seed in parameters]
