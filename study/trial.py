"""Run one trial in a worker: one configuration and a pack of seeds, from pre-training to the last session."""

from __future__ import annotations

import base64
import json
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypedDict, cast

import numpy as np
import torch
from ray import tune

from hagmeta.common.errors import UserError
from hagmeta.common.home import home
from hagmeta.common.records import Record
from hagmeta.config import RunConfig, resolve
from hagmeta.datasets.base import Dataset
from hagmeta.packs.device import choose_device
from hagmeta.packs.pack import Progress
from hagmeta.phases.checkpoints import Checkpoints
from hagmeta.phases.snapshots import Snapshots, to_bytes
from hagmeta.pipeline import run
from hagmeta.protocol.metrics import METRICS, Metric, with_metrics
from hagmeta.protocol.predictions import Predictions
from study import data
from study.reports import LiveReports
from study.search.objective import objective


class TrialSpec(TypedDict):
    """Describes a trial to a worker, in plain values that Ray can send."""

    name: str
    config: dict[str, Any]  # canonical: only the settings that apply
    seeds: list[int]
    threads: int
    gpu_share: float
    snapshot: int | None  # the session after which embeddings are saved
    eager: bool
    checkpoints: str  # a folder
    metrics: list[str]  # identities of additional metrics


class SentRecord(Record, total=False):
    """A record as a worker sends it to the driver, with its files as text."""

    predictions: str
    embeddings: str


def run_trial(spec: TrialSpec) -> None:
    """Run a trial as Ray Tune's trainable.

    It loads the dataset by name, reports progress while it runs, and reports the records at the end.
    """
    started, start = time.time(), time.perf_counter()
    config = RunConfig.from_mapping(spec["config"])
    with _user_errors_reported():
        data.load(config.dataset)
        load_seconds = time.perf_counter() - start
        records, note = _run(spec, config, LiveReports())
        accuracies = np.mean([record["accuracy"] for record in records], axis=0)  # (sessions,)
        tune.report(
            {
                **{f"session/{number}": float(accuracy) for number, accuracy in enumerate(accuracies)},
                "accuracy": float(accuracies[-1]),
                "records": json.dumps(records),
                "done": True,  # with the records: a worker that dies later need not run again
                "note": note,
                "snapshot": spec["snapshot"],
                "started": started,
                "load_seconds": load_seconds,
                "trial_seconds": time.perf_counter() - start,
            }
        )


def run_sample(spec: TrialSpec) -> None:
    """Run one sample of a search as Ray Tune's trainable; report its objective at the end."""
    with _user_errors_reported():
        config = RunConfig.from_mapping(spec["config"])
        records, note = _run(spec, config, LiveReports(tells_test=False))
        tune.report(
            {"val_accuracy": objective(records), "records": json.dumps(records), "note": note, "done": True}
        )


@contextmanager
def _user_errors_reported() -> Iterator[None]:
    """Report user errors instead of raising them, so that Tune does not retry the trial."""
    try:
        yield
    except UserError as error:
        tune.report({"failed": str(error), "traceback": traceback.format_exc(), "done": True})


def _run(spec: TrialSpec, config: RunConfig, progress: Progress) -> tuple[list[SentRecord], str]:
    torch.set_num_threads(spec["threads"])
    device = choose_device("cuda" if spec["gpu_share"] else "cpu")
    if spec["gpu_share"]:
        # The share includes slack over the measured memory (study/resources.py).
        torch.cuda.set_per_process_memory_fraction(min(1.0, spec["gpu_share"]))
    dataset = data.load(config.dataset)
    folder = Path(spec["checkpoints"])
    metrics = {name: METRICS[name] for name in spec["metrics"]}
    return run_pack(
        config, spec["seeds"], dataset, device, progress, folder, spec["snapshot"], spec["eager"], metrics
    )


def run_pack(
    config: RunConfig,
    seeds: Sequence[int],
    dataset: Dataset,
    device: torch.device,
    progress: Progress,
    folder: Path,
    snapshot: int | None = None,
    eager: bool = False,
    metrics: Mapping[str, type[Metric]] | None = None,
) -> tuple[list[SentRecord], str]:
    """Run a pack of seeds; halve it until it fits the memory of the GPU.

    Args:
        config: The configuration.
        seeds: The seeds of the pack.
        dataset: Its dataset, loaded.
        device: Where to compute.
        progress: Receives the progress of each phase.
        folder: Holds checkpoints until the pack is finished.
        snapshot: The session after which embeddings are saved; None for no embeddings.
        eager: Whether to disable CUDA graphs.
        metrics: Additional metrics, by identity.

    Returns:
        The records, with predictions and embeddings as text, and a note for the user or an empty text.
    """
    config = resolve(config)
    checkpoints = checkpoints_of(config, seeds, dataset, device, folder, snapshot, eager)
    snapshots = Snapshots(snapshot) if snapshot is not None else None
    predictions: list[Predictions] = []
    try:
        found = run(
            config,
            seeds,
            dataset=dataset,
            device=device,
            cache=home() / "pretrained",
            progress=progress,
            snapshots=snapshots,
            predictions=predictions,
            eager=eager,
            checkpoints=checkpoints,
        )
        records = [
            cast(SentRecord, _measured(record, each, metrics or {}))
            for record, each in zip(found, predictions, strict=True)
        ]
        for record, arrays in zip(records, snapshots.arrays if snapshots else (), strict=False):
            record["embeddings"] = _as_text(arrays)
        for record, each in zip(records, predictions, strict=True):
            record["predictions"] = _as_text(each.arrays())
        checkpoints.clear()
        where = checkpoints.went_on_from
        return records, f"continued from a checkpoint at {where}" if where else ""
    except torch.cuda.OutOfMemoryError:
        if len(seeds) == 1:
            raise
    torch.cuda.empty_cache()
    half = len(seeds) // 2
    halves: list[SentRecord] = []
    for part in (seeds[:half], seeds[half:]):
        halves += run_pack(config, part, dataset, device, progress, folder, snapshot, eager, metrics)[0]
    return halves, f"{len(seeds)} seeds did not fit into GPU memory together; ran in smaller packs"


def _measured(record: Record, predictions: Predictions, metrics: Mapping[str, type[Metric]]) -> Record:
    """Return the record with additional metrics.

    A metric that fails must not lose the run. The driver computes it again from the predictions
    (`study.measuring`) and reports the error.
    """
    try:
        return with_metrics(record, predictions, metrics)
    except UserError:
        return record


def checkpoints_of(
    config: RunConfig,
    seeds: Sequence[int],
    dataset: Dataset,
    device: torch.device,
    folder: Path,
    snapshot: int | None,
    eager: bool,
) -> Checkpoints:
    """Return the checkpoints of a pack, identified by everything that its state depends on."""
    made_from = {
        "config": config.canonical(),
        "seeds": list(seeds),
        "data": dataset.fingerprint,
        "device": device.type,
        "snapshot": snapshot,
        "eager": eager,
    }
    return Checkpoints(folder, f"{config.hash()}_{seeds[0]}-{seeds[-1]}", made_from)


def _as_text(arrays: dict[str, np.ndarray]) -> str:
    return base64.b64encode(to_bytes(arrays)).decode()
