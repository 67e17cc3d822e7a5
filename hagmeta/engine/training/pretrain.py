"""Pre-training: the encoder learns to classify nodes of known classes. Runs share the result."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from filelock import FileLock, Timeout
from torch import Tensor, nn

from hagmeta.common.errors import Diverged, UserError
from hagmeta.common.files.files import written_whole
from hagmeta.config.settings import PhaseSettings, PretrainSettings
from hagmeta.engine.cache import Cache
from hagmeta.engine.checkpoints import State
from hagmeta.engine.context import Context
from hagmeta.engine.training.divergence import check_losses, check_parameters
from hagmeta.layers.encoders.registry import ENCODERS, EncoderSettings, make_encoder
from hagmeta.layers.head import LABEL_SMOOTHING, cosine_logits
from hagmeta.packs.capture import Capture, Steps
from hagmeta.packs.pack import EarlyStopping, Pack, Parameters, once_each, stack
from hagmeta.packs.randomness import fold, keys, seeded
from hagmeta.scenarios.scenario import TRAIN, VAL, Scenario
from hagmeta.sparse.graph import Graph, View

PHASE = "pre-training"
EVALUATE_EVERY = 10  # epochs
CACHE_VERSION = 1  # raise this when pre-training gives other parameters for the same settings


class Pretrainer(nn.Module):
    """The encoder with a classifier on top."""

    def __init__(self, num_inputs: int, num_classes: int, settings: PhaseSettings, seed: int) -> None:
        super().__init__()
        self.cosine = settings.classifier == "cosine"
        self.encoder = seeded(seed, "init/encoder", lambda: make_encoder(num_inputs, settings))
        self.head = seeded(seed, "init/head", lambda: nn.Linear(settings.embedding, num_classes))

    def loss(
        self, graph: Graph, view: View, target: Tensor, weight: Tensor, key: Tensor
    ) -> tuple[Tensor, Tensor]:
        logits = self._logits(graph, view, key)
        smoothing = LABEL_SMOOTHING if self.cosine else 0.0
        losses = F.cross_entropy(logits, target, reduction="none", label_smoothing=smoothing)
        return (weight * losses).sum(), logits

    def accuracy(self, graph: Graph, view: View, target: Tensor, weight: Tensor) -> Tensor:
        logits = self._logits(graph, view, None)
        return (weight * (logits.argmax(-1) == target)).sum()

    def _logits(self, graph: Graph, view: View, key: Tensor | None) -> Tensor:
        embedded = self.encoder(graph, view, key).all()
        if not self.cosine:
            logits: Tensor = self.head(embedded)
            return logits
        return cosine_logits(embedded, self.head.weight)

    def forward(self, step: str, *arguments: Any) -> Any:
        return getattr(self, step)(*arguments)


def pretrained_encoders(context: Context) -> list[Parameters]:
    """Return the encoder parameters of each scenario, from the cache of `context` if possible.

    If several processes need the same encoder, one of them computes it and the others wait.
    """
    pairs = zip(context.scenarios, context.members, strict=True)
    alike = [(id(scenario), pretraining_settings(settings)) for scenario, settings in pairs]
    first = {each: alike.index(each) for each in alike}  # members that need the same encoder share it
    members = list(first.values())
    try:
        made = _cached(context, members, context.cache) if context.cache else _pretrain(context, members)
    except Diverged as error:
        shared = {place: first[each] for place, each in enumerate(alike) if first[each] in error.failures}
        raise Diverged({place: error.failures[member] for place, member in shared.items()}) from None
    found = dict(zip(members, made, strict=True))
    return [found[first[each]] for each in alike]


def _cached(context: Context, members: Sequence[int], cache: Cache) -> list[Parameters]:
    cache.folder.mkdir(parents=True, exist_ok=True)
    paths = [cache.folder / f"{_cache_key(cache.fingerprint, member, context)}.pt" for member in members]
    with ExitStack() as locks:
        # Locks are taken in sorted order, so that two packs that share seeds cannot deadlock.
        for path in sorted(paths):
            if not path.exists():
                _lock(FileLock(path.with_suffix(".lock")), context, locks)
        missing = [index for index, path in enumerate(paths) if not path.exists()]
        if missing:
            computed = _pretrain(context, [members[index] for index in missing])
            for index, state in zip(missing, computed, strict=True):
                _write(state, paths[index])
    return [_read(path, context.runtime.device) for path in paths]


def _lock(lock: FileLock, context: Context, locks: ExitStack) -> None:
    """Hold a lock until `locks` are released."""
    try:
        lock.acquire(blocking=False)
    except Timeout:
        context.runtime.options.waits()
        lock.acquire()
    locks.callback(lock.release)


def _pretrain(context: Context, members: Sequence[int]) -> list[Parameters]:
    """Return the encoder parameters of some members of the pack, given by their positions."""
    num_classes = len(context.protocol.pretrain_classes(context.scenarios[0]))
    num_inputs = context.known.views.sizes.features
    modules = [
        Pretrainer(num_inputs, num_classes, context.members[member], context.seeds[member])
        for member in members
    ]
    pack = context.runtime.pack(modules)
    with context.runtime.capture() as capture:
        _train(context, members, pack, capture)
    check_parameters(context, pack, PHASE, members=members)
    prefix = "encoder."
    return [
        {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}
        for state in pack.states()
    ]


def _train(context: Context, members: Sequence[int], pack: Pack, capture: Capture) -> None:
    """Train a pack with early stopping, and restore the best parameters of each seed."""
    settings, views = context.settings, context.known.views
    scenarios = [context.scenarios[member] for member in members]
    seen = once_each(views.seen_first, scenarios)
    view = views.view(scenarios, seen)
    graph = views.graph_of(scenarios, seen, view, settings.pretrain_epochs)
    supervised = once_each(lambda scenario: _supervision(scenario, context), scenarios)
    supervision = zip(*supervised, strict=True)
    target, train, val = (stack(arrays).to(graph.device) for arrays in supervision)
    rate, decay = (
        np.array([getattr(context.members[member], name) for member in members])
        for name in ("learning_rate", "weight_decay")
    )
    steps = Steps(pack, rate, decay, capture)
    stopping = EarlyStopping(pack, settings.pretrain_patience)
    key = keys([scenario.seed for scenario in scenarios], "dropout/pretrain")

    @torch.no_grad()
    def accuracies() -> Tensor:
        result: Tensor = pack.run("accuracy", (graph,), view, target, val)
        return result

    checkpoints, first = context.runtime.options.checkpoints, 0
    if checkpoints and (checkpoints.reached("meta-train") or checkpoints.reached("sessions")):
        checkpoints = None  # it has a later state, which must not be lost if the cache lacks the encoder
    before = checkpoints.reached("pre-train") if checkpoints else None
    if before and before["members"] == list(members):
        first = before["epochs"]
        pack.restore(before["parameters"])
        steps.restore(before["steps"])
        stopping.load(before["stopping"])

    def state() -> State:
        return {
            "members": list(members),
            "epochs": epoch + 1,
            "parameters": pack.snapshot(),
            "steps": steps.state(),
            "stopping": stopping.state(),
        }

    for epoch in range(first, settings.pretrain_epochs):
        steps.take("loss", (graph,), (view, target, train), (fold(key, epoch),))
        if (epoch + 1) % EVALUATE_EVERY == 0 or epoch + 1 == settings.pretrain_epochs:
            accuracy = capture.run("accuracy", accuracies, ()).cpu().numpy()
            check_losses(context, steps, PHASE, watched=stopping.active, members=members)
            stopping.update(accuracy)
            values = {"val": float(accuracy.mean())}
            context.runtime.options.progress("pre-train", epoch + 1, settings.pretrain_epochs, values)
            if stopping.finished:
                break
            if checkpoints and epoch + 1 < settings.pretrain_epochs:
                checkpoints.keep("pre-train", f"epoch {epoch + 1} of pre-training", state)
    stopping.restore_best()


def _supervision(scenario: Scenario, context: Context) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return targets (nodes,), and the weights of the nodes in training and in validation.

    All arrays cover all nodes, so that shapes, and therefore rounding, do not depend on the other seeds.
    """
    classes = context.protocol.pretrain_classes(scenario)
    target = np.zeros(len(scenario.labels), dtype=np.int64)
    weights = []
    for role in (TRAIN, VAL):
        nodes = scenario.nodes_of(classes, role)
        target[nodes] = scenario.positions(classes)[scenario.labels[nodes]]
        weight = np.zeros(len(scenario.labels), dtype=np.float32)
        if context.settings.classifier == "cosine":  # class-balanced
            sizes = np.bincount(target[nodes], minlength=len(classes))
            weight[nodes] = 1 / (len(classes) * sizes[target[nodes]])
        else:
            weight[nodes] = 1 / len(nodes)
        weights.append(weight)
    return target, weights[0], weights[1]


