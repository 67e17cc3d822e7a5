"""The incremental sessions: what a model learns from a few labels, and what it answers then."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from hagmeta.methods.base import Lesson, MetaTraining, Scene, Task
from hagmeta.packs.capture import Capture, Steps, ahead
from hagmeta.packs.pack import Pack, Progress, stack, stack_padded
from hagmeta.packs.randomness import fold, keys
from hagmeta.phases.context import Setting, Stage
from hagmeta.phases.lessons import HeldOutLesson, ReplayLesson, SessionLesson
from hagmeta.phases.memory import Memory
from hagmeta.phases.snapshots import Snapshots
from hagmeta.protocol.evaluator import Evaluator
from hagmeta.protocol.streams import Stream

Predictions = list[np.ndarray]  # one array a seed


def play(
    stage: Stage,
    pack: Pack,
    streams: Sequence[Stream],
    purpose: str,
    progress: Progress,
    snapshots: Snapshots | None = None,
) -> list[Evaluator]:
    """Live through the streams under `strict`: learn in every session, then answer its queries."""
    evaluators = [Evaluator(s, w.labels) for s, w in zip(streams, stage.worlds, strict=True)]
    memory = Memory(stage, streams) if stage.method.lesson is Lesson.REPLAY else None
    tuner = _FineTuning(stage, streams, purpose, memory)
    for session in range(streams[0].sessions + 1):
        setting = stage.session(streams, session)
        meet(stage, pack, setting, streams, session)
        if session > 0 and stage.method.lesson is not Lesson.NONE:
            tuner.learn(pack, setting, session)
        if memory is not None:
            memory.keep(pack, setting, session)
            setting = stage.known_by(streams, session, memory.nodes())
        predictions = predict(stage, pack, setting, streams, session)
        for evaluator, answer in zip(evaluators, predictions, strict=True):
            evaluator.score(answer)
        if snapshots:
            snapshots.take(stage, pack, setting, streams, session)
        progress(purpose, session, streams[0].sessions, {})
    return evaluators


class _FineTuning:
    """The gradient steps of each session."""

    def __init__(self, stage: Stage, streams: Sequence[Stream], purpose: str, memory: Memory | None) -> None:
        self.stage, self.streams = stage, streams
        self.lesson: SessionLesson
        if memory is not None:
            self.lesson = ReplayLesson(stage, streams, memory)
        else:
            self.lesson = HeldOutLesson(stage, streams, purpose)
        self.key = keys(stage.seeds, f"dropout/{purpose}")
        self.step = 0

    def learn(self, pack: Pack, setting: Setting, session: int) -> None:
        config = self.stage.config
        scene = self.stage.scene(setting, len(self.streams[0].known), session)
        self.lesson.begin(pack, scene, setting.view, session)
        lessons = (self.lesson.task(session) for _ in range(config.finetune_steps))
        with self.stage.capture() as capture:
            steps = Steps(pack, config.finetune_rate, config.weight_decay, capture)
            for task, target in ahead(lessons, self.stage.device):
                key = fold(self.key, self.step)
                steps.take("session_loss", (scene,), (setting.view,), (task, target, key))
                self.step += 1


def meet(stage: Stage, pack: Pack, setting: Setting, streams: Sequence[Stream], session: int) -> None:
    """Let a growing method start its parameters for the classes that a session brings it as new."""
    new = _newcomers(stage, streams, session)
    if new:
        scene = stage.scene(setting, len(streams[0].known), session)
        _grow(pack, scene, new, setting, stage.task(streams, session))


def meet_trained(stage: Stage, pack: Pack, training: Setting) -> None:
    """The same for the classes that supervised training knows, before it begins."""
    if stage.method.grows and stage.meta_training is MetaTraining.SUPERVISED:
        classes = stack(world.trained for world in stage.worlds).to(stage.device)
        known = classes.shape[1]
        scene = Scene(stage.graph, training.class_means, (known,))
        nothing = classes[:, :0]
        _grow(pack, scene, known, training, Task(classes, classes, nothing.unsqueeze(-1), nothing))


@torch.no_grad()
def _grow(pack: Pack, scene: Scene, new: int, setting: Setting, task: Task) -> None:
    pack.assign(pack.run("meet", (scene, new), setting.view, task))


def _newcomers(stage: Stage, streams: Sequence[Stream], session: int) -> int:
    """How many classes a session brings that a growing method has not met, in training or before."""
    if not stage.method.grows:
        return 0
    arrived = streams[0].arriving[session - 1] if session else streams[0].known
    if stage.meta_training is MetaTraining.SUPERVISED:
        arrived = np.setdiff1d(arrived, stage.worlds[0].trained)
    return len(arrived)


@torch.no_grad()
def predict(
    stage: Stage, pack: Pack, setting: Setting, streams: Sequence[Stream], session: int
) -> Predictions:
    """Answers to the queries of a session, in evaluation mode."""
    task = stage.task(streams, session, setting.complete)
    scene = stage.scene(setting, len(streams[0].known), session)
    (logits,) = pack.run("logits", (scene,), setting.view, (task,))
    answers = logits.argmax(-1).cpu().numpy()
    return [row[: len(s.queries[session])] for row, s in zip(answers, streams, strict=True)]


class Validation:
    """Each seed's validation stream, answered without learning in it: what early stopping goes by."""

    def __init__(self, stage: Stage, pack: Pack, capture: Capture) -> None:
        self._stage, self._pack, self._capture = stage, pack, capture
        self._streams = [world.validation for world in stage.worlds]
        sessions = list(range(self._streams[0].sessions + 1))
        changes = stage.config.val_classes or stage.method.oracle
        if changes or any(_newcomers(stage, self._streams, session) for session in sessions):
            self._moments = [self._moment([session]) for session in sessions]
        else:
            # Where nothing changes on the way, one pass over the graph answers all sessions.
            self._moments = [self._moment(sessions)]

    def _moment(self, sessions: list[int]) -> _Moment:
        stage, streams = self._stage, self._streams
        setting = stage.propagated(self._pack, stage.session(streams, sessions[0]))
        return _Moment(
            setting,
            stage.scene(setting, len(streams[0].known), sessions[-1]),
            sessions,
            tuple(stage.task(streams, session, setting.complete) for session in sessions),
            tuple(self._truth(session).to(stage.device) for session in sessions),
            np.array([[len(stream.queries[session]) for session in sessions] for stream in streams]),
        )

    def _truth(self, session: int) -> Tensor:
        """The position of each query's class (pack, queries); -1 where a seed has fewer queries."""
        pairs = zip(self._stage.worlds, self._streams, strict=True)
        rows = [w.positions(s.met(session))[w.labels[s.queries[session]]] for w, s in pairs]
        return stack_padded(rows, filling=-1)

    @torch.no_grad()
    def accuracy(self) -> np.ndarray:
        """Of each seed, the mean over its sessions."""
        pack = self._pack
        before = pack.snapshot() if self._stage.method.grows else None
        shares = []
        for moment in self._moments:
            meet(self._stage, pack, moment.setting, self._streams, moment.sessions[0])
            count = partial(self._correct, moment)
            counts = self._capture.run(("validation", *moment.sessions), count, ()).cpu().numpy()
            shares.append(counts / moment.sizes)
        if before is not None:
            pack.restore(before)
        return np.array([np.mean(row) for row in np.concatenate(shares, axis=1)])

    def _correct(self, moment: _Moment) -> Tensor:
        """How many answers are right (pack, sessions)."""
        logits = self._pack.run("logits", (moment.scene,), moment.setting.view, moment.tasks)
        pairs = zip(logits, moment.truth, strict=True)
        return torch.stack([(answer.argmax(-1) == truth).sum(-1) for answer, truth in pairs], dim=-1)


class _Moment(NamedTuple):
    """Sessions that are answered together."""

    setting: Setting
    scene: Scene
    sessions: list[int]
    tasks: tuple[Task, ...]
    truth: tuple[Tensor, ...]
    sizes: np.ndarray  # (pack, sessions) queries
