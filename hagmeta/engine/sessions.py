"""Play the sessions of streams in the order of the protocol, and score the predictions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from torch import Tensor

from hagmeta.engine.checkpoints import State
from hagmeta.engine.context import Context
from hagmeta.engine.engine import Answers, Engine, EngineState, Learnt, SessionEngine
from hagmeta.engine.known.batches import before_steps
from hagmeta.engine.known.session import Known
from hagmeta.engine.known.tasks import stacked
from hagmeta.engine.scores.embeddings import query_embeddings
from hagmeta.engine.training.divergence import check_losses
from hagmeta.engine.training.meta_training import Trained
from hagmeta.methods.base import Shared, Task
from hagmeta.packs.pack import Pack, stack
from hagmeta.packs.randomness import fold
from hagmeta.scenarios.evaluator import Evaluator
from hagmeta.scenarios.scenario import Stream


def evaluate_streams(
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
    engine: Engine
    if context.protocol.scores_while_learning:
        assert trained is not None
        engine = _ScoringWhileLearning(context, pack, streams, purpose, trained)
    else:
        engine = SessionEngine(context, pack, streams, purpose)
    if before is not None:
        engine.load(EngineState.of(before["engine"]))
        for evaluator, state in zip(evaluators, before["evaluators"], strict=True):
            evaluator.load(state)
    for session in range(engine.finished, streams[0].sessions + 1):
        learnt = engine.learn(session)
        answers = engine.answer(learnt, session)
        if session < streams[0].sessions:
            engine.consolidate(learnt, session)
        for evaluator, answer in zip(evaluators, answers, strict=True):
            evaluator.record(*answer)
        for seed, evaluator in enumerate(evaluators):
            evaluator.note({name: float(values[seed]) for name, values in engine.diagnosed.items()})
        if purpose == "test" and session == context.runtime.options.embeddings_after:
            embedded = query_embeddings(context, pack, learnt.given, streams, session)
            for evaluator, arrays in zip(evaluators, embedded, strict=True):
                evaluator.embeddings = arrays
        accuracy = float(np.mean([evaluator.last_accuracy() for evaluator in evaluators]))
        context.runtime.options.progress(purpose, session, streams[0].sessions, {"accuracy": accuracy})
        if keep and session < streams[0].sessions:
            keep(session, partial(_state, engine, evaluators))
        del learnt  # the next session may need its memory
    return evaluators


def _state(engine: Engine, evaluators: Sequence[Evaluator]) -> State:
    return {"engine": vars(engine.state), "evaluators": [evaluator.state() for evaluator in evaluators]}


class _ScoringWhileLearning(Engine):
    """Predict in training mode, in the same pass whose loss on the labels of the queries gives the step.

    Only the released protocol does this, and it leaks labels. The optimizer of meta-training continues, so
    its state is kept with the result of meta-training. The predictions of session 0 are those for the last
    pseudo-stream of training.
    """

    def __init__(
        self, context: Context, pack: Pack, streams: Sequence[Stream], purpose: str, trained: Trained
    ) -> None:
        super().__init__(context, pack, streams, purpose)
        self.trained = trained
        # Whether new classes have a second prototype, as in the authors' code.
        self.second = context.settings.faithful and context.method.second_prototypes

    def learn(self, session: int) -> Learnt:
        given = self._begin(session)
        self.answers = self._step(given, session) if session else self._after_training()
        self.finished = session + 1
        return Learnt(given, given, self.streams)

    def answer(self, learnt: Learnt, session: int) -> Answers:
        return self.answers

    def _after_training(self) -> Answers:
        return [(*self.trained.answers_of(seed), None, None) for seed in range(self.pack.size)]

    def _step(self, known: Known, session: int) -> Answers:
        """Take the step of a session, and return the predictions of its forward pass."""
        queries = [stream.queries[session] for stream in self.streams]
        meanings = [self._classes_of_positions(stream, session) for stream in self.streams]
        shared, task, target = self._batch(known, session, queries, meanings)
        drawn = (task, target, fold(self.key, session))
        with self.context.runtime.capture() as capture:
            steps = self.trained.steps.under(capture)
            rows = steps.take("session_loss", (shared,), (known.view,), drawn).argmax(-1).cpu().numpy()
        check_losses(self.context, steps, self._phase(session))
        self._diagnose(shared, known.view, task)
        answers = zip(queries, meanings, rows, strict=True)
        return [(asked, meaning[row], None, None) for asked, meaning, row in answers]

    def _batch(
        self,
        known: Known,
        session: int,
        queries: list[np.ndarray],
        meanings: list[np.ndarray],
    ) -> tuple[Shared, Task, Tensor]:
        """Return the arguments of the step on the queries: shared, task, and targets (pack, queries)."""
        context, streams = self.context, self.streams
        averaged = [s.met(session if self.second else session - 1) for s in streams]
        new = [s.arriving[session] for s in streams]
        classes = [np.concatenate(pair) for pair in zip(averaged, new, strict=True)]
        supports = [s.support[session] for s in streams]
        task = stacked(classes, averaged, supports, queries).on(context.runtime.device)
        target = [
            _positions(meaning, scenario.labels[nodes])
            for meaning, scenario, nodes in zip(meanings, context.scenarios, queries, strict=True)
        ]
        sizes = streams[0].sizes(session)
        shared = context.tasks.shared(known, sizes + sizes[-1:] * self.second)
        return shared, before_steps(self.pack, shared, known.view, task), stack(target)

    def _classes_of_positions(self, stream: Stream, session: int) -> np.ndarray:
        """Return the class of each position; -1 for the second prototypes of new classes."""
        if not self.second:
            return stream.met(session)
        new = stream.arriving[session]
        return np.concatenate([stream.met(session - 1), np.full(len(new), -1), new])


def _positions(meanings: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return the position of each label in `meanings`."""
    order = np.argsort(meanings, kind="stable")
    return order[np.searchsorted(meanings[order], labels)]
