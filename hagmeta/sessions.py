"""The incremental sessions: what a model learns from a few labels, and what it answers then."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from hagmeta.evaluate import Evaluator
from hagmeta.lessons import HeldOutLesson, ReplayLesson, SessionLesson
from hagmeta.memory import Memory
from hagmeta.methods.base import Lesson, MetaTraining, Scene, Task
from hagmeta.pack import Pack, Progress, descend, stack
from hagmeta.randomness import fold, keys
from hagmeta.snapshots import Snapshots
from hagmeta.stage import Setting, Stage
from hagmeta.stream import Stream

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
        (predictions,) = predict(stage, pack, setting, streams, [session])
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
        self.key = keys(stage.seeds, f"dropout/{purpose}", stage.device)
        self.step = 0

    def learn(self, pack: Pack, setting: Setting, session: int) -> None:
        config = self.stage.config
        optimizer = pack.optimizer(config.finetune_rate, config.weight_decay)
        scene = self.stage.scene(setting, len(self.streams[0].known), session)
        self.lesson.begin(pack, scene, setting.view, session)
        for _ in range(config.finetune_steps):
            task, target = self.lesson.task(session)
            key = fold(self.key, self.step)
            losses, _ = pack.run("session_loss", (scene,), setting.view, task, target, key)
            descend(optimizer, losses)
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
        classes = stack((world.trained for world in stage.worlds), stage.device)
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
    stage: Stage, pack: Pack, setting: Setting, streams: Sequence[Stream], sessions: Sequence[int]
) -> list[Predictions]:
    """Answers to the queries of some sessions from one pass over the graph, in evaluation mode."""
    tasks = tuple(stage.task(streams, session, setting.complete) for session in sessions)
    scene = stage.scene(setting, len(streams[0].known), sessions[-1])
    answers = [
        logits.argmax(-1).cpu().numpy() for logits in pack.run("logits", (scene,), setting.view, tasks)
    ]
    return [
        [row[: len(s.queries[session])] for row, s in zip(answer, streams, strict=True)]
        for session, answer in zip(sessions, answers, strict=True)
    ]


def validate(stage: Stage, pack: Pack, settings: Sequence[Setting]) -> np.ndarray:
    """Mean accuracy over the sessions of each seed's validation stream, without learning in them."""
    streams = [world.validation for world in stage.worlds]
    evaluators = [Evaluator(s, w.labels) for s, w in zip(streams, stage.worlds, strict=True)]
    sessions = list(range(streams[0].sessions + 1))
    moments = [sessions] if len(settings) == 1 else [[session] for session in sessions]
    before = pack.snapshot()
    for setting, moment in zip(settings, moments, strict=True):
        meet(stage, pack, setting, streams, moment[0])
        for predictions in predict(stage, pack, setting, streams, moment):
            for evaluator, answer in zip(evaluators, predictions, strict=True):
                evaluator.score(answer)
    pack.restore(before)
    return np.array([np.mean(evaluator.accuracy()) for evaluator in evaluators])


def validation_settings(stage: Stage) -> list[Setting]:
    """Where nothing changes on the way, one pass over the graph answers all sessions."""
    streams = [world.validation for world in stage.worlds]
    sessions = range(streams[0].sessions + 1)
    changes = stage.config.val_classes or stage.method.oracle
    if changes or any(_newcomers(stage, streams, session) for session in sessions):
        return [stage.session(streams, session) for session in sessions]
    return [stage.session(streams, 0)]
