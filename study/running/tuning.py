"""Run the trials of a plan with Ray Tune, and handle their reports and failures."""

from __future__ import annotations

import base64
import json
import math
import pickle
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ray import tune
from ray.exceptions import RayActorError
from ray.tune.search import Searcher
from rich import get_console

from hagmeta.common.records.records import Record
from hagmeta.datasets.base import Dataset
from hagmeta.packs.environment import commit
from study.planning import data
from study.planning.cost import trial_seconds
from study.planning.plan import Trial, session_number
from study.planning.resources import Resources
from study.running.connection import check_alive, node_resources, why_nothing_runs
from study.running.trial import DivergedRun, SentRecord, TrialSpec, run_trial
from study.store.store import Store
from study.terminal.progress import StudyProgress

PENDING_SECONDS = 30.0  # without a running trial, before a message explains why
SECONDS_BETWEEN_LOOKS = 5.0  # checks whether Ray is alive
MOST_LETTERS = 300  # of an error on the console; its log is complete


class Recorder(tune.Callback):
    """Writes every finished run to the store as soon as a worker reports it.

    Only the driver writes to the store.
    """

    def __init__(
        self, store: Store, trials: Iterable[Trial], progress: StudyProgress, retries: int = 0
    ) -> None:
        self._store, self._progress, self._retries = store, progress, retries
        # Tune gave them up before all retries were used, or they are parts of a trial that failed.
        self.again: list[Trial] = []
        self._trials = {trial.name: trial for trial in trials}
        self._patience = Patience(PENDING_SECONDS)
        self._looked = time.monotonic()

    def __getstate__(self) -> dict[str, Any]:
        """Return nothing: Tune pickles callbacks to restore a study, but our plan does that."""
        return {}

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._progress.started(trial.trial_id, self._of(trial))

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        if "phase" in result:
            found = {name: value for name, value in result.items() if name.startswith(result["phase"] + "/")}
            self._progress.goes_on(trial.trial_id, result["phase"], result["step"], result["steps"], found)
        elif "failed" in result:
            log = self._write_failure(trial, result.pop("traceback"))
            self._has_failed(trial, _one_line(result["failed"]), log)
        elif "records" in result:
            self._record(trial, result)

    def _record(self, trial: Any, result: dict[str, Any]) -> None:
        # Tune keeps the last report and sends it to loggers; the records are in our files already.
        records: list[SentRecord] = json.loads(result.pop("records"))
        diverged: list[DivergedRun] = json.loads(result.pop("diverged"))
        for record in records:
            key = record["config_hash"], record["seed"]
            embeddings = record.pop("embeddings", None)
            if record["environment"]["commit"] is None:  # from another node, whose copy has no Git history
                record["environment"]["commit"] = commit()
            self._store.write_predictions(key, base64.b64decode(record.pop("predictions")))
            self._store.write(record)
            if embeddings:
                self._store.write_embeddings(key, result["snapshot"], base64.b64decode(embeddings))
        configs = {config.hash(): config for config in self._of(trial).configs}
        for run in diverged:
            key = run["config_hash"], run["seed"]
            self._store.write_failure(key, configs[key[0]].canonical(), run["reason"], diverged=True)
            self._progress.say(run["reason"])
        if note := result.pop("note"):
            self._progress.say(f"{trial}: {note}")
        self._progress.finished(trial.trial_id, self._figures(trial, records), failed=len(diverged))

    def on_trial_recover(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._progress.stopped(trial.trial_id)
        log = self._write_failure(trial, _traceback(trial))
        self._progress.say(f"{trial} failed and will be retried: {_reason(trial)} (log: {log})")

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        log = self._write_failure(trial, _traceback(trial))
        if _lost_its_worker(trial) and trial.num_failures <= self._retries:
            self.again.append(self._of(trial))
            self._progress.stopped(trial.trial_id)
            self._progress.say(f"{trial} lost its worker; it will run again after the others (log: {log})")
            return
        self._has_failed(trial, _reason(trial), log)

    def _has_failed(self, trial: Any, reason: str, log: Path) -> None:
        """Count the runs of a trial as failed; configurations that shared it first run separately."""
        ours = self._of(trial)
        if len(ours.configs) == 1:
            self._progress.say(f"{trial} failed: {reason} (log: {log})")
            self._progress.has_failed(trial.trial_id, ours)
            return
        text = f"its {len(ours.configs)} configurations will run separately"
        self._progress.say(f"{trial} failed: {reason}; {text} (log: {log})")
        self._run_apart(trial, ours)

    def _run_apart(self, trial: Any, ours: Trial) -> None:
        self.again += ours.apart()
        self._progress.stopped(trial.trial_id, instead=ours.apart())

    def on_step_end(self, iteration: int, trials: list[Any], **info: Any) -> None:
        """Give up if Ray has died; explain if no trial runs for a while."""
        if time.monotonic() - self._looked > SECONDS_BETWEEN_LOOKS:
            check_alive()
            self._looked = time.monotonic()
        if self._patience.is_over(waiting=not self._progress.running and bool(trials)):
            asked = trials[-1].placement_group_factory.required_resources
            if reason := why_nothing_runs(asked, node_resources()):
                self._progress.say(reason)

    def _write_failure(self, trial: Any, error: str) -> Path:
        """Write the log of a failed attempt for each of its runs; return the first file."""
        ours = self._of(trial)
        first, *_ = [
            self._store.write_failure((config.hash(), seed), config.canonical(), error)
            for config, seed in ours.members
        ]
        return first

    def _figures(self, trial: Any, records: Sequence[Record]) -> list[float]:
        """Return the figures that the progress line shows of finished runs."""
        return [record["macro_accuracy"][-1] for record in records]

    def _of(self, trial: Any) -> Trial:
        return self._trials[trial.config["spec"]["name"]]


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
    return Path(trial.error_file).read_text() if trial.error_file else "no traceback"


def _reason(trial: Any) -> str:
    """Return why the last attempt failed, in one line."""
    if _lost_its_worker(trial):
        return "its worker died (killed, out of memory, or its node is gone)"
    return _one_line(_traceback(trial).strip().splitlines()[-1])


def _lost_its_worker(trial: Any) -> bool:
    """Return whether the last attempt ended because its process died."""
    if trial.pickled_error_file is None:
        return False
    return isinstance(pickle.loads(Path(trial.pickled_error_file).read_bytes()), RayActorError)


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= MOST_LETTERS else f"{line[:MOST_LETTERS]}..."


class Supply(Searcher):
    """Gives Tune its trials one at a time; Tune would copy a whole grid for each trial."""

    def __getstate__(self) -> dict[str, Any]:
        """Return nothing: Tune pickles searchers to restore a study, but our files do that."""
        return {}

    def save(self, checkpoint_path: str) -> None:
        """Do nothing, for the same reason."""

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """Ignore the result; the recorder has it."""


class InOrder(Supply):
    """Gives Tune a fixed sequence of trials."""

    def __init__(self, specs: Iterable[TrialSpec]) -> None:
        super().__init__()
        self._specs = iter(specs)

    def suggest(self, trial_id: str) -> Any:
        """Return the next trial, or that there is none."""
        spec = next(self._specs, None)
        return self.FINISHED if spec is None else {"spec": spec}


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
        """Run trials, the longest first.

        A lost worker may fail several tasks of its trial. Tune gives up a trial that fails again before it
        has restarted, even if it has retries left. Such trials run again after the others. So do the
        configurations of a failed trial, one by one: then one that fails takes no other one with it.
        """
        retries, seconds = self._options.retries, self._options.time_budget
        end = math.inf if seconds is None else time.monotonic() + seconds
        while trials and time.monotonic() < end:
            recorder = Recorder(self._store, trials, self._progress, retries)
            left = None if seconds is None else end - time.monotonic()
            self._run_once(trials, recorder, replace(self._options, retries=retries, time_budget=left))
            trials, retries = recorder.again, max(0, retries - 1)

    def _run_once(self, trials: Sequence[Trial], recorder: Recorder, options: TrialOptions) -> None:
        # A long trial that starts last keeps one worker busy while the others idle.
        longest_first = sorted(trials, key=trial_seconds, reverse=True)
        supply = InOrder(map(self.spec_of, longest_first))
        self.supplied(run_trial, supply, len(trials), recorder, options)

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
        most: int,
        recorder: tune.Callback,
        options: TrialOptions | None = None,
    ) -> None:
        """Run the trials of a supply with Ray Tune, without its console output.

        Args:
            trainable: Runs one trial in a worker.
            supply: Yields the trials.
            most: The largest number of trials that `supply` yields.
            recorder: Writes the records.
            options: How trials run, if not as usual.
        """
        options = options or self._options
        cpus = self._resources.cpus  # so that only this number is sent to workers with the function

        def request(config: dict[str, Any]) -> tune.PlacementGroupFactory:
            return tune.PlacementGroupFactory([{"CPU": cpus, "GPU": config["spec"]["gpu_share"]}])

        def given(config: dict[str, Any]) -> None:
            trainable(config["spec"])

        def given_data(config: dict[str, Any], graphs: dict[str, Dataset]) -> None:
            data.lend(graphs)
            trainable(config["spec"])

        lent = dict(options.lent)
        function = tune.with_parameters(given_data, graphs=lent) if lent else given
        tune.Tuner(
            tune.with_resources(function, request),
            tune_config=tune.TuneConfig(
                search_alg=supply,
                num_samples=most,
                max_concurrent_trials=self._resources.slots,
                reuse_actors=True,
                time_budget_s=options.time_budget,
                trial_name_creator=trial_name,
                trial_dirname_creator=trial_name,
            ),
            run_config=tune.RunConfig(
                name="tune",
                storage_path=str(self._store.folder.resolve()),
                failure_config=tune.FailureConfig(max_failures=options.retries),
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
