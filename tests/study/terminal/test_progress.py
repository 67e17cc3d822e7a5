from __future__ import annotations

import io
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from hagmeta.config.run_config import RunConfig
from study.planning.cost import TimeLeft, rough_seconds
from study.planning.packing import Packing
from study.planning.plan import Trial, make_plan
from study.terminal import progress as module
from study.terminal.progress import StudyProgress, show_state
from tests.waiting import wait_for

LONG, SHORT = RunConfig.of(episodes=1000), RunConfig.of(gpil=False)


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr(module.time, "monotonic", lambda: self.now)


def in_time(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))


def progress_of(trials: Sequence[Trial], done_before: int = 0) -> tuple[StudyProgress, io.StringIO]:
    output = io.StringIO()
    return StudyProgress(Console(file=output, width=80), trials, done_before), output


def took(seconds: float, *configs: RunConfig) -> list[dict[str, Any]]:
    """Return a record per configuration that took so long."""
    return [{"config": c.canonical(), "config_hash": c.hash(), "seconds": {"test": seconds}} for c in configs]


def test_the_time_left_rests_on_what_runs_of_the_kind_took(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    plan = make_plan([LONG, SHORT], range(2), set(), Packing(seeds=1))
    long, short = plan.trials[0].config, plan.trials[2].config
    progress, output = progress_of(plan.trials)
    progress.started("a", plan.trials[0])
    clock.now = 100
    assert "left" not in progress.text()  # nothing was measured yet
    progress.finished("a", took(100, long), figures=[0.5])
    cheaper = rough_seconds(short) / rough_seconds(long)
    assert cheaper < 0.5
    assert progress.text().endswith(f"about {in_time(100 + 200 * cheaper)} left (0:01:40)")
    assert (
        "1/4 runs, 0 running, mean macro accuracy in the last session 50.0 %, about 0:0" in output.getvalue()
    )
    progress.started("b", plan.trials[1])
    clock.now = 160
    assert f"about {in_time(40 + 200 * cheaper)} left" in progress.text()
    clock.now = 300  # longer than foreseen
    assert f"about {in_time(200 * cheaper)} left" in progress.text()


def test_a_resumed_study_has_a_time_left_at_once() -> None:
    plan = make_plan([LONG], range(4), set(), Packing(seeds=1))
    before = TimeLeft(took(50, *[trial.config for trial in plan.trials]))  # type: ignore[arg-type]
    progress = StudyProgress(Console(quiet=True), plan.trials, 4, time_left=before)
    assert progress.text().startswith("4/8 runs, 0 running, about 0:03:20 left")


def test_trials_of_a_kind_that_was_not_measured_are_not_guessed(monkeypatch: pytest.MonkeyPatch) -> None:
    # Methods differ in what they need: a guess from another one was a hundred times too much.
    clock = Clock(monkeypatch)
    closed, learning = (RunConfig.of(method=method) for method in ("sgc-ncm", "meta-gnn"))
    plan = make_plan([closed, learning], range(3), set(), Packing(seeds=1))
    progress, _ = progress_of(plan.trials)
    progress.started("a", plan.trials[0])
    clock.now = 20
    progress.finished("a", took(20, plan.trials[0].config))
    progress.started("b", plan.trials[3])
    assert ", at least 0:00:40 left" in progress.text()
    clock.now = 25
    progress.finished("b", took(5, plan.trials[3].config))
    assert ", about 0:00:50 left" in progress.text()


def test_a_state_file_tells_another_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trial, file = Trial.of(LONG, (0, 1)), tmp_path / "status.json"
    console = Console(width=80, force_terminal=False)
    with StudyProgress(Console(quiet=True), [trial], 0, file=file) as progress:
        progress.started("a", trial)
        progress.goes_on("a", "meta-train", 10, 1000, {})
        progress._write_state()
        with console.capture() as shown:
            console.print(show_state(file))
    assert "hag-meta on debian, seeds 0-1" in shown.get() and "meta-train 10/1000" in shown.get()
    assert "0/2 runs, 2 running" in shown.get()
    assert not file.exists() and show_state(file) is None  # the launch has ended


def test_without_a_terminal_there_is_a_line_each_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SECONDS_BETWEEN_WRITES", 0.001)
    monkeypatch.setattr(module, "SECONDS_BETWEEN_LINES", 0.003)
    progress, output = progress_of([Trial.of(LONG, (0, 1))])
    with progress:
        wait_for(lambda: output.getvalue().count("0/2 runs, 0 running") >= 2)


def test_a_running_trial_is_named_by_the_settings_that_vary() -> None:
    plan = make_plan(
        [RunConfig.of(nla=nla, hidden=16) for nla in (False, True)], range(3), set(), Packing(seeds=3)
    )
    output = io.StringIO()
    console = Console(file=output, width=120, force_terminal=True, no_color=True)
    with StudyProgress(console, plan.trials, 0) as progress:
        for trial in plan.trials:
            progress.started(trial.name, trial)
        progress.started("sample", plan.trials[0], {"hidden": 32, "dropout": 0.1234})
    for name in ("NLA off", "NLA on", "hidden 32, dropout 0.1234"):
        assert f"hag-meta on debian, {name}, seeds 0-2" in output.getvalue()


def test_runs_are_counted_once_whatever_becomes_of_their_trial() -> None:
    trials = tuple(Trial.of(LONG, (seed, seed + 1)) for seed in range(0, 8, 2))
    progress, output = progress_of(trials, done_before=2)
    for number, trial in enumerate(trials):
        progress.started(str(number), trial)
    assert progress.running == 8
    progress.stopped("0")
    assert progress.running == 6
    progress.started("0", trials[0])
    progress.finished("0", figures=[0.5, 0.7])
    progress.finished("0")
    progress.finished_before(LONG, 2)  # found in the store after all
    progress.stopped("1")
    progress.started("2", trials[2])
    progress.has_failed("2")
    assert (progress.done, progress.running, progress.failed) == (4, 2, 2)
    progress.stopped("never started")
    assert (
        "6/10 runs, 2 running, 2 failed, mean macro accuracy in the last session 60.0 %" in output.getvalue()
    )
