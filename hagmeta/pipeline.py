"""One configuration, several seeds: pre-train, meta-train, evaluate, and a record a seed."""

from __future__ import annotations

import platform
import resource
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import fields, replace
from functools import cache as memoize
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from hagmeta import datasets
from hagmeta.common.errors import UserError, choose
from hagmeta.config import RELEASED_QUERIES, RunConfig
from hagmeta.datasets.base import NodeDataset
from hagmeta.methods import METHODS, Lesson, Sizes, make_method
from hagmeta.packs.capture import stream_of
from hagmeta.packs.pack import Pack, Progress, no_progress
from hagmeta.phases import released
from hagmeta.phases.context import Stage
from hagmeta.phases.meta_training import meta_train
from hagmeta.phases.pretrain import Cache, pretrained_encoders
from hagmeta.phases.sessions import play
from hagmeta.phases.snapshots import Snapshots
from hagmeta.protocol.metrics import summarise
from hagmeta.protocol.streams import check_ways, make_world
from hagmeta.sparse.graph import Graph

Record = dict[str, Any]
Validation = dict[str, float | None]


def run(
    config: RunConfig,
    seeds: Sequence[int],
    *,
    dataset: NodeDataset,
    device: torch.device,
    cache: Path | None = None,
    progress: Progress = no_progress,
    snapshots: Snapshots | None = None,
    eager: bool = False,
) -> list[Record]:
    """Run one configuration for a pack of seeds; a seed's record does not depend on the others.

    ``eager`` keeps a GPU from capturing steps and replaying them: slower, and for debugging.
    """
    _forget_peaks(device)
    with stream_of(device):
        return _run(config, seeds, dataset, device, cache, progress, snapshots, eager)


def _run(
    config: RunConfig,
    seeds: Sequence[int],
    dataset: NodeDataset,
    device: torch.device,
    cache: Path | None,
    progress: Progress,
    snapshots: Snapshots | None,
    eager: bool,
) -> list[Record]:
    clock = Clock(len(seeds), device)
    with clock("prepare"):
        stage = prepare(config, seeds, dataset, device, eager=eager)
    with clock("pretrain"):
        pack = pretrain(stage, Cache(cache, datasets.fingerprint(dataset)) if cache else None, progress)
    validation: list[Validation] = [{"gpil": None, "stream": None} for _ in seeds]
    if stage.config.protocol == "released":
        with clock("gpil"):
            evaluators = released.meta_train_and_play(stage, pack, progress, snapshots)
    else:
        with clock("gpil"):
            for values, best in zip(validation, meta_train(stage, pack, progress), strict=True):
                values["gpil"] = best
        with clock("evaluate"):
            if stage.config.val_classes:
                for values, accuracy in zip(validation, rehearse(stage, pack, progress), strict=True):
                    values["stream"] = accuracy
            streams = [world.test for world in stage.worlds]
            evaluators = play(stage, pack, streams, "test", progress, snapshots)
    return [
        {
            "config": stage.config.canonical(),
            "config_hash": stage.config.hash(),
            "seed": seed,
            "oracle": stage.method.oracle,
            **summarise(evaluator),
            "validation": values,
            "seconds": clock.seconds,
            "environment": environment(device, len(seeds)),
        }
        for seed, evaluator, values in zip(seeds, evaluators, validation, strict=True)
    ]


def prepare(
    config: RunConfig,
    seeds: Sequence[int],
    dataset: NodeDataset,
    device: torch.device,
    *,
    eager: bool = False,
) -> Stage:
    """Draw every seed's world, and put the graph on its device."""
    config = resolve(config)
    assert config.n_way
    worlds = [make_world(dataset, config, seed) for seed in seeds]
    return Stage(Graph(dataset, device), worlds, config, config.n_way, eager)


def pretrain(stage: Stage, cache: Cache | None, progress: Progress) -> Pack:
    """The methods of a pack, each over its seed's pre-trained encoder."""
    encoders = pretrained_encoders(stage, cache, progress)
    world = stage.worlds[0]
    sizes = Sizes(stage.graph.num_features, len(world.split.base), stage.n_way, world.num_classes)
    methods = [make_method(stage.config, sizes, seed) for seed in stage.seeds]
    for method, encoder in zip(methods, encoders, strict=True):
        method.encoder.load_state_dict(encoder)
    return Pack(methods, stage.device)


