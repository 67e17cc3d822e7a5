"""What becomes of trials that Tune gives up."""

from __future__ import annotations

import io
import json
import pickle
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from ray.exceptions import ActorDiedError, ActorUnavailableError, RayError, RayTaskError
from rich.console import Console

from hagmeta.config.run_config import RunConfig, resolve
from study.planning.packing import Packing
from study.planning.plan import Trial, make_plan
from study.planning.resources import Resources
from study.running.tuning import Recorder, StudyRunner, TrialOptions
from study.store.store import Store
from study.terminal.progress import StudyProgress

TRIAL = Trial.of(resolve(RunConfig.of(dataset="debian", method="frozen")), (0,))
UNAVAILABLE = ActorUnavailableError("Socket closed", b"0123456789abcdef")


@pytest.mark.parametrize(
    ("error", "used_up", "tries"),
    [
        (UNAVAILABLE, False, 3),  # in every round, of which later ones have one retry less: two, one, none
        (ActorDiedError(), False, 3),
        (UNAVAILABLE, True, 1),
        (RayTaskError("run", "ValueError: 3", ValueError(3)), False, 1),  # no worker was lost
    ],
)
def test_a_trial_that_tune_gives_up_too_early_runs_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: RayError, used_up: bool, tries: int
) -> None:
    (tmp_path / "error.txt").write_text(str(error))
    (tmp_path / "error.pkl").write_bytes(pickle.dumps(error))
    store = Store(tmp_path / "study")
    ran = []

    def run_once(self: StudyRunner, trials: list[Trial], recorder: Recorder, options: TrialOptions) -> None:
        ran.append([trial.name for trial in trials])
        given_up = SimpleNamespace(
            trial_id="1",
            config={"spec": {"name": TRIAL.name}},
            error_file=str(tmp_path / "error.txt"),
            pickled_error_file=str(tmp_path / "error.pkl"),
            num_failures=options.retries + 1 if used_up else max(1, options.retries),
        )
        recorder.on_trial_error(0, [], given_up)

    monkeypatch.setattr(StudyRunner, "_run_once", run_once)
    progress = StudyProgress(Console(quiet=True), [TRIAL], 0)
    runner = StudyRunner(store, Resources.__new__(Resources), progress, TrialOptions(retries=2))
    runner.run([TRIAL])
    assert ran == [[TRIAL.name]] * tries


def test_configurations_of_a_trial_that_failed_run_separately(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = TRIAL.config
    bad, good = (resolve(replace(config, learning_rate=rate)) for rate in (0.1, 0.2))
    (shared,) = make_plan([bad, good], (0, 1), set(), Packing()).trials
    store, ran = Store(tmp_path / "study"), []

    def run_once(self: StudyRunner, trials: list[Trial], recorder: Recorder, options: TrialOptions) -> None:
        for trial in trials:
            ran.append([(config.learning_rate, seed) for config, seed in trial.members])
            started = SimpleNamespace(trial_id=trial.name, config={"spec": {"name": trial.name}})
            recorder.on_trial_start(0, [], started)
            if bad in trial.configs:
                recorder.on_trial_result(0, [], started, {"failed": "no", "traceback": "no: 3"})
            else:
                progress.finished(trial.name, [0.5])

    monkeypatch.setattr(StudyRunner, "_run_once", run_once)
    said = io.StringIO()
    progress = StudyProgress(Console(file=said, width=1000), [shared], 0)
    StudyRunner(store, Resources.__new__(Resources), progress, TrialOptions(retries=2)).run([shared])
    assert ran == [[(0.1, 0), (0.2, 0), (0.1, 1), (0.2, 1)], [(0.1, 0), (0.1, 1)], [(0.2, 0), (0.2, 1)]]
    assert "failed: no; its 2 configurations will run separately" in said.getvalue()
    assert (progress.done, progress.running, progress.failed) == (2, 0, 2)
    logs = {json.loads(path.read_text())["config"]["learning_rate"] for path in store.failures.glob("*/*")}
    assert logs == {0.1, 0.2}  # a record of the good one would remove its logs
