"""What becomes of trials that Tune gives up."""

from __future__ import annotations

import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ray.exceptions import ActorDiedError, ActorUnavailableError, RayError, RayTaskError
from rich.console import Console

from hagmeta.config import RunConfig, resolve
from study import tuning
from study.plan import Plan, Trial
from study.progress import StudyProgress
from study.resources import Resources
from study.store import Store

TRIAL = Trial(resolve(RunConfig(dataset="debian", method="frozen")), (0,))
PLAN = Plan((TRIAL.config,), (0,), (TRIAL,))
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

    def run_trials(trials: list[Trial], store: Store, resources: Any, callbacks: Any, **how: Any) -> None:
        ran.append([trial.name for trial in trials])
        given_up = SimpleNamespace(
            trial_id="1",
            config={"spec": {"name": TRIAL.name}},
            error_file=str(tmp_path / "error.txt"),
            pickled_error_file=str(tmp_path / "error.pkl"),
            num_failures=how["retries"] + 1 if used_up else max(1, how["retries"]),
        )
        callbacks[0].on_trial_error(0, [], given_up)

    monkeypatch.setattr(tuning, "_run_trials", run_trials)
    progress = StudyProgress(Console(quiet=True), [TRIAL], 0)
    tuning.run_plan(PLAN, store, Resources.__new__(Resources), progress, retries=2, time_budget=None)
    assert ran == [[TRIAL.name]] * tries
