"""What becomes of trials that fail, and which trial runs next."""

from __future__ import annotations

import io
import pickle
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ray.exceptions import ActorDiedError, ActorUnavailableError, RayError
from rich.console import Console

from hagmeta.config.run_config import RunConfig, resolve
from study.planning.packing import Packing
from study.planning.plan import Trial, make_plan
from study.running import reports
from study.running.queue import Queue, Retries
from study.running.trial import errors_reported
from study.running.tuning import Recorder
from study.store.store import Store
from study.terminal.progress import StudyProgress

TRIAL = Trial.of(resolve(RunConfig.of(dataset="debian", method="frozen")), (0, 1))
BAD, GOOD = (resolve(replace(TRIAL.config, learning_rate=rate)) for rate in (0.1, 0.2))
[SHARED] = make_plan([BAD, GOOD], (0, 1), set(), Packing()).trials


class Launch:
    """A launch without Ray: trials start and fail as told."""

    def __init__(self, folder: Path, *trials: Trial, retries: int = 2) -> None:
        self.said, self.store = io.StringIO(), Store(folder / "study")
        self.queue = Queue(trials, lambda trial: {"trial": trial}, retries)  # type: ignore[arg-type,return-value]
        self.progress = StudyProgress(Console(file=self.said, width=1000), trials, 0)
        self.recorder = Recorder(self.store, self.queue, self.progress)
        self.started: list[Any] = []

    def start(self) -> Any:
        """Start the next trial; None while others run, and FINISHED at the end."""
        key = str(len(self.started))
        found = self.queue.suggest(key)
        if not isinstance(found, dict):
            return found
        self.started.append(SimpleNamespace(trial_id=key, error_file=None, pickled_error_file=None))
        self.recorder.on_trial_start(0, [], self.started[-1])
        return found["spec"]["trial"]

    def fails(self, error: str, *, by_user: bool = False) -> None:
        """Fail the trial that started last, as a worker reports it."""
        report = {"failed": error, "traceback": f"in my.py\n{error}", "by_user": by_user}
        self.recorder.on_trial_result(0, [], self.started[-1], report)
        if not by_user:
            self.recorder.on_trial_error(0, [], self.started[-1])

    def finishes(self) -> None:
        """End the trial that started last, without records."""
        self.recorder.on_trial_result(
            0, [], self.started[-1], {"records": "[]", "diverged": "[]", "note": ""}
        )


def test_the_same_exception_twice_is_not_tried_a_third_time(tmp_path: Path) -> None:
    launch = Launch(tmp_path, TRIAL)
    assert launch.start() == TRIAL
    launch.fails("ValueError: 3")
    assert launch.start() == TRIAL
    launch.fails("ValueError: 3")
    assert launch.start() == Queue.FINISHED
    first, last = [line for line in launch.said.getvalue().splitlines() if "failed:" in line]
    path = launch.store.failures / TRIAL.config.hash() / "0.txt"
    assert last == f"frozen on debian, seeds 0-1 failed: ValueError: 3 ({path})"
    assert first == last.replace(" (", "; it will run again after the others (", 1)
    assert path.read_text().endswith("in my.py\nValueError: 3\n")
    assert (launch.progress.running, launch.progress.failed) == (0, 2)


def test_other_exceptions_are_tried_until_the_retries_are_used(tmp_path: Path) -> None:
    launch = Launch(tmp_path, TRIAL)
    for number in range(3):
        assert launch.start() == TRIAL
        launch.fails(f"OSError: {number}")
    assert launch.start() == Queue.FINISHED


def test_an_error_of_the_user_is_not_tried_again(tmp_path: Path) -> None:
    launch = Launch(tmp_path, TRIAL)
    launch.start()
    launch.fails("no such file", by_user=True)
    assert launch.start() == Queue.FINISHED and launch.progress.failed == 2


@pytest.mark.parametrize(
    "error", [ActorUnavailableError("Socket closed", b"0123456789abcdef"), ActorDiedError()]
)
def test_a_trial_that_lost_its_worker_runs_again(tmp_path: Path, error: RayError) -> None:
    (tmp_path / "error.txt").write_text(f"\x1b[36m{error}\x1b[39m")
    (tmp_path / "error.pkl").write_bytes(pickle.dumps(error))
    launch = Launch(tmp_path, TRIAL)
    for _ in range(3):  # the same error each time, but not of the trial
        assert launch.start() == TRIAL
        launch.started[-1].error_file = str(tmp_path / "error.txt")
        launch.started[-1].pickled_error_file = str(tmp_path / "error.pkl")
        launch.recorder.on_trial_error(0, [], launch.started[-1])
    assert launch.start() == Queue.FINISHED
    assert launch.said.getvalue().count("failed: its worker died") == 3
    assert "\x1b" not in next(launch.store.failures.glob("*/0.txt")).read_text()


def test_configurations_of_a_trial_that_failed_run_separately(tmp_path: Path) -> None:
    launch = Launch(tmp_path, SHARED)
    assert launch.start() == SHARED
    launch.fails("ValueError: 3")
    assert "failed: ValueError: 3; its 2 configurations will run separately" in launch.said.getvalue()
    assert len(list(launch.store.failures.glob("*/*.json"))) == 4  # records would remove them
    assert launch.start() == Trial.of(BAD, (0, 1))
    launch.fails("ValueError: 3")  # the second time for these runs
    assert launch.start() == Trial.of(GOOD, (0, 1))
    launch.finishes()
    assert launch.start() == Queue.FINISHED
    assert (launch.progress.done, launch.progress.running, launch.progress.failed) == (2, 0, 2)


def test_packs_that_lose_their_worker_again_and_again_run_separately() -> None:
    retries = Retries(1)
    assert retries.after(SHARED, None) == [SHARED]
    assert retries.after(SHARED, None) == SHARED.apart()


def test_trials_that_wait_for_an_encoder_come_after_others(tmp_path: Path) -> None:
    same = [Trial.of(resolve(RunConfig.of(nla=nla)), (0, 1)) for nla in (False, True)]
    other = Trial.of(TRIAL.config, (2, 3))
    launch = Launch(tmp_path, *same, other)
    first = launch.start()
    assert first in same and launch.start() == other  # the longest first, but not while it would wait
    second = launch.start()
    assert second in same and second != first  # no other trial is left
    launch.recorder.on_trial_result(0, [], launch.started[2], {"phase": reports.WAITS})
    shown = {each.name: each.report for each in launch.progress._now_running()}
    assert shown[launch.progress.name("2")] == f"waiting for the encoder of {launch.progress.name('0')}"
    launch.recorder.on_trial_result(0, [], launch.started[0], {"phase": "meta-train", "step": 1, "steps": 9})
    assert launch.queue.trained_by("2") is None  # it is in the cache now


def test_a_traceback_has_the_frames_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[dict[str, Any]] = []
    monkeypatch.setattr("study.running.trial.tune.report", told.append)
    with pytest.raises(ZeroDivisionError), errors_reported():
        1 / 0  # noqa: B018
    [report] = told
    assert report["failed"] == "ZeroDivisionError: division by zero" and "done" not in report
    assert "test_tuning.py" in report["traceback"] and "study/running/" not in report["traceback"].replace(
        "tests/study/running/", ""
    )
