"""The incremental sessions: learn from a few labels, then classify the queries."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from hagmeta.engine.checkpoints import State
from hagmeta.engine.context import Context
from hagmeta.engine.hooks import add_classes, consolidate
from hagmeta.engine.known.knowledge import Knowledge
from hagmeta.engine.known.lessons import (
    AnswersLesson,
    HeldOutLesson,
    Lesson,
    ReplayLesson,
    SupportsLesson,
    before_steps,
)
from hagmeta.engine.known.memory import Memory
from hagmeta.engine.known.tasks import stacked
from hagmeta.engine.scores.embeddings import query_embeddings
from hagmeta.engine.scores.readout import ReadOut
from hagmeta.engine.scores.temperature import fitted_temperature
from hagmeta.engine.training.divergence import check_losses, check_scores
from hagmeta.engine.training.meta_training import Trained
from hagmeta.methods.base import Method, SessionLearning, Shared, Task
from hagmeta.packs.pack import Pack, stack, stack_padded
from hagmeta.packs.randomness import fold, keys
from hagmeta.scenarios.evaluator import Evaluator
from hagmeta.scenarios.scenario import VAL, Stream
from hagmeta.sparse.graph import View

# A tuple per seed: queries, their predicted classes, and the probabilities of these, if there are any. Then
# these probabilities with a temperature, if there is one.
Answers = list[tuple[np.ndarray, np.ndarray, np.ndarray | None, np.ndarray | None]]


def play(
    context: Context,
    pack: Pack,
    streams: Sequence[Stream],
    purpose: str,
    trained: Trained | None = None,
    keep: Callable[[int, Callable[[], State]], None] | None = None,
    before: State | None = None,
) -> list[Evaluator]:
    """Play the streams: in each session, learn and classify the queries, in the order of the protocol.

    Args:
        context: the configuration, the graph, the scenarios and the options.
        pack: the methods, one per seed.
        streams: the stream of each seed.
        purpose: "test" or "validation"; it selects the random streams.
        trained: the result of meta-training; required if the protocol scores while learning.
        keep: called after every session but the last, with the session and a function that returns the state.
        before: a state from which to continue.

    Returns:
        An evaluator of each seed, with its predictions and, for test streams, the embeddings asked for.
    """
    evaluators = [Evaluator(s, w.labels) for s, w in zip(streams, context.scenarios, strict=True)]
    learner: _Learner
    if context.protocol.scores_while_learning:
        assert trained is not None
        learner = _AnsweringWhileLearning(context, streams, purpose, trained)
    else:
        learner = AnsweringAfterLearning(context, streams, purpose)
    first = 0
    if before is not None:
        first = int(before["sessions"])
        pack.restore(before["parameters"])
        learner.load(before["learner"])
        for evaluator, state in zip(evaluators, before["evaluators"], strict=True):
            evaluator.load(state)
    for session in range(first, streams[0].sessions + 1):
        knowledge = context.knowledge.session(streams, session)
        add_classes(context, pack, knowledge, streams, session)
        answers = learner.learn_and_answer(pack, knowledge, session)
        consolidate(context, pack, knowledge, streams, session)
        for evaluator, answer in zip(evaluators, answers, strict=True):
            evaluator.record(*answer)
        for seed, evaluator in enumerate(evaluators):
            evaluator.note({name: float(values[seed]) for name, values in learner.diagnosed.items()})
        if purpose == "test" and session == context.runtime.options.embeddings_after:
            embedded = query_embeddings(context, pack, knowledge, streams, session)
            for evaluator, arrays in zip(evaluators, embedded, strict=True):
                evaluator.embeddings = arrays
        accuracy = float(np.mean([evaluator.last_accuracy() for evaluator in evaluators]))
        context.runtime.options.progress(purpose, session, streams[0].sessions, {"accuracy": accuracy})
        if keep and session < streams[0].sessions:
            keep(session, partial(_state, session + 1, pack, learner, evaluators))
        del knowledge  # the next session may need its memory
    return evaluators


def _state(done: int, pack: Pack, learner: _Learner, evaluators: Sequence[Evaluator]) -> State:
    return {
        "sessions": done,
        "parameters": pack.snapshot(),
        "learner": learner.state(),
        "evaluators": [evaluator.state() for evaluator in evaluators],
    }


class _Learner(ABC):
    def __init__(self, context: Context, streams: Sequence[Stream], purpose: str) -> None:
        self.context, self.streams, self.purpose = context, streams, purpose
        self.key = keys(context.seeds, f"dropout/{purpose}")
        self.diagnosed: dict[str, np.ndarray] = {}  # diagnostics of the last session: a number per seed

    @abstractmethod
    def learn_and_answer(self, pack: Pack, knowledge: Knowledge, session: int) -> Answers:
        """Learn from the labels of `session`, and return the predictions for its queries."""

    @abstractmethod
    def state(self) -> State:
        """Return the state on which later sessions depend, without the parameters."""

    @abstractmethod
    def load(self, state: State) -> None:
        """Continue from a state that `state` returned."""

    def _phase(self, session: int) -> str:
        return f"session {session} of the {self.purpose} stream"

    @torch.no_grad()
    def _diagnose(self, pack: Pack, shared: Shared, view: View, task: Task) -> None:
        """Store the diagnostics of the method after `task`."""
        found: dict[str, Tensor] = pack.run("diagnostics", (shared,), view, task)
        self.diagnosed = {name: values.cpu().numpy() for name, values in found.items()}


def lesson_of(method: type[Method]) -> type[Lesson]:
    """Return what kind of lesson a session of `method` is."""
    if method.session_learning is SessionLearning.REPLAY:
        return ReplayLesson
    if method.session_learning is SessionLearning.SUPPORTS:
        return SupportsLesson
    return AnswersLesson if method.session_learning is SessionLearning.ANSWERS else HeldOutLesson


class AnsweringAfterLearning(_Learner):
    """Predict in evaluation mode, after the gradient steps of the session."""

    def __init__(self, context: Context, streams: Sequence[Stream], purpose: str) -> None:
        super().__init__(context, streams, purpose)
        self.class_statistics: tuple[Tensor, ...] = ()  # of earlier classes, with a pack axis
        self.read_out = ReadOut(context)
        # It is fitted to validation nodes, unless predictions of these are scored.
        self.tempers = purpose == "test" and context.settings.scored_on == "test"
        self.temperature: Tensor | None = None  # (pack,)
        self.memory: Memory | None = None
        self.lesson: Lesson
        method = context.method
        kind = lesson_of(method)
        if kind is ReplayLesson:
            self.memory = Memory(context, streams)
            self.lesson = ReplayLesson(context, self.memory)
        elif kind is SupportsLesson:
            self.lesson = SupportsLesson(context)
        elif kind is AnswersLesson:
            self.lesson = AnswersLesson(context)
        else:
            self.lesson = HeldOutLesson(context, streams, purpose)
        self.learns = method.session_learning is not SessionLearning.NONE and self.lesson.teaches
        self.step = 0

    def learn_and_answer(self, pack: Pack, knowledge: Knowledge, session: int) -> Answers:
        return self._answer(pack, *self.learn(pack, knowledge, session), session)

    def learn(self, pack: Pack, knowledge: Knowledge, session: int) -> tuple[Knowledge, Sequence[Stream]]:
        """Learn from the labels of `session`. Return the knowledge and the streams for its predictions."""
        knowledge = self.context.knowledge.with_fixed_features(pack, knowledge)
        if session == 0:
            self._change("after_training", pack, knowledge, self.streams, session)
        knowledge = self._with_statistics(pack, knowledge, session)
        streams = self.streams
        if session > 0:
            self._change("before_session", pack, knowledge, streams, session)
            self._learn(pack, knowledge, streams, session)
            if self.context.settings.self_training:
                streams = self._with_guesses(pack, knowledge, session)
                self._learn(pack, knowledge, streams, session)
        if self.memory is not None:
            self.memory.keep(pack, knowledge, session)
        return self._remembered(knowledge, session), streams

    def learnt(self, pack: Pack, knowledge: Knowledge, session: int) -> Knowledge:
        """Return the knowledge for predictions after `session`, whose labels were learnt before."""
        knowledge = self.context.knowledge.with_fixed_features(pack, knowledge)
        return self._remembered(self._with_statistics(pack, knowledge, session), session)

    def _remembered(self, knowledge: Knowledge, session: int) -> Knowledge:
        """Return `knowledge` by the nodes in the memory, if the method has one."""
        if self.memory is None or self.context.tasks.keeps_prototypes:
            return knowledge
        kept = self.memory.nodes(), self.memory.labels(session)
        return self.context.knowledge.known_by(self.streams, session, *kept)

    @torch.no_grad()
    def answers(self, pack: Pack, knowledge: Knowledge, session: int) -> tuple[Tensor, Tensor]:
        """Return probabilities of the queries of `session`, and logits that say how well they fit each class.

        Both are (pack, queries, classes). If all logits are low, a query may belong to none of the classes.
        """
        task, shared = self._task(knowledge, self.streams, session)
        scores = self.read_out.scores(pack, shared, knowledge, task)
        self._confidence(scores, session)
        logits = self.read_out.logits(scores)
        if self.context.method.has("open_set_logits"):
            logits = pack.run("open_set_logits", (shared,), knowledge.view, task)
        return self.read_out.probabilities(scores), logits

    @torch.no_grad()
    def _with_statistics(self, pack: Pack, knowledge: Knowledge, session: int) -> Knowledge:
        """Return `knowledge` with the statistics that no step of the session changes."""
        if not self.context.method.has("session_statistics"):
            return knowledge
        task, shared = self._task(knowledge, self.streams, session)
        found = pack.run("session_statistics", (shared,), knowledge.view, task)
        return replace(knowledge, view=knowledge.view._replace(session_statistics=found))

    def state(self) -> State:
        return {
            "kept": self.class_statistics,
            "labels": self.read_out.kept,
            "memory": self.memory.kept if self.memory else [],
            "lesson": self.lesson.state(),
            "temperature": self.temperature,
            "step": self.step,
        }

    def load(self, state: State) -> None:
        self.class_statistics = tuple(part.to(self.context.runtime.device) for part in state["kept"])
        self.read_out.kept = state["labels"].numpy()
        if self.memory:
            self.memory.kept = [[rows.numpy() for rows in kept] for kept in state["memory"]]
        self.lesson.load(state["lesson"])
        if state["temperature"] is not None:
            self.temperature = state["temperature"].to(self.context.runtime.device)
        self.step = state["step"]

    def _with_guesses(self, pack: Pack, knowledge: Knowledge, session: int) -> list[Stream]:
        """Return the streams with self-training nodes added to the supports of `session`."""
        task, shared = self._task(knowledge, self.streams, session)
        earlier, own = self.streams[0].supports(session)
        count = self.context.settings.self_training + own.shape[1] - earlier.shape[1]
        guesses = self.read_out.guesses(pack, shared, knowledge, task, count).cpu().numpy()
        return [replace(s, guessed=nodes) for s, nodes in zip(self.streams, guesses, strict=True)]

    def _learn(self, pack: Pack, knowledge: Knowledge, streams: Sequence[Stream], session: int) -> None:
        if not self.learns:
            return
        for steps in self.lesson.courses(self.context.settings.finetune_steps):
            self._take(steps, pack, knowledge, streams, session)
        self._change("after_session", pack, knowledge, streams, session)

    @torch.no_grad()
    def _change(
        self, hook: str, pack: Pack, knowledge: Knowledge, streams: Sequence[Stream], session: int
    ) -> None:
        """Let the method change its parameters, if it defines `hook`."""
        if self.context.method.has(hook):
            task, shared = self._task(knowledge, streams, session)
            pack.assign(pack.run(hook, (shared,), knowledge.view, task))

    def _take(
        self, number: int, pack: Pack, knowledge: Knowledge, streams: Sequence[Stream], session: int
    ) -> None:
        """Take `number` gradient steps."""
        shared = self.context.tasks.shared(knowledge, len(streams[0].known), session)
        self.lesson.begin(pack, shared, knowledge.view, streams, session)
        lessons = (self.lesson.task(session) for _ in range(number))
        lessons = (
            (task._replace(class_statistics=self.class_statistics), target) for task, target in lessons
        )
        with self.context.runtime.capture() as capture:
            rate = self.context.runtime.values("finetune_rate")
            steps = self.context.runtime.steps(pack, rate, capture)
            for task, target in self.context.runtime.ahead(lessons):
                key = fold(self.key, self.step)
                steps.take("session_loss", (shared,), (knowledge.view,), (task, target, key))
                self.step += 1
            check_losses(self.context, steps, self._phase(session))
        self.lesson.end()

    def _task(self, knowledge: Knowledge, streams: Sequence[Stream], session: int) -> tuple[Task, Shared]:
        task = self.context.tasks.session(streams, session, knowledge.all_averaged)
        task = task._replace(class_statistics=self.class_statistics)
        return task, self.context.tasks.shared(knowledge, len(streams[0].known), session)

    @torch.no_grad()
    def _answer(self, pack: Pack, knowledge: Knowledge, streams: Sequence[Stream], session: int) -> Answers:
        context = self.context
        task, shared = self._task(knowledge, streams, session)
        fitted = self._known_for_validation() if self.tempers and session == 0 else []
        query = task.query
        if fitted:  # in the same pass
            query = torch.cat([query, stack_padded(fitted).to(query.device)], 1)
        scores = self.read_out.scores(pack, shared, knowledge, task._replace(query=query))
        if fitted:
            scores, of_known = scores.tensor_split([task.query.shape[1]], 1)
            self._confidence(of_known, session)
            self.temperature = self._fitted_temperature(of_known, fitted)
        assert scores.shape[-1] == task.classes.shape[-1], "a method must score all classes, even kept ones"
        self._diagnose(pack, shared, knowledge.view, task)
        if context.tasks.keeps_prototypes:
            self.class_statistics = pack.run("class_statistics", (shared,), knowledge.view, task)
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

    def _known_for_validation(self) -> list[np.ndarray]:
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


class _AnsweringWhileLearning(_Learner):
    """Predict in training mode, in the same pass whose loss on the labels of the queries gives the step.

    Only the released protocol does this, and it leaks labels. The optimizer of meta-training continues. The
    predictions of session 0 are those for the last pseudo-stream of training.
    """

    def __init__(self, context: Context, streams: Sequence[Stream], purpose: str, trained: Trained) -> None:
        super().__init__(context, streams, purpose)
        self.trained = trained

    def learn_and_answer(self, pack: Pack, knowledge: Knowledge, session: int) -> Answers:
        if session == 0:
            return [(*self.trained.answers_of(seed), None, None) for seed in range(pack.size)]
        queries = [stream.queries[session] for stream in self.streams]
        meanings = [self._meanings(stream, session) for stream in self.streams]
        shared, task, target = self._lesson(pack, knowledge, session, queries, meanings)
        drawn = (task, target, fold(self.key, session))
        with self.context.runtime.capture() as capture:
            steps = self.trained.steps.under(capture)
            rows = steps.take("session_loss", (shared,), (knowledge.view,), drawn).argmax(-1).cpu().numpy()
        check_losses(self.context, steps, self._phase(session))
        self._diagnose(pack, shared, knowledge.view, task)
        answers = zip(queries, meanings, rows, strict=True)
        return [(asked, meaning[row], None, None) for asked, meaning, row in answers]

    def state(self) -> State:
        return self.trained.steps.state()

    def load(self, state: State) -> None:
        self.trained.steps.restore(state)

    def _lesson(
        self,
        pack: Pack,
        knowledge: Knowledge,
        session: int,
        queries: list[np.ndarray],
        meanings: list[np.ndarray],
    ) -> tuple[Shared, Task, Tensor]:
        """Return the arguments of the step on the queries: shared, task, and targets (pack, queries)."""
        context, streams = self.context, self.streams
        second = context.second_prototypes
        averaged = [s.met(session if second else session - 1) for s in streams]
        new = [s.arriving[session - 1] for s in streams]
        classes = [np.concatenate(pair) for pair in zip(averaged, new, strict=True)]
        supports = [s.support[session - 1] for s in streams]
        task = stacked(classes, averaged, supports, queries).on(context.runtime.device)
        target = [
            _positions(meaning, scenario.labels[nodes])
            for meaning, scenario, nodes in zip(meanings, context.scenarios, queries, strict=True)
        ]
        shared = context.tasks.shared(knowledge, len(streams[0].known), session + second)
        return shared, before_steps(pack, shared, knowledge.view, task), stack(target)

    def _meanings(self, stream: Stream, session: int) -> np.ndarray:
        """Return the class of each position; -1 for the second prototypes of new classes."""
        if not self.context.second_prototypes:
            return stream.met(session)
        new = stream.arriving[session - 1]
        return np.concatenate([stream.met(session - 1), np.full(len(new), -1), new])


def _positions(meanings: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return the position of each label in `meanings`."""
    order = np.argsort(meanings, kind="stable")
    return order[np.searchsorted(meanings[order], labels)]
