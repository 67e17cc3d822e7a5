"""Pre-training: the encoder learns to classify base nodes. Computed once and shared by all that need it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from filelock import FileLock
from torch import Tensor, nn

from hagmeta.common.errors import UserError
from hagmeta.common.files import written_whole
from hagmeta.config import RunConfig
from hagmeta.nn.encoder import make_encoder
from hagmeta.packs.capture import Capture, Steps
from hagmeta.packs.pack import EarlyStopping, Pack, Progress, State, stack
from hagmeta.packs.randomness import fold, keys, seeded
from hagmeta.phases.context import Stage
from hagmeta.protocol.splits import TRAIN, VAL
from hagmeta.protocol.streams import World
from hagmeta.sparse.graph import Graph, View

EVALUATE_EVERY = 10  # epochs
CACHE_VERSION = 1  # raise it when pre-training would give other parameters for the same settings
_SETTINGS = (
    *("encoder", "hidden", "embedding", "heads", "dropout"),
    *("learning_rate", "weight_decay", "pretrain_epochs", "pretrain_patience"),
)


class Pretrainer(nn.Module):
    """The encoder under a linear classifier."""

    def __init__(self, num_features: int, num_classes: int, config: RunConfig, seed: int) -> None:
        super().__init__()
        self.encoder = seeded(seed, "init/encoder", lambda: make_encoder(num_features, config))
        self.head = seeded(seed, "init/head", lambda: nn.Linear(config.embedding, num_classes))

    def loss(
        self, graph: Graph, view: View, target: Tensor, weight: Tensor, key: Tensor
    ) -> tuple[Tensor, Tensor]:
        logits = self.head(self.encoder(graph, view, key).all())
        return (weight * F.cross_entropy(logits, target, reduction="none")).sum(), logits

    def accuracy(self, graph: Graph, view: View, target: Tensor, weight: Tensor) -> Tensor:
        logits = self.head(self.encoder(graph, view, None).all())
        return (weight * (logits.argmax(-1) == target)).sum()

    def forward(self, step: str, *arguments: Any) -> Any:
        return getattr(self, step)(*arguments)


class Cache(NamedTuple):
    """Where pre-trained encoders are shared, and what names the data that they were trained on."""

    folder: Path
    fingerprint: str


def pretrained_encoders(stage: Stage, cache: Cache | None, progress: Progress) -> list[State]:
    """One encoder a world, from the cache where they are there. One process computes, others wait."""
    worlds = stage.worlds
    if cache is None:
        return _pretrain(stage, worlds, progress)
    cache.folder.mkdir(parents=True, exist_ok=True)
    paths = [cache.folder / f"{_cache_key(cache.fingerprint, world, stage)}.pt" for world in worlds]
    with ExitStack() as locks:
        # In sorted order, so that two packs that share seeds cannot wait for each other.
        for path in sorted(paths):
            if not path.exists():
                locks.enter_context(FileLock(path.with_suffix(".lock")))
        missing = [index for index, path in enumerate(paths) if not path.exists()]
        if missing:
            computed = _pretrain(stage, [worlds[index] for index in missing], progress)
            for index, state in zip(missing, computed, strict=True):
                _write(state, paths[index])
    return [_read(path, stage.device) for path in paths]


def _pretrain(stage: Stage, worlds: Sequence[World], progress: Progress) -> list[State]:
    config, graph = stage.config, stage.graph
    seeds = [world.seed for world in worlds]
    num_classes = len(pretrain_classes(worlds[0], config))
    pack = Pack([Pretrainer(graph.num_features, num_classes, config, s) for s in seeds], graph.device)
    with stage.capture() as capture:
        _train(stage, worlds, pack, capture, progress)
    prefix = "encoder."
    return [
        {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}
        for state in pack.states()
    ]


def _train(stage: Stage, worlds: Sequence[World], pack: Pack, capture: Capture, progress: Progress) -> None:
    """Train a pack to each seed's best validation accuracy."""
    config, graph = stage.config, stage.graph
    view = graph.view(np.stack([world.validation.visible(0) for world in worlds]))
    supervision = zip(*(_supervision(world, config) for world in worlds), strict=True)
    target, train, val = (stack(arrays).to(graph.device) for arrays in supervision)
    steps = Steps(pack, config.learning_rate, config.weight_decay, capture)
    stopping = EarlyStopping(pack, config.pretrain_patience)
    key = keys([world.seed for world in worlds], "dropout/pretrain")

    @torch.no_grad()
    def accuracies() -> Tensor:
        result: Tensor = pack.run("accuracy", (graph,), view, target, val)
        return result

    for epoch in range(config.pretrain_epochs):
        steps.take("loss", (graph,), (view, target, train), (fold(key, epoch),))
        if (epoch + 1) % EVALUATE_EVERY == 0 or epoch + 1 == config.pretrain_epochs:
            accuracy = capture.run("accuracy", accuracies, ()).cpu().numpy()
            stopping.update(accuracy)
            progress("pre-train", epoch + 1, config.pretrain_epochs, {"val": float(accuracy.mean())})
            if stopping.finished:
                break
    stopping.restore_best()


def pretrain_classes(world: World, config: RunConfig) -> np.ndarray:
    """The paper pre-trains on base classes; the authors' code on all that training sees."""
    if config.protocol == "released":
        return np.concatenate([world.split.base, world.meta_classes])
    return world.split.base


def _supervision(world: World, config: RunConfig) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Targets (nodes,), and the weights of the nodes to train and to validate on.

    Over all nodes, so that the shapes, and with them every rounding, are those of the seed alone.
    """
    classes = pretrain_classes(world, config)
    target = np.zeros(len(world.labels), dtype=np.int64)
    weights = []
    for role in (TRAIN, VAL):
        nodes = world.nodes_of(classes, role)
        target[nodes] = world.positions(classes)[world.labels[nodes]]
        weight = np.zeros(len(world.labels), dtype=np.float32)
        weight[nodes] = 1 / len(nodes)
        weights.append(weight)
    return target, weights[0], weights[1]


def _cache_key(fingerprint: str, world: World, stage: Stage) -> str:
    """Names what pre-training depends on: the data, what is seen and supervised, the settings, the seed."""
    digest = hashlib.sha256(f"{CACHE_VERSION} {fingerprint} {stage.device.type} {world.seed}".encode())
    digest.update(str([getattr(stage.config, name) for name in _SETTINGS]).encode())
    for array in (world.validation.visible(0), *_supervision(world, stage.config)):
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:24]


def _read(path: Path, device: torch.device) -> State:
    try:
        return torch.load(path, map_location=device, weights_only=True)
    except Exception as error:  # torch.load raises whatever the bytes provoke
        raise UserError(f"the pre-trained encoder {path} cannot be read; delete it and run again.") from error


def _write(state: State, path: Path) -> None:
    with written_whole(path) as partial:
        torch.save({name: value.cpu() for name, value in state.items()}, partial)
