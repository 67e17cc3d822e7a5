"""Run one trial in a worker: a pack of runs, from pre-training to the last session."""

from __future__ import annotations

import base64
import json
import os
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, TypedDict, cast

import numpy as np
import ray
import torch
from ray import tune

from hagmeta.common.errors import Diverged, UserError
from hagmeta.common.files.home import home
from hagmeta.common.records.records import Record
from hagmeta.config.run_config import RunConfig, resolve
from hagmeta.datasets.base import Dataset
from hagmeta.engine.checkpoints import Checkpoints
from hagmeta.engine.options import RunOptions, mode_of
from hagmeta.engine.run import RunOutput, run_members
from hagmeta.engine.scores.embeddings import to_bytes
from hagmeta.packs.device import choose_device
from hagmeta.scenarios.metrics import METRICS, Metric, with_metrics
from study.planning import data
from study.planning.plan import Member, Trial
from study.running.reports import LiveReports

NOT_SHOWN = tuple(f"{Path(file).parent}{os.sep}" for file in (ray.__file__, __file__))  # in tracebacks


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
    with errors_reported():
        data.load(spec["configs"][0]["dataset"])
        load_seconds = time.perf_counter() - start
        result = run_spec(spec, LiveReports())
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


@contextmanager
def errors_reported() -> Iterator[None]:
    """Report errors with their tracebacks. Raise those that are not the user's, which end the worker."""
    try:
        yield
    except Exception as error:
        by_user = isinstance(error, UserError)
        reason = str(error) if by_user else f"{type(error).__name__}: {error}"
        report = {"failed": reason, "traceback": readable_traceback(error), "by_user": by_user}
        tune.report(report | {"done": True} if by_user else report)
        if not by_user:
            raise


def readable_traceback(error: BaseException) -> str:
    """Return a traceback without the frames of Ray and of this folder, which start every trial."""
    found = traceback.TracebackException.from_exception(error)
    chain: list[traceback.TracebackException | None] = [found]
    while chain:
        if each := chain.pop():
            each.stack[:] = [frame for frame in each.stack if not frame.filename.startswith(NOT_SHOWN)]
            chain += [each.__cause__, each.__context__]
    return "".join(found.format())


def members_of(spec: TrialSpec) -> list[Member]:
    """Return the configuration and the seed of each run."""
    configs = [resolve(RunConfig.of(settings)) for settings in spec["configs"]]
    return [(configs[place], seed) for place, seed in spec["members"]]


def run_spec(spec: TrialSpec, reports: LiveReports) -> PackResult:
    """Run the pack that `spec` describes on the worker's device."""
    torch.set_num_threads(spec["threads"])
    device = choose_device("cuda" if spec["gpu_share"] else "cpu")
    if spec["gpu_share"]:
        # The share includes slack over the bound (study/planning/resources.py).
        torch.cuda.set_per_process_memory_fraction(min(1.0, spec["gpu_share"]))
    members = members_of(spec)
    dataset = data.load(members[0][0].dataset)
    folder = Path(spec["checkpoints"])
    metrics = {name: METRICS[name] for name in spec["metrics"]}
    options = RunOptions(
        device=device,
        mode=mode_of(eager=spec["eager"]),
        cache=home() / "pretrained",
        progress=reports,
        waits=reports.waits,
        embeddings_after=spec["snapshot"],
        gpu_share=spec["gpu_share"],
    )
    return run_pack(members, dataset, options, folder, metrics)


def run_pack(
    members: Sequence[Member],
    dataset: Dataset,
    options: RunOptions,
    folder: Path,
    metrics: Mapping[str, type[Metric]] | None = None,
) -> PackResult:
    """Run a pack; halve it until it fits the memory of the GPU.

    Args:
        members: Resolved configurations with the same pack key, and their seeds.
        dataset: Its dataset, loaded.
        options: How to run it, without checkpoints.
        folder: Holds checkpoints until the pack is finished.
        metrics: Additional metrics, by identity.

    Returns:
        The records, with predictions and embeddings as text, and the runs that diverged.
    """
    checkpoints = checkpoints_of(members, dataset, options, folder)
    failures: dict[int, str] = {}
    try:
        try:
            outputs = run_members(members, dataset, replace(options, checkpoints=checkpoints))
        except Diverged as error:
            outputs, failures = error.finished or [], error.failures
        records = [_sent(output, metrics or {}) for output in outputs]
        checkpoints.clear()
        diverged = [
            DivergedRun(config_hash=members[place][0].hash(), seed=members[place][1], reason=reason)
            for place, reason in failures.items()
        ]
        return PackResult(records, diverged, checkpoints.note)
    except torch.cuda.OutOfMemoryError:
        if len(members) == 1:
            raise
    torch.cuda.empty_cache()
    half = len(members) // 2
    first, second = (
        run_pack(part, dataset, options, folder, metrics) for part in (members[:half], members[half:])
    )
    return PackResult(
        first.records + second.records,
        first.diverged + second.diverged,
        f"{len(members)} runs did not fit into GPU memory together; ran in smaller packs",
    )


def _sent(output: RunOutput, metrics: Mapping[str, type[Metric]]) -> SentRecord:
    """Return the record of a run with additional metrics, its predictions and its embeddings."""
    try:
        record = with_metrics(output.record, output.predictions, metrics)
    except UserError:
        # A metric that fails must not lose the run. The driver computes it again from the predictions
        # (`study.running.added_metrics`) and reports the error.
        record = output.record
    files = {"predictions": _as_text(output.predictions.arrays())}
    if output.embeddings is not None:
        files["embeddings"] = _as_text(output.embeddings)
    return cast(SentRecord, {**record, **files})


def checkpoints_of(
    members: Sequence[Member], dataset: Dataset, options: RunOptions, folder: Path
) -> Checkpoints:
    """Return the checkpoints of a pack, identified by everything that its state depends on."""
    made_from = {
        "members": [(config.canonical(), seed) for config, seed in members],
        "data": dataset.fingerprint,
        "device": options.device.type,
        "mode": options.mode,
        "embeddings_after": options.embeddings_after,
    }
    return Checkpoints(folder, Trial(tuple(members)).name, made_from)


def _as_text(arrays: dict[str, np.ndarray]) -> str:
    return base64.b64encode(to_bytes(arrays)).decode()
