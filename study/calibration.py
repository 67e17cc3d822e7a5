"""Find the GPU memory of trials before a study: by an upper bound or, where it is too high, in short runs."""

from __future__ import annotations

import ast
import gc
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import ray
import torch

from hagmeta.common.errors import UserError
from hagmeta.common.files.files import written_whole
from hagmeta.common.files.home import home
from hagmeta.config.run_config import RunConfig, resolve
from hagmeta.datasets.base import Dataset
from hagmeta.engine.options import RunOptions, mode_of
from hagmeta.engine.run import run
from hagmeta.methods import METHODS, MetaTraining
from hagmeta.sparse.inputs import width_of
from study import data
from study.naming import counted
from study.plan import Trial
from study.resources import Kind, fits_anywhere, kind, share_of

CODE = Path(__file__).resolve().parent.parent / "hagmeta"
ALLOCATING = ("methods", "layers", "packs", "engine", "sparse")  # the code that uses GPU memory

_WITH_DOCSTRINGS = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
PSEUDO_STREAMS = 2  # the second one captures CUDA graphs of the shapes in the first
NOT_MEASURED = float("inf")  # the trial gets a whole GPU
# Trials that may not fit eight times are on large graphs, where four at once keep a GPU busy.
ENOUGH_AT_ONCE = 4
# Upper bounds: values per node and seed, bytes per edge, and all other memory. Eight methods at Reddit's size
# with 32 hidden units used 19 values per unit and less. A pack that does not fit after all runs in halves.
LAYERS = 30  # per hidden unit
INNER_STEP = 3  # per hidden unit and inner step
CLASS_ROWS = 600
EDGE_BYTES = 50
OTHER_BYTES = 1e9


@dataclass(frozen=True)
class MemoryProbe:
    """A short run that needs as much memory as the trials that it represents."""

    config: RunConfig
    seeds: int
    eager: bool

    def key(self, gpu: str) -> str:
        """Return a key of everything that the memory depends on: readable words, then a hash."""
        words = [self.config.dataset, self.config.method, f"{self.seeds} seeds", gpu, torch.__version__]
        hashed = [self.config.canonical(), self.eager, data.identity(self.config.dataset), code_version()]
        return " / ".join([*words, hashlib.sha256(json.dumps(hashed).encode()).hexdigest()[:16]])

    def most(self) -> float:
        """Return an upper bound in bytes; infinite if the data cannot be loaded."""
        try:
            dataset = data.load(self.config.dataset)
        except UserError:  # the trials report it
            return NOT_MEASURED
        steps = getattr(self.config, "inner_steps", 0)
        columns = self._input_columns(dataset)
        values = (LAYERS + INNER_STEP * steps) * self.config.hidden + CLASS_ROWS + columns
        nodes = 4.0 * dataset.num_nodes * (self.seeds * values + columns)
        return OTHER_BYTES + nodes + EDGE_BYTES * len(dataset.edges)

    def _input_columns(self, dataset: Dataset) -> int:
        """Return the columns of dense inputs, which are kept for all seeds and, propagated, for each seed."""
        narrow = self.config.inputs == "svd"
        if not narrow and not isinstance(dataset.features, np.ndarray):
            return 0  # sparse features are small
        return width_of(self.config.inputs, dataset.num_features)


def gpu_shares(
    trials: Iterable[Trial],
    say: Callable[[str], object],
    *,
    eager: bool = False,
    lent: Mapping[str, Dataset] | None = None,
) -> dict[Kind, float]:
    """Return the share of a GPU for each kind of trial; a worker measures what is not known yet.

    Args:
        trials: The trials to run.
        say: Prints a line.
        eager: Whether CUDA graphs are disabled.
        lent: Graphs that workers cannot load.
    """
    name, memory = _gpu()
    probes = make_probes(trials, eager=eager)
    bounds = {key: probe.most() for key, probe in _by_dataset(probes).items()}
    larger = {key: probe for key, probe in probes.items() if not fits_anywhere(bounds[key], memory)}
    known = _read() if larger else {}
    unknown = {key: probe for key, probe in larger.items() if probe.key(name) not in known}
    new = [probe for key, probe in unknown.items() if share_of(bounds[key], memory) > 1 / ENOUGH_AT_ONCE]
    if new:
        say(f"measuring the GPU memory of {len(new)} of {counted(len(probes), 'kind')} of trials")
        measured = zip(new, _measured_in_a_worker(new, lent or {}), strict=True)
        known |= {probe.key(name): peak for probe, peak in measured if peak != NOT_MEASURED}
        _write(known)
    peaks = {
        key: known.get(probe.key(name), NOT_MEASURED)
        for key, probe in larger.items()
        if probe.key(name) in known or probe in new
    }
    if peaks:
        say(_in_words(peaks, sum(probe.key(name) in known for probe in new)))
    return {key: share_of(peaks.get(key, bounds[key]), memory) for key in probes}


def _by_dataset(probes: Mapping[Kind, MemoryProbe]) -> dict[Kind, MemoryProbe]:
    """Sort probes so that each dataset is loaded once."""
    return dict(sorted(probes.items(), key=lambda item: item[1].config.dataset))


