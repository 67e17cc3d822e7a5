"""Run one trial in a worker: a pack of runs, from pre-training to the last session."""

from __future__ import annotations

import base64
import json
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypedDict, cast

import numpy as np
import torch
from ray import tune

from hagmeta.common.errors import Diverged, UserError
from hagmeta.common.home import home
from hagmeta.common.records import Record
from hagmeta.config import RunConfig, resolve
from hagmeta.datasets.base import Dataset
from hagmeta.packs.device import choose_device
from hagmeta.packs.pack import Progress
from hagmeta.phases.checkpoints import Checkpoints
from hagmeta.phases.snapshots import Snapshots, to_bytes
from hagmeta.pipeline import run_members
from hagmeta.protocol.metrics import METRICS, Metric, with_metrics
from hagmeta.protocol.predictions import Predictions
from study import data
from study.plan import Member, Trial
from study.reports import LiveReports
from study.search.objective import objective, score_of


class TrialSpec(TypedDict):
    """Describes a trial to a worker, in plain values that Ray can send."""

    name: str
    configs: list[dict[str, Any]]  # canonical: only the settings that apply
    members: list[tuple[int, int]]  # per run: the place of its configuration in `configs`, and its seed
    threads: int
    gpu_share: float
    snapshot: int | None  # the session after which embeddings are saved
    eager: bool
    checkpoints: str  # a folder
    metrics: list[str]  # identities of additional metrics


class DivergedRun(TypedDict):
    """A run whose loss or scores are not finite."""

    config_hash: str
    seed: int
    reason: str


class PackResult(NamedTuple):
    """What a worker has found out about the runs of a pack."""

    records: list[SentRecord]
    diverged: list[DivergedRun]
    note: str  # for the user, or empty

    def report(self) -> dict[str, Any]:
        """Return the last report of a trial; its worker may die later and need not run again."""
        sent = {"records": json.dumps(self.records), "diverged": json.dumps(self.diverged)}
        return {**sent, "note": self.note, "done": True}


class SentRecord(Record, total=False):
    """A record as a worker sends it to the driver, with its files as text."""

    predictions: str
    embeddings: str


def run_trial(spec: TrialSpec) -> None:
    """Run a trial as Ray Tune's trainable.

    It loads the dataset by name, reports progress while it runs, and reports the records at the end.
    """
    started, start = time.time(), time.perf_counter()
    with _user_errors_reported():
        data.load(spec["configs"][0]["dataset"])
        load_seconds = time.perf_counter() - start
        result = _run(spec, LiveReports())
        values = {}
        if result.records:
            accuracies = np.mean([record["accuracy"] for record in result.records], axis=0)  # (sessions,)
            values = {f"session/{number}": float(accuracy) for number, accuracy in enumerate(accuracies)}
            values["accuracy"] = float(accuracies[-1])
        tune.report(
            {
                **values,
                **result.report(),
                "snapshot": spec["snapshot"],
                "started": started,
                "load_seconds": load_seconds,
                "trial_seconds": time.perf_counter() - start,
            }
        )


def run_sample(spec: TrialSpec) -> None:
    """Run samples of a search as Ray Tune's trainable; report their mean objective at the end."""
    with _user_errors_reported():
        result = _run(spec, LiveReports(tells_test=False))
        scores = [score_of(record) for record in result.records]
        values = {"val_accuracy": objective(scores)} if scores else {}
        tune.report({**values, **result.report()})


@contextmanager
def _user_errors_reported() -> Iterator[None]:
    """Report user errors instead of raising them, so that Tune does not retry the trial."""
    try:
        yield
    except UserError as error:
        tune.report({"failed": str(error), "traceback": traceback.format_exc(), "done": True})


def members_of(spec: TrialSpec) -> list[Member]:
    """Return the configuration and the seed of each run."""
    configs = [resolve(RunConfig.of(settings)) for settings in spec["configs"]]
    return [(configs[place], seed) for place, seed in spec["members"]]


def _run(spec: TrialSpec, progress: Progress) -> PackResult:
    torch.set_num_threads(spec["threads"])
    device = choose_device("cuda" if spec["gpu_share"] else "cpu")
    if spec["gpu_share"]:
        # The share includes slack over the measured memory (study/resources.py).
        torch.cuda.set_per_process_memory_fraction(min(1.0, spec["gpu_share"]))
    members = members_of(spec)
    dataset = data.load(members[0][0].dataset)
    folder = Path(spec["checkpoints"])
    metrics = {name: METRICS[name] for name in spec["metrics"]}
    return run_pack(members, dataset, device, progress, folder, spec["snapshot"], spec["eager"], metrics)


def run_pack(
    members: Sequence[Member],
    dataset: Dataset,
    device: torch.device,
    progress: Progress,
    folder: Path,
    snapshot: int | None = None,
    eager: bool = False,
    metrics: Mapping[str, type[Metric]] | None = None,
) -> PackResult:
    """Run a pack; halve it until it fits the memory of the GPU.

    Args:
        members: Resolved configurations with the same pack key, and their seeds.
        dataset: Its dataset, loaded.
        device: Where to compute.
        progress: Receives the progress of each phase.
        folder: Holds checkpoints until the pack is finished.
        snapshot: The session after which embeddings are saved; None for no embeddings.
        eager: Whether to disable CUDA graphs.
        metrics: Additional metrics, by identity.

    Returns:
        The records, with predictions and embeddings as text, and the runs that diverged.
    """
    checkpoints = checkpoints_of(members, dataset, device, folder, snapshot, eager)
    snapshots = Snapshots(snapshot) if snapshot is not None else None
    predictions: list[Predictions] = []
    failures: dict[int, str] = {}
    try:
        try:
            found = run_members(
                members,
                dataset=dataset,
                device=device,
                cache=home() / "pretrained",
                progress=progress,
                snapshots=snapshots,
                predictions=predictions,
                eager=eager,
                checkpoints=checkpoints,
            )
        except Diverged as error:
            found, failures = error.finished or [], error.failures
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
        diverged = [
            DivergedRun(config_hash=members[place][0].hash(), seed=members[place][1], reason=reason)
            for place, reason in failures.items()
        ]
        return PackResult(records, diverged, f"continued from a checkpoint at {where}" if where else "")
    except torch.cuda.OutOfMemoryError:
        if len(members) == 1:
            raise
    torch.cuda.empty_cache()
    half = len(members) // 2
    first, second = (
        run_pack(part, dataset, device, progress, folder, snapshot, eager, metrics)
        for part in (members[:half], members[half:])
    )
    return PackResult(
        first.records + second.records,
        first.diverged + second.diverged,
        f"{len(members)} runs did not fit into GPU memory together; ran in smaller packs",
    )


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
    members: Sequence[Member],
    dataset: Dataset,
    device: torch.device,
    folder: Path,
    snapshot: int | None,
    eager: bool,
) -> Checkpoints:
    """Return the checkpoints of a pack, identified by everything that its state depends on."""
    made_from = {
        "members": [(config.canonical(), seed) for config, seed in members],
        "data": dataset.fingerprint,
        "device": device.type,
        "snapshot": snapshot,
        "eager": eager,
    }
    return Checkpoints(folder, Trial(tuple(members)).name, made_from)


def _as_text(arrays: dict[str, np.ndarray]) -> str:
    return base64.b64encode(to_bytes(arrays)).decode()
