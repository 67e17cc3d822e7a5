"""Meta-training: by graph pseudo-incremental learning (GPIL), or by what a compared method has instead."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from torch import Tensor

from hagmeta.methods.base import MetaTraining, Scene, Task
from hagmeta.packs.capture import Capture, Steps, ahead
from hagmeta.packs.pack import EarlyStopping, Pack, Progress, stack
from hagmeta.packs.randomness import fold, keys
from hagmeta.phases.context import Setting, Stage
from hagmeta.phases.sessions import Validation, meet_trained
from hagmeta.protocol.episodes import BatchSampler, EpisodeSampler, TaskSampler
from hagmeta.sparse.graph import View


class Episode(NamedTuple):
    """One task of meta-training, with a leading pack axis on every tensor; the task lies on the host."""

    scene: Scene
    view: View
    task: Task
    target: Tensor  # (pack, queries)
    classes: np.ndarray  # (pack, classes) in the order in which the stream met them

    def loss(self, pack: Pack, key: Tensor) -> tuple[Tensor, Tensor]:
        """Losses (pack,) and logits (pack, queries, classes) in training mode."""
        device = self.view.scale.device
        drawn = self.task.on(device), self.target.to(device), key.to(device)
        losses, logits = pack.run("loss", (self.scene,), self.view, *drawn)
        return losses, logits

    def learn(self, steps: Steps, key: Tensor) -> Tensor:
        """One step down those losses; returns the logits, until the next."""
        return steps.take("loss", (self.scene,), (self.view,), (self.task, self.target, key))


def pseudo_episodes(stage: Stage, setting: Setting) -> Iterator[Episode]:
    """Episodes without end: the sessions of one pseudo-stream after the other."""
    samplers = [EpisodeSampler(world, stage.config) for world in stage.worlds]
    base, sessions = len(stage.worlds[0].split.base), samplers[0].sessions
    while True:
        drawn = [sampler.draw() for sampler in samplers]
        for session in range(sessions):
            task, target = stage.episode(drawn, session)
            targets = stack([target] * len(drawn))
            classes = np.stack(
                [np.concatenate([w.split.base, d.order]) for w, d in zip(stage.worlds, drawn, strict=True)]
            )
            yield Episode(stage.scene(setting, base, session + 1), setting.view, task, targets, classes)


def ordinary_episodes(stage: Stage, setting: Setting) -> Iterator[Episode]:
    """N-way K-shot tasks without end, each of novel-train classes alone."""
    samplers = [TaskSampler(world, stage.config) for world in stage.worlds]
    scene = Scene(stage.graph, setting.class_means, (stage.n_way,))
    while True:
        classes, support, query = (
            np.stack(arrays) for arrays in zip(*(sampler.draw() for sampler in samplers), strict=True)
        )
        yield _episode(stage, scene, setting, classes, classes[:, :0], support, query)


def supervised_episodes(stage: Stage, setting: Setting) -> Iterator[Episode]:
    """Batches without end: nodes of every class that training may know, each known by many."""
    samplers = [BatchSampler(world, stage.config) for world in stage.worlds]
    classes = np.stack([world.trained for world in stage.worlds])
    scene = Scene(stage.graph, setting.class_means, (classes.shape[1],))
    while True:
        query = np.stack([sampler.draw() for sampler in samplers])
        yield _episode(stage, scene, setting, classes, classes, query[:, :0, :1], query)


def _episode(
    stage: Stage,
    scene: Scene,
    setting: Setting,
    classes: np.ndarray,
    many: np.ndarray,
    support: np.ndarray,
    query: np.ndarray,
) -> Episode:
    """An episode of ``classes`` (pack, classes) with queries (pack, classes, shots)."""
    target = np.repeat(np.arange(classes.shape[1]), query.shape[2])
    nodes = query.reshape(len(query), -1)
    task = stage.stacked(classes, many, support, nodes)
    return Episode(scene, setting.view, task, stack([target] * len(classes)), classes)


EPISODES = {
    MetaTraining.INCREMENTAL: pseudo_episodes,
    MetaTraining.ORDINARY: ordinary_episodes,
    MetaTraining.SUPERVISED: supervised_episodes,
}


def meta_train(stage: Stage, pack: Pack, progress: Progress) -> list[float | None]:
    """Train the pack to each seed's best validation accuracy, which is returned; None without training."""
    if stage.meta_training is MetaTraining.NONE:
        return [None] * pack.size
    with stage.capture() as capture:
        return _meta_train(stage, pack, capture, progress)


def _meta_train(stage: Stage, pack: Pack, capture: Capture, progress: Progress) -> list[float | None]:
    config, training = stage.config, stage.propagated(pack, stage.training())
    validation = Validation(stage, pack, capture)
    meet_trained(stage, pack, training)
    steps = Steps(pack, config.learning_rate, config.weight_decay, capture)
    stopping = EarlyStopping(pack, config.patience)
    key = keys(stage.seeds, "dropout/gpil")
    episodes = ahead(EPISODES[stage.meta_training](stage, training), stage.device)
    for number, episode in zip(range(config.episodes), episodes, strict=False):
        episode.learn(steps, fold(key, number))
        if (number + 1) % config.validate_every == 0 or number + 1 == config.episodes:
            accuracy = validation.accuracy()
            stopping.update(accuracy)
            progress("meta-train", number + 1, config.episodes, {"val": float(accuracy.mean())})
            if stopping.finished:
                break
    stopping.restore_best()
    return stopping.best.tolist()
