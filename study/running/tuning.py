"""Run the trials of a plan with Ray Tune, and handle their reports and failures."""

from __future__ import annotations

import base64
import json
import logging
import pickle
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ray import tune
from ray.exceptions import RayActorError
from rich import get_console

from hagmeta.common.records.records import Record
from hagmeta.datasets.base import Dataset
from hagmeta.packs.environment import commit
from study.planning import data
from study.planning.plan import Trial, session_number
from study.planning.resources import Resources
from study.running.connection import check_alive, node_resources, why_nothing_runs
from study.running.queue import Queue, Supply
from study.running.reports import WAITS
from study.running.trial import DivergedRun, SentRecord, TrialSpec, run_trial
from study.store.store import Store
from study.terminal.progress import StudyProgress

PENDING_SECONDS = 30.0  # without a running trial, before a message explains why
SECONDS_BETWEEN_LOOKS = 5.0  # checks whether Ray is alive
LOST = "its worker died (killed, out of memory, or its node is gone)"
COLOURS = re.compile(r"\x1b\[[\d;]*m")
MOST_LETTERS = 300  # of an error on the console; its log is complete


class Recorder(tune.Callback):
    """Writes every finished run to the store as soon as a worker reports it.

    Only the driver writes to the store.
    """

    def __init__(self, store: Store, supply: Supply, progress: StudyProgress) -> None:
        self._store, self._supply, self._progress = store, supply, progress
        self._errors: dict[str, tuple[str, str]] = {}  # reasons and tracebacks that workers have reported
        self._patience = Patience(PENDING_SECONDS)
        self._looked = time.monotonic()

    def __getstate__(self) -> dict[str, Any]:
        """Return nothing: Tune pickles callbacks to restore a study, but our plan does that."""
        return {}

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._progress.started(trial.trial_id, self._supply.trial(trial.trial_id))

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        key = trial.trial_id
        if "phase" in result:
            self._supply.has_reported(key, result["phase"])
            self._show(key, result)
        elif "failed" in result:
            self._errors[key] = _one_line(result["failed"]), result.pop("traceback")
            if result["by_user"]:
                self._has_failed(key, by_user=True)
        elif "records" in result:
            self._record(key, result)

    def _show(self, key: str, result: Mapping[str, Any]) -> None:
        if result["phase"] == WAITS:
            self._progress.waits(key, self._supply.trained_by(key))
            return
        found = {name: value for name, value in result.items() if name.startswith(result["phase"] + "/")}
        self._progress.goes_on(key, result["phase"], result["step"], result["steps"], found)

    def _record(self, key: str, result: dict[str, Any]) -> None:
        # Tune keeps the last report and sends it to loggers; the records are in our files already.
        records: list[SentRecord] = json.loads(result.pop("records"))
        diverged: list[DivergedRun] = json.loads(result.pop("diverged"))
        for record in records:
            run = record["config_hash"], record["seed"]
            embeddings = record.pop("embeddings", None)
            if record["environment"]["commit"] is None:  # from another node, whose copy has no Git history
                record["environment"]["commit"] = commit()
            self._store.write_predictions(run, base64.b64decode(record.pop("predictions")))
            self._store.write(record)
            if embeddings:
                self._store.write_embeddings(run, result["snapshot"], base64.b64decode(embeddings))
        configs = {config.hash(): config for config in self._supply.trial(key).configs}
        for each in diverged:
            run = each["config_hash"], each["seed"]
            self._store.write_failure(run, configs[run[0]].canonical(), each["reason"], diverged=True)
            self._progress.say(each["reason"])
        if note := result.pop("note"):
            self._progress.say(f"{self._progress.name(key)}: {note}")
        self._supply.finished(key)
        self._progress.finished(key, records, len(diverged), self._figures(records))

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        if not self._supply.is_running(trial.trial_id):
            return  # its worker died after its last report
        if trial.trial_id not in self._errors:  # its worker could not report
            reason = LOST if _lost_its_worker(trial) else _one_line(_traceback(trial).splitlines()[-1])
            self._errors[trial.trial_id] = reason, _traceback(trial)
        self._has_failed(trial.trial_id)

    def _has_failed(self, key: str, *, by_user: bool = False) -> None:
        """Write why a trial failed, and say what runs again."""
        (reason, error), ours = self._errors.pop(key), self._supply.trial(key)
        first, *_ = [
            self._store.write_failure((config.hash(), seed), config.canonical(), reason, traceback=error)
            for config, seed in ours.members
        ]
        again = self._supply.failed(key, None if reason == LOST else reason, by_user=by_user)
        name = self._progress.name(key, ours)
        then = ""
        if len(ours.configs) > 1 and again != [ours]:
            then = f"; its {len(ours.configs)} configurations will run separately"
        elif again:
            then = "; it will run again after the others"
        self._progress.say(f"{name} failed: {reason}{then} ({first})")
        if again:
            self._progress.stopped(key)
        else:
            self._progress.has_failed(key)

    def on_step_end(self, iteration: int, trials: list[Any], **info: Any) -> None:
        """Give up if Ray has died; explain if no trial runs for a while."""
        if time.monotonic() - self._looked > SECONDS_BETWEEN_LOOKS:
            check_alive()
            self._looked = time.monotonic()
        if self._patience.is_over(waiting=not self._progress.running and bool(trials)):
            asked = trials[-1].placement_group_factory.required_resources
            if reason := why_nothing_runs(asked, node_resources()):
                self._progress.say(reason)

    def _figures(self, records: Sequence[Record]) -> list[float]:
        """Return the figures that the progress line shows of finished runs."""
        return [record["macro_accuracy"][-1] for record in records]


