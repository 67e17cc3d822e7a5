"""Meta-training by graph pseudo-incremental learning (GPIL)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from hagmeta.episodes import EpisodeSampler
from hagmeta.graph import View
from hagmeta.methods.base import Scene, Task
from hagmeta.pack import EarlyStopping, Pack, Progress, descend, stack
from hagmeta.randomness import fold, keys
from hagmeta.sessions import validate, validation_settings
from hagmeta.stage import Setting, Stage


@dataclass(frozen=True)
class Episode:
    """One pseudo-incremental task, with a leading pack axis on every tensor."""

    scene: Scene
    view: View
    task: Task
    target: Tensor  # (pack, queries)
    classes: np.ndarray  # (pack, classes) in the order in which the stream met them

    def loss(self, pack: Pack, key: Tensor) -> tuple[Tensor, Tensor]:
        """Losses (pack,) and logits (pack, queries, classes) in training mode."""
        losses, logits = pack.run("loss", (self.scene,), self.view, self.task, self.target, key)
        return losses, logits


def pseudo_episodes(stage: Stage, setting: Setting) -> Iterator[Episode]:
    """Episodes without end: the sessions of one pseudo-stream after the other."""
    samplers = [EpisodeSampler(world, stage.config) for world in stage.worlds]
    base, sessions = len(stage.worlds[0].split.base), samplers[0].sessions
    while True:
        drawn = [sampler.draw() for sampler in samplers]
        for session in range(sessions):
            task, target = stage.episode(drawn, session)
            targets = stack([target] * len(drawn), stage.device)
            classes = np.stack(
                [np.concatenate([w.split.base, d.order]) for w, d in zip(stage.worlds, drawn, strict=True)]
            )
            yield Episode(stage.scene(setting, base, session + 1), setting.view, task, targets, classes)


def meta_train(stage: Stage, pack: Pack, progress: Progress) -> np.ndarray:
    """Train the pack to each seed's best validation accuracy, which is returned."""
    config = stage.config
    optimizer = pack.optimizer(config.learning_rate, config.weight_decay)
    stopping = EarlyStopping(pack, config.patience)
    training, validation = stage.training(), validation_settings(stage)
    key = keys(stage.seeds, "dropout/gpil", stage.device)
    for number, episode in zip(range(config.episodes), pseudo_episodes(stage, training), strict=False):
        losses, _ = episode.loss(pack, fold(key, number))
        descend(optimizer, losses)
        if (number + 1) % config.validate_every == 0 or number + 1 == config.episodes:
            accuracy = validate(stage, pack, validation)
            stopping.update(accuracy)
            progress("meta-train", number + 1, config.episodes, {"val": float(accuracy.mean())})
            if stopping.finished:
                break
    stopping.restore_best()
    return stopping.best
