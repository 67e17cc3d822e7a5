"""What the authors' published code does, so that its tables can be compared with. It leaks.

Queries come from all nodes of a class, training nodes included; a met class's prototype is the mean of all
its nodes; a session's accuracy is read in training mode from the very pass whose loss, on the query labels,
then takes one gradient step. A_0 is the query accuracy of the last pseudo-stream of meta-training.

In the sessions a new class has two prototypes there: that of its supports, which is right, and the mean of
all its nodes, which is counted wrong (the list of known classes is extended before it is used). That costs
the authors' figures several points and is kept, since the paper's tables were made so.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from hagmeta.evaluate import Evaluator
from hagmeta.gpil import Episode, pseudo_episodes
from hagmeta.methods.base import Task
from hagmeta.pack import Pack, Progress, descend, stack
from hagmeta.randomness import fold, keys
from hagmeta.snapshots import Snapshots
from hagmeta.stage import Stage
from hagmeta.stream import Stream


def meta_train_and_play(
    stage: Stage, pack: Pack, progress: Progress, snapshots: Snapshots | None = None
) -> list[Evaluator]:
    """Meta-training without early stopping, then the sessions, with one optimizer throughout."""
    config, worlds = stage.config, stage.worlds
    streams = [world.test for world in worlds]
    evaluators = [Evaluator(s, w.labels) for s, w in zip(streams, worlds, strict=True)]
    optimizer = pack.optimizer(config.learning_rate, config.weight_decay)

    key = keys(stage.seeds, "dropout/gpil", stage.device)
    episodes = pseudo_episodes(stage, stage.training())
    last = deque[tuple[Episode, np.ndarray]](maxlen=len(worlds[0].meta_classes) // stage.n_way)
    # Without GPIL one pseudo-stream is answered, and nothing learnt from it.
    count = config.episodes if config.gpil else last.maxlen or 1
    for number in range(count):
        episode = next(episodes)
        losses, logits = episode.loss(pack, fold(key, number))
        last.append((episode, logits.argmax(-1).cpu().numpy()))
        if config.gpil:
            descend(optimizer, losses)
            if (number + 1) % config.validate_every == 0 or number + 1 == count:
                accuracy = float((last[-1][1] == episode.target.cpu().numpy()).mean())
                progress("meta-train", number + 1, count, {"query": accuracy})
    for index, evaluator in enumerate(evaluators):
        queries = [episode.task.query[index].cpu().numpy() for episode, _ in last]
        classes = [episode.classes[index][answer[index]] for episode, answer in last]
        evaluator.record(np.concatenate(queries), np.concatenate(classes))
    if snapshots:
        snapshots.take(stage, pack, stage.session(streams, 0), streams, 0)

    key = keys(stage.seeds, "dropout/test", stage.device)
    for session in range(1, streams[0].sessions + 1):
        answers = [_answers(stream, session) for stream in streams]
        target = [
            _positions(a, w.labels[s.queries[session]])
            for a, s, w in zip(answers, streams, worlds, strict=True)
        ]
        task = Task(
            many=stack((s.met(session) for s in streams), stage.device),
            support=stack((s.support[session - 1] for s in streams), stage.device),
            query=stack((s.queries[session] for s in streams), stage.device),
        )
        setting = stage.session(streams, session)
        scene = stage.scene(setting, len(streams[0].known), session + 1)
        losses, logits = pack.run(
            "loss", (scene,), setting.view, task, stack(target, stage.device), fold(key, session)
        )
        chosen = logits.argmax(-1).cpu().numpy()
        for evaluator, stream, meaning, row in zip(evaluators, streams, answers, chosen, strict=True):
            evaluator.record(stream.queries[session], meaning[row])
        descend(optimizer, losses)  # on the labels just scored
        if snapshots:
            snapshots.take(stage, pack, setting, streams, session)
        progress("test", session, streams[0].sessions, {})
    return evaluators


def _answers(stream: Stream, session: int) -> np.ndarray:
    """The class that each prototype stands for; -1 for the second prototypes of the new classes."""
    new = stream.arriving[session - 1]
    return np.concatenate([stream.met(session - 1), np.full(len(new), -1), new])


def _positions(answers: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Labels as positions among the prototypes."""
    order = np.argsort(answers, kind="stable")
    return order[np.searchsorted(answers[order], labels)]
