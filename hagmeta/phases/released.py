"""What the authors' published code does, so that its tables can be compared with. It leaks.

Queries come from all nodes of a class, training nodes included; a met class's prototype is the mean of all
its nodes; a session's accuracy is read in training mode from the very pass whose loss, on the query labels,
then takes one gradient step. A_0 is the query accuracy of the last pseudo-stream of meta-training. A method
without pseudo-streams in its training answers one after it.

In the sessions a new class has two prototypes there: that of its supports, which is right, and the mean of
all its nodes, which is counted wrong (the list of known classes is extended before it is used). That costs
the authors' figures several points and is kept, since the paper's tables were made so; methods that are not
built on HAG-Meta's prototypes (``Method.doubles``) are spared it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np
from torch import Tensor

from hagmeta.methods.base import MetaTraining
from hagmeta.packs.capture import Steps, ahead
from hagmeta.packs.pack import Pack, Progress, stack
from hagmeta.packs.randomness import fold, keys
from hagmeta.phases.context import Setting, Stage
from hagmeta.phases.lessons import recall
from hagmeta.phases.meta_training import EPISODES, Episode, pseudo_episodes
from hagmeta.phases.sessions import meet, meet_trained
from hagmeta.phases.snapshots import Snapshots
from hagmeta.protocol.evaluator import Evaluator
from hagmeta.protocol.streams import Stream

Answered = tuple[Episode, Tensor]  # with the positions (pack, queries) that were answered


def meta_train_and_play(
    stage: Stage, pack: Pack, progress: Progress, snapshots: Snapshots | None = None
) -> list[Evaluator]:
    """Meta-training without early stopping, then the sessions, with one optimizer throughout."""
    with stage.capture() as capture:
        steps = Steps(pack, stage.config.learning_rate, stage.config.weight_decay, capture)
        return _meta_train_and_play(stage, pack, steps, progress, snapshots)


def _meta_train_and_play(
    stage: Stage, pack: Pack, steps: Steps, progress: Progress, snapshots: Snapshots | None
) -> list[Evaluator]:
    streams = [world.test for world in stage.worlds]
    evaluators = [Evaluator(s, w.labels) for s, w in zip(streams, stage.worlds, strict=True)]
    last = _meta_train(stage, pack, steps, progress)
    for index, evaluator in enumerate(evaluators):
        queries = [episode.task.query[index].numpy() for episode, _ in last]
        classes = [episode.classes[index][answer[index].cpu().numpy()] for episode, answer in last]
        evaluator.record(np.concatenate(queries), np.concatenate(classes))
    setting = stage.session(streams, 0)
    if snapshots:
        snapshots.take(stage, pack, setting, streams, 0)
    meet(stage, pack, setting, streams, 0)
    key = keys(stage.seeds, "dropout/test")
    for session in range(1, streams[0].sessions + 1):
        meanings = [_meanings(stage, stream, session) for stream in streams]
        setting = stage.session(streams, session)
        chosen = _answer(stage, pack, steps, setting, streams, session, meanings, fold(key, session))
        for evaluator, stream, meaning, row in zip(evaluators, streams, meanings, chosen, strict=True):
            evaluator.record(stream.queries[session], meaning[row])
        if snapshots:
            snapshots.take(stage, pack, setting, streams, session)
        progress("test", session, streams[0].sessions, {})
    return evaluators


def _meta_train(stage: Stage, pack: Pack, steps: Steps, progress: Progress) -> Sequence[Answered]:
    """Train, and return the answers to a pseudo-stream: the last, or one after another training."""
    config, kind = stage.config, stage.meta_training
    training = stage.propagated(pack, stage.training())
    meet_trained(stage, pack, training)
    key = keys(stage.seeds, "dropout/gpil")
    last = deque[Answered](maxlen=stage.pseudo_sessions)
    if kind is not MetaTraining.NONE:
        episodes = ahead(EPISODES[kind](stage, training), stage.device)
        for number, episode in zip(range(config.episodes), episodes, strict=False):
            last.append((episode, episode.learn(steps, fold(key, number)).argmax(-1)))
            if (number + 1) % config.validate_every == 0 or number + 1 == config.episodes:
                accuracy = float((last[-1][1].cpu() == episode.target).float().mean())
                progress("meta-train", number + 1, config.episodes, {"query": accuracy})
    if kind is not MetaTraining.INCREMENTAL:
        for number, episode in zip(range(last.maxlen or 1), pseudo_episodes(stage, training), strict=False):
            last.append((episode, episode.loss(pack, fold(key, number))[1].argmax(-1)))
    return last


def _answer(
    stage: Stage,
    pack: Pack,
    steps: Steps,
    setting: Setting,
    streams: Sequence[Stream],
    session: int,
    meanings: list[np.ndarray],
    key: Tensor,
) -> np.ndarray:
    """The positions (pack, queries) that are answered, in training mode; a step on their labels follows."""
    doubles = stage.method.doubles
    meet(stage, pack, setting, streams, session)
    many = [s.met(session if doubles else session - 1) for s in streams]
    classes = [np.concatenate([m, s.arriving[session - 1]]) for m, s in zip(many, streams, strict=True)]
    supports, queries = [s.support[session - 1] for s in streams], [s.queries[session] for s in streams]
    task = stage.stacked(classes, many, supports, queries).on(stage.device)
    target = [
        _positions(meaning, world.labels[nodes])
        for meaning, world, nodes in zip(meanings, stage.worlds, queries, strict=True)
    ]
    scene = stage.scene(setting, len(streams[0].known), session + doubles)
    task = task._replace(recalled=recall(pack, scene, setting.view, task))
    logits = steps.take("session_loss", (scene,), (setting.view,), (task, stack(target), key))
    return logits.argmax(-1).cpu().numpy()


def _meanings(stage: Stage, stream: Stream, session: int) -> np.ndarray:
    """The class that each position stands for; -1 for the second prototypes of the new classes."""
    if not stage.method.doubles:
        return stream.met(session)
    new = stream.arriving[session - 1]
    return np.concatenate([stream.met(session - 1), np.full(len(new), -1), new])


def _positions(meanings: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Labels as positions."""
    order = np.argsort(meanings, kind="stable")
    return order[np.searchsorted(meanings[order], labels)]
