"""What the authors' published code does, so that its tables can be compared with. It leaks.

Queries come from all nodes of a class, training nodes included; a met class's prototype is the mean of all
its nodes; a session's accuracy is read in training mode from the very pass whose loss, on the query labels,
then takes one gradient step. A_0 is the query accuracy of the last pseudo-stream of meta-training.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from hagmeta.evaluate import Evaluator
from hagmeta.gpil import Episode, pseudo_episodes
from hagmeta.pack import Pack, Progress, descend, stack
from hagmeta.randomness import fold, keys
from hagmeta.stage import Stage


def meta_train_and_play(stage: Stage, pack: Pack, progress: Progress) -> list[Evaluator]:
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

    key = keys(stage.seeds, "dropout/test", stage.device)
    for session in range(1, streams[0].sessions + 1):
        setting = stage.session(streams, session)
        target = [_positions(s.met(session), w.labels[s.queries[session]]) for s, w in zip(streams, worlds, strict=True)]
        scene = stage.scene(setting, len(streams[0].known), session)
        losses, logits = pack.run(
            "loss",
            (scene,),
            setting.view,
            stage.task(streams, session),
            stack(target, stage.device),
            fold(key, session),
        )
        for evaluator, answer in zip(evaluators, logits.argmax(-1).cpu().numpy(), strict=True):
            evaluator.score(answer)
        descend(optimizer, losses)  # on the labels just scored
        progress("test", session, streams[0].sessions, {})
    return evaluators


def _positions(met: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Labels as positions in the order in which classes were met."""
    return np.argsort(met)[np.searchsorted(np.sort(met), labels)]