def _in_words(peaks: Mapping[Kind, float], measured: int) -> str:
    found = [peak / 1e9 for peak in peaks.values() if peak != NOT_MEASURED]
    text = f"GPU memory of {counted(len(peaks), 'kind')} of trials ({measured} measured now)"
    if found:
        text += f": {min(found):.2g} to {max(found):.2g} GB per trial"
    failed = [" on ".join(reversed(key)) for key, peak in peaks.items() if peak == NOT_MEASURED]
    return text + (f"; not measured, so a whole GPU per trial: {', '.join(failed)}" if failed else "")


def make_probes(trials: Iterable[Trial], *, eager: bool = False) -> dict[Kind, MemoryProbe]:
    """Return a probe for each kind of trial: its largest configuration, shortened, with its largest pack."""
    groups: dict[Kind, list[Trial]] = {}
    for trial in trials:
        groups.setdefault(kind(trial.config), []).append(trial)
    return {
        key: MemoryProbe(
            _cut_short(max((config for trial in group for config in trial.configs), key=_size)),
            max(len(trial.members) for trial in group),
            eager,
        )
        for key, group in groups.items()
    }


def _size(config: RunConfig) -> tuple[Any, ...]:
    """Return a key that roughly orders configurations of one kind by the memory that they need."""
    assert config.n_way and config.k_shot and config.query_shot
    widths = config.encoder == "gat", config.hidden, config.embedding
    trains = METHODS[config.method].training_of(config) is not MetaTraining.NONE
    parts = trains, *(getattr(config, part, True) for part in ("nla", "tla")), config.inputs != "raw"
    queries = config.n_way * (config.k_shot + config.self_training + config.query_shot)
    return (*widths, queries, *parts, config.smoothing > 0 or config.prior == "estimated")


def _cut_short(config: RunConfig) -> RunConfig:
    assert config.n_way
    episodes = PSEUDO_STREAMS * max(1, (config.groups[1] - config.held_out) // config.n_way)
    return resolve(
        replace(
            config,
            pretrain_epochs=2,
            episodes=episodes,
            validate_every=episodes,
            sessions=1,
            finetune_steps=min(2, config.finetune_steps),  # the second one is captured
        )
    )


def measure(
    probes: Sequence[MemoryProbe], device: torch.device, lent: Mapping[str, Dataset] | None = None
) -> list[float]:
    """Return the peak memory of each probe in bytes, run one by one; NOT_MEASURED for failed ones."""
    data.lend(lent or {})
    peaks = []
    for probe in probes:
        try:
            peaks.append(_peak(probe, device))
        except Exception:  # the trials will fail in the same way and report it
            peaks.append(NOT_MEASURED)
        gc.collect()
    return peaks


def _peak(probe: MemoryProbe, device: torch.device) -> float:
    dataset = data.load(probe.config.dataset)
    options = RunOptions(device=device, mode=mode_of(eager=probe.eager))
    outputs = run(probe.config, range(probe.seeds), dataset, options)
    if device.type == "cuda":
        # Reserved, not allocated: captured graphs keep memory that no tensor uses.
        return float(torch.cuda.max_memory_reserved(device))
    return float(outputs[0].record["environment"]["peak_memory_bytes"])


def _measured_in_a_worker(probes: Sequence[MemoryProbe], lent: Mapping[str, Dataset]) -> list[float]:
    worker: Any = ray.remote(num_cpus=1, num_gpus=1, max_retries=0, max_calls=1)(measure)  # frees its memory
    in_order = sorted(probes, key=lambda probe: probe.config.dataset)  # loads each dataset once
    try:
        peaks = ray.get(worker.remote(in_order, torch.device("cuda"), dict(lent)))
    except ray.exceptions.RayError:  # the worker died
        peaks = [NOT_MEASURED] * len(probes)
    found = dict(zip(in_order, peaks, strict=True))
    return [found[probe] for probe in probes]


def _gpu() -> tuple[str, float]:
    """Return the name and memory of a GPU of this machine or, if it has none, of a node."""
    try:
        if torch.cuda.is_available():
            return _own_gpu()
        return ray.get(ray.remote(num_gpus=1)(_own_gpu).remote())
    except (RuntimeError, AssertionError, ray.exceptions.RayError):
        raise UserError(
            "Ray finds GPUs that torch cannot use; set --gpus-per-trial 0 to run on CPUs."
        ) from None


def _own_gpu() -> tuple[str, float]:
    properties = torch.cuda.get_device_properties(0)
    return properties.name, float(properties.total_memory)


@cache
def code_version() -> str:
    """Return a hash of the code that uses GPU memory, without its comments, docstrings and formatting."""
    digest = hashlib.sha256()
    for path in sorted(path for name in ALLOCATING for path in _modules(CODE / name)):
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            if isinstance(node, _WITH_DOCSTRINGS) and ast.get_docstring(node) is not None:
                node.body = node.body[1:]
        digest.update(f"{path.relative_to(CODE).as_posix()}\0{ast.dump(tree)}\0".encode())
    return digest.hexdigest()


def _modules(place: Path) -> Iterable[Path]:
    return place.rglob("*.py") if place.is_dir() else [place]


def _file() -> Path:
    return home() / "gpu_memory.json"


def _read() -> dict[str, float]:
    try:
        return dict(json.loads(_file().read_text()))
    except (OSError, ValueError, TypeError):  # missing or damaged: measure again
        return {}


def _write(known: Mapping[str, float]) -> None:
    _file().parent.mkdir(parents=True, exist_ok=True)
    with written_whole(_file()) as partial:
        partial.write_text(json.dumps(known, indent=1))