def rehearse(stage: Stage, pack: Pack, progress: Progress) -> list[float]:
    """Play the validation streams, learning in their sessions, and forget what was learnt there."""
    trained = pack.snapshot()
    evaluators = play(stage, pack, [world.validation for world in stage.worlds], "validation", progress)
    pack.restore(trained)
    return [sum(evaluator.accuracy()) / len(evaluator.accuracy()) for evaluator in evaluators]


def resolve(config: RunConfig) -> RunConfig:
    """Fill in what the dataset, the protocol and the method decide: equal runs are equal configurations."""
    choose("method", config.method, METHODS)
    config = _settled(config)
    info = datasets.describe(config.dataset, Path())
    classes = config.classes or info.class_split
    if classes is None:
        raise UserError(
            f"{config.dataset} has no class split of its own: give one with --classes B T E "
            f"(base, novel-train, novel-test)."
        )
    n_way, k_shot = config.n_way or info.n_way or 3, config.k_shot or info.k_shot or 5
    queries = RELEASED_QUERIES if config.protocol == "released" else k_shot
    resolved = replace(
        config,
        classes=classes,
        n_way=n_way,
        k_shot=k_shot,
        sessions=config.sessions or max(classes[2] // n_way, 1),
        query_shot=config.query_shot or queries,
    )
    check_ways(resolved)
    return resolved


def _settled(config: RunConfig) -> RunConfig:
    """Settings that do not apply have their defaults, or what the method decides in their place."""
    changes: dict[str, Any] = {
        item.name: item.default for item in fields(RunConfig) if not config.applies(item.name)
    }
    return replace(config, **(changes | dict(METHODS[config.method].settings)))


def remarks(config: RunConfig) -> list[str]:
    """What a user should know of a resolved configuration before it runs."""
    assert config.classes and config.n_way and config.sessions
    notes = []
    left = config.classes[2] - config.sessions * config.n_way
    if left:
        notes.append(
            f"of the {config.classes[2]} novel-test classes {left} will be left over and never arrive"
        )
    method = METHODS[config.method]
    if method.oracle:
        notes.append(f"{config.method} is an oracle: it knows the train labels of every class met")
    held_out = method.lesson is Lesson.HELD_OUT and not method.oracle
    if held_out and config.k_shot == 1 and config.finetune_steps and config.protocol == "strict":
        notes.append(
            "with one label a class none can be held out: new classes are fine-tuned as prototypes only"
        )
    if config.protocol == "released":
        notes.append("the released protocol leaks: it trains on the queries that it is scored on")
    return notes


class Clock:
    """Seconds by phase: each seed is charged its share of the pack's."""

    def __init__(self, pack: int, device: torch.device) -> None:
        self._pack, self._device = pack, device
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        self.seconds[phase] = (time.perf_counter() - start) / self._pack


def environment(device: torch.device, pack: int) -> dict[str, Any]:
    """Where and with what a run was made."""
    on_gpu = device.type == "cuda"
    peak = torch.cuda.max_memory_allocated(device) if on_gpu else 0
    return {
        "device": torch.cuda.get_device_name(device) if on_gpu else f"{platform.machine()} CPU",
        "threads": torch.get_num_threads(),
        "seeds_in_pack": pack,
        "peak_gpu_bytes": peak,
        "peak_memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "python": platform.python_version(),
        **{package: version(package) for package in ("torch", "torch-geometric", "numpy", "scipy")},
        "commit": _commit(),
    }


def _forget_peaks(device: torch.device) -> None:
    """Peaks of memory are those of this run, also in a process that ran others before."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
    with suppress(OSError):  # Linux alone lets a process reset its own
        Path("/proc/self/clear_refs").write_text("5")


@memoize
def _commit() -> str | None:
    """The checkout's commit, with a + where files differ from it; None outside a checkout."""
    git = ["git", "-C", str(Path(__file__).parent)]
    try:
        head = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
        changed = subprocess.run([*git, "status", "--porcelain"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return head.stdout.strip() + ("+" if changed.stdout.strip() else "")