class Patience:
    """Tells when a wait needs an explanation: after some seconds, and again after ten times as long."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self._since = seconds, time.monotonic()

    def is_over(self, *, waiting: bool) -> bool:
        now = time.monotonic()
        if not waiting:
            self._since = now
            return False
        if now - self._since < self._seconds:
            return False
        self._since = now + 9 * self._seconds
        return True


def _traceback(trial: Any) -> str:
    text = Path(trial.error_file).read_text() if trial.error_file else ""
    return COLOURS.sub("", text).strip() or "no traceback"


def _lost_its_worker(trial: Any) -> bool:
    """Return whether the last attempt ended because its process died."""
    if trial.pickled_error_file is None:
        return False
    return isinstance(pickle.loads(Path(trial.pickled_error_file).read_bytes()), RayActorError)


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= MOST_LETTERS else f"{line[:MOST_LETTERS]}..."


@dataclass(frozen=True, kw_only=True)
class TrialOptions:
    """How the trials of a launch run.

    Attributes:
        retries: How often a failed trial runs again.
        time_budget: Seconds until Tune stops all trials; None for no limit.
        snapshot: The session after which embeddings are saved; None for no embeddings.
        eager: Whether to disable CUDA graphs.
        metrics: Identities of additional metrics.
        lent: Graphs that workers cannot load, because their machines do not have the files.
    """

    retries: int = 0
    time_budget: float | None = None
    snapshot: int | None = None
    eager: bool = False
    metrics: Sequence[str] = ()
    lent: Mapping[str, Dataset] = field(default_factory=dict)


class StudyRunner:
    """Runs trials with Ray Tune; the store then has their records or failures."""

    def __init__(
        self,
        store: Store,
        resources: Resources,
        progress: StudyProgress,
        options: TrialOptions,
        loggers: Sequence[tune.Callback] = (),
    ) -> None:
        """Prepare to run trials.

        Args:
            store: Receives records and failures; its folder also has the files of Tune.
            resources: What each trial may use.
            progress: Shows the progress.
            options: How trials run.
            loggers: Callbacks of experiment trackers.
        """
        self._store, self._resources, self._progress = store, resources, progress
        self._options, self._loggers = options, loggers

    def run(self, trials: Sequence[Trial]) -> None:
        """Run trials, the longest first."""
        queue = Queue(trials, self.spec_of, self._options.retries)
        self.supplied(run_trial, queue, Recorder(self._store, queue, self._progress))

    @property
    def retries(self) -> int:
        return self._options.retries

    def spec_of(self, trial: Trial) -> TrialSpec:
        """Return the description of `trial` for a worker."""
        places = {config.hash(): place for place, config in enumerate(trial.configs)}
        session = self._options.snapshot
        return {
            "name": trial.name,
            "configs": [config.canonical() for config in trial.configs],
            "members": [(places[config.hash()], seed) for config, seed in trial.members],
            "threads": max(1, int(self._resources.cpus)),
            "gpu_share": self._resources.gpu_share(trial.config),
            "snapshot": None if session is None else session_number(trial.config, session),
            "eager": self._options.eager,
            "checkpoints": str(self._store.checkpoints.resolve()),
            "metrics": list(self._options.metrics),
        }

    def supplied(
        self,
        trainable: Callable[[TrialSpec], None],
        supply: Supply,
        recorder: Recorder,
    ) -> None:
        """Run the trials of a supply with Ray Tune, without its console output.

        Args:
            trainable: Runs one trial in a worker.
            supply: Yields the trials, and decides which run again.
            recorder: Writes the records.
        """
        cpus = self._resources.cpus  # so that only this number is sent to workers with the function

        def request(config: dict[str, Any]) -> tune.PlacementGroupFactory:
            return tune.PlacementGroupFactory([{"CPU": cpus, "GPU": config["spec"]["gpu_share"]}])

        def given(config: dict[str, Any]) -> None:
            trainable(config["spec"])

        def given_data(config: dict[str, Any], graphs: dict[str, Dataset]) -> None:
            data.lend(graphs)
            trainable(config["spec"])

        lent = dict(self._options.lent)
        function = tune.with_parameters(given_data, graphs=lent) if lent else given
        logging.getLogger("ray.tune").setLevel(logging.CRITICAL)  # it repeats what the recorder says
        tune.Tuner(
            tune.with_resources(function, request),
            tune_config=tune.TuneConfig(
                search_alg=supply,
                num_samples=supply.most,
                max_concurrent_trials=self._resources.slots,
                reuse_actors=True,
                time_budget_s=self._options.time_budget,
                trial_name_creator=trial_name,
                trial_dirname_creator=trial_name,
            ),
            run_config=tune.RunConfig(
                name="tune",
                storage_path=str(self._store.folder.resolve()),
                callbacks=[recorder, *self._loggers],
                # In a notebook, Tune's own choice clears the cell's output. Elsewhere it wants none.
                progress_reporter=tune.CLIReporter() if get_console().is_jupyter else None,
                verbose=0,
                log_to_file=True,
            ),
        ).fit()


def trial_name(trial: Any) -> str:
    """Return the name of a trial and of its folder in Tune."""
    return str(trial.config["spec"]["name"])