def pretraining_settings(settings: PhaseSettings) -> tuple[tuple[str, Any], ...]:
    """Return the settings on which pre-training depends, with their names."""
    own = ENCODERS[settings.encoder].own_settings  # only plug-ins have them
    groups = (EncoderSettings, PretrainSettings, *([own] if own else []))
    names = sorted(dict.fromkeys(item.name for group in groups for item in fields(group)))
    return tuple((name, getattr(settings, name)) for name in names)


def _cache_key(fingerprint: str, member: int, context: Context) -> str:
    """Return a hash of everything that pre-training depends on: data, visibility, labels, settings, seed."""
    runtime, scenario = context.runtime, context.scenarios[member]
    device = runtime.device.type + " plain" * runtime.plain  # results differ by rounding
    digest = hashlib.sha256(f"{CACHE_VERSION} {fingerprint} {device} {scenario.seed}".encode())
    digest.update(str(list(pretraining_settings(context.members[member]))).encode())
    seen, settings = context.known.views.seen_first(scenario), context.settings
    arrays = [seen, *_supervision(scenario, context)]
    if settings.unlabelled_nodes != "all" and settings.inputs != "raw":  # inputs are computed from others
        arrays.append(context.protocol.learnable(scenario, seen))
    for array in arrays:
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:24]


def _read(path: Path, device: torch.device) -> Parameters:
    try:
        return torch.load(path, map_location=device, weights_only=True)
    except Exception as error:  # a damaged file can raise anything
        raise UserError(
            f"cannot read the pre-trained encoder {path}; delete the file and run again."
        ) from error


def _write(state: Parameters, path: Path) -> None:
    with written_whole(path) as partial:
        torch.save({name: value.cpu() for name, value in state.items()}, partial)
