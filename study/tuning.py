"""Ray Tune: the trials of a plan as Tune runs them, and what happens when they report or fail."""

from __future__ import annotations

import base64
import json
import logging
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hagmeta.common.records import Record
from study.cost import trial_seconds
from study.plan import Plan, Trial, session_number
from study.progress import StudyProgress
from study.resources import Resources
from study.store import Store

# Before Ray is imported: its console tables would run over ours, and trials stay in the working folder.
os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")
os.environ.setdefault("RAY_CHDIR_TO_TRIAL_DIR", "0")
os.environ.setdefault("TUNE_DISABLE_STRICT_METRIC_CHECKING", "1")
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")

import ray
from ray import tune

from study.trial import run_trial


class Recorder(tune.Callback):
    """The driver alone writes: every finished run goes to the store as soon as it is reported."""

    def __init__(self, store: Store, plan: Plan, progress: StudyProgress) -> None:
        self._store, self._progress = store, progress
        self._trials = {trial.name: trial for trial in plan.trials}

    def __getstate__(self) -> dict[str, Any]:
        """Tune pickles its callbacks to restore from; our plan restores instead."""
        return {}

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._progress.started(trial.trial_id, self._of(trial))

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        if not result.get("records"):
            return
        records = json.loads(result["records"])
        for record in records:
            key = record["config_hash"], record["seed"]
            embeddings = record.pop("embeddings", None)
            self._store.write_predictions(key, base64.b64decode(record.pop("predictions")))
            self._store.write(record)
            if embeddings:
                self._store.write_embeddings(key, result["snapshot"], base64.b64decode(embeddings))
        # Tune keeps the last report in its logs and in its state: what is in files of ours need not be there.
        result["records"] = json.dumps(records)
        if result["note"]:
            self._progress.say(f"{trial}: {result['note']}")
        self._progress.finished(trial.trial_id, self._figures(records))

    def on_trial_recover(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._progress.stopped(trial.trial_id)
        self._progress.say(f"{trial} failed and is tried again")

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        ours = self._of(trial)
        error = Path(trial.error_file).read_text() if trial.error_file else "no traceback"
        for key in ours.keys:
            self._store.write_failure(key, ours.config.canonical(), error)
        self._progress.has_failed(trial.trial_id, ours)

    def _figures(self, records: list[Record]) -> list[float]:
        """What is shown of finished runs."""
        return [record["accuracy"][-1] for record in records]

    def _of(self, trial: Any) -> Trial:
        return self._trials[trial.config["spec"]["name"]]


def run_plan(
    plan: Plan,
    store: Store,
    resources: Resources,
    progress: StudyProgress,
    *,
    retries: int,
    time_budget: float | None,
    snapshot: int | None = None,
    eager: bool = False,
) -> None:
    """Run the plan's trials; their records are in the store when this returns, or their failures."""
    # The longest first: a long trial that starts last keeps one machine busy and the others idle.
    trials = sorted(plan.trials, key=trial_seconds, reverse=True)
    specs = [
        {
            "name": trial.name,
            "config": trial.config.canonical(),
            "seeds": list(trial.seeds),
            "threads": max(1, int(resources.cpus)),
            "gpu_share": resources.gpu_share(trial.config),
            "snapshot": None if snapshot is None else session_number(trial.config, snapshot),
            "eager": eager,
        }
        for trial in trials
    ]
    run_tuner(
        _trainable,
        {"spec": tune.grid_search(specs)},
        store,
        resources,
        Recorder(store, plan, progress),
        tune.TuneConfig(
            max_concurrent_trials=resources.slots,
            reuse_actors=True,
            time_budget_s=time_budget,
            trial_name_creator=trial_name,
            trial_dirname_creator=trial_name,
        ),
        retries,
    )


def run_tuner(
    trainable: Callable[[dict[str, Any]], None],
    space: dict[str, Any],
    store: Store,
    resources: Resources,
    recorder: Recorder,
    tune_config: tune.TuneConfig,
    retries: int,
) -> None:
    """Tune with our resources, store, retries and silence."""
    cpus = resources.cpus  # this number alone goes to the workers, with the function that needs it

    def request(config: dict[str, Any]) -> tune.PlacementGroupFactory:
        return tune.PlacementGroupFactory([{"CPU": cpus, "GPU": config["spec"]["gpu_share"]}])

    tune.Tuner(
        tune.with_resources(trainable, request),
        param_space=space,
        tune_config=tune_config,
        run_config=tune.RunConfig(
            name="tune",
            storage_path=str(store.folder.resolve()),
            failure_config=tune.FailureConfig(max_failures=retries),
            callbacks=[recorder],
            verbose=0,
            log_to_file=True,
        ),
    ).fit()


def _trainable(config: dict[str, Any]) -> None:
    run_trial(config["spec"])


def trial_name(trial: Any) -> str:
    """By which Tune knows a trial and calls its folder."""
    return str(trial.config["spec"]["name"])


def start_ray(address: str | None, root: Path) -> dict[str, float]:
    """Connect to a cluster, or make one of this machine; returns what it has."""
    if ray.is_initialized():
        return dict(ray.cluster_resources())
    if address and address != "auto":
        # Ray itself would go on trying for minutes.
        host, _, port = address.removeprefix("ray://").rpartition(":")
        socket.create_connection((host or "127.0.0.1", int(port)), timeout=5).close()
    # Workers must find this project: by path on this machine, by a copy of it on others.
    paths = [str(root), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment: dict[str, Any] = {"env_vars": {"PYTHONPATH": os.pathsep.join(paths)}}
    if address:
        environment = {"working_dir": str(root), "excludes": [".git", ".venv", "results", "**/*.partial"]}
    ray.init(
        address=address or "local",  # not one that happens to run here: it is another's, and without our MPS
        runtime_env=environment,
        log_to_driver=False,
        logging_level=logging.ERROR,
        include_dashboard=False if not address else None,
    )
    return dict(ray.cluster_resources())
