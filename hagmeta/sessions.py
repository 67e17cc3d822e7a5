"""The incremental sessions: what a model learns from a few labels, and what it answers then."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from hagmeta.episodes import ClassPools
from hagmeta.evaluate import Evaluator
from hagmeta.methods.base import Task
from hagmeta.pack import Pack, Progress, descend, stack
from hagmeta.randomness import fold, keys
from hagmeta.randomness import stream as random_stream
from hagmeta.snapshots import Snapshots
from hagmeta.splits import TRAIN
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
    tuner = _FineTuning(stage, streams, purpose)
    for session in range(streams[0].sessions + 1):
        setting = stage.session(streams, session)
        if session > 0:
            tuner.learn(pack, setting, session)
        (predictions,) = predict(stage, pack, setting, streams, [session])
        for evaluator, answer in zip(evaluators, predictions, strict=True):
            evaluator.score(answer)
        if snapshots:
            snapshots.take(stage, pack, setting, streams, session)
        progress(purpose, session, streams[0].sessions, {})
    return evaluators


@torch.no_grad()
def predict(
    stage: Stage, pack: Pack, setting: Setting, streams: Sequence[Stream], sessions: Sequence[int]
) -> list[Predictions]:
    """Answers to the queries of some sessions from one pass over the graph, in evaluation mode."""
    tasks = tuple(stage.task(streams, session) for session in sessions)
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
    for setting, moment in zip(settings, moments, strict=True):
        for predictions in predict(stage, pack, setting, streams, moment):
            for evaluator, answer in zip(evaluators, predictions, strict=True):
                evaluator.score(answer)
    return np.array([np.mean(evaluator.accuracy()) for evaluator in evaluators])


def validation_settings(stage: Stage) -> list[Setting]:
    """Where nothing becomes visible on the way, one pass over the graph answers all sessions."""
    streams = [world.validation for world in stage.worlds]
    sessions = range(streams[0].sessions + 1) if stage.config.val_classes else [0]
    return [stage.session(streams, session) for session in sessions]


class _FineTuning:
    """Steps on labels that a session may use: train nodes of known classes, and the supports so far.

    In each step one support of every class plays the query and the others the support. With K = 1
    nothing could be left, so that new classes then take part as prototypes only, without queries.
    """

    def __init__(self, stage: Stage, streams: Sequence[Stream], purpose: str) -> None:
        self.stage, self.streams = stage, streams
        self.config = stage.config
        self.rng = [random_stream(seed, f"finetune/{purpose}") for seed in stage.seeds]
        self.pools = [
            ClassPools([w.nodes_of(np.array([c]), TRAIN) for c in s.known])
            for w, s in zip(stage.worlds, streams, strict=True)
        ]
        self.key = keys(stage.seeds, f"dropout/{purpose}", stage.device)
        self.step = 0

    def learn(self, pack: Pack, setting: Setting, session: int) -> None:
        optimizer = pack.optimizer(self.config.finetune_rate, self.config.weight_decay)
        scene = self.stage.scene(setting, len(self.streams[0].known), session)
        for _ in range(self.config.finetune_steps):
            task, target = self._task(session)
            losses, _ = pack.run("loss", (scene,), setting.view, task, target, fold(self.key, self.step))
            descend(optimizer, losses)
            self.step += 1

    def _task(self, session: int) -> tuple[Task, torch.Tensor]:
        device = self.stage.device
        supports, queries = [], []
        for rng, pools, stream in zip(self.rng, self.pools, self.streams, strict=True):
            rows = np.arange(len(stream.known))
            of_known = pools.distinct(rows, rng.random((len(rows), self.config.query_shot or 1)))
            shots = stream.support.shape[-1]
            few = stream.support[:session].reshape(-1, shots)
            order = rng.permuted(np.tile(np.arange(shots), (len(few), 1)), axis=1)
            few = np.take_along_axis(few, order, axis=1)
            held_out = few[:, :1] if shots > 1 else few[:, :0]
            supports.append(few[:, held_out.shape[1] :])
            queries.append(np.concatenate([of_known.ravel(), held_out.ravel()]))
        known, shots = of_known.shape
        target = np.repeat(np.arange(known), shots)
        target = np.concatenate([target, known + np.arange(held_out.size)])
        many = stack((s.known for s in self.streams), device)
        task = Task(many, stack(supports, device), stack(queries, device))
        return task, stack([target] * len(self.streams), device)
