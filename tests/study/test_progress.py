from __future__ import annotations

import io
from collections.abc import Sequence

import pytest
from rich.console import Console

from hagmeta.config import RunConfig
from study import progress as module
from study.plan import Trial, make_plan
from study.progress import StudyProgress

LONG, SHORT = RunConfig(episodes=1000), RunConfig(gpil=False)


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr(module.time, "monotonic", lambda: self.now)


def progress_of(trials: Sequence[Trial], done_before: int = 0) -> tuple[StudyProgress, io.StringIO]:
    output = io.StringIO()
    return StudyProgress(Console(file=output, width=80), trials, done_before), output


def test_the_time_left_goes_by_what_trials_should_cost_and_not_by_their_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock(monkeypatch)
    plan = make_plan([LONG, SHORT], range(2), set(), 1, 1)
    long, short = plan.trials[0], plan.trials[2]
    progress, output = progress_of(plan.trials)
    progress.started("a", long)
    clock.now = 100
    progress.finished("a", [0.5])
    cheaper = module.trial_seconds(short) / module.trial_seconds(long)
    assert cheaper < 0.5
    assert progress.seconds_left() == pytest.approx(100 + 200 * cheaper)
    assert "1/4 runs, 0 running, last session 50.0 % on average, about 0:0" in output.getvalue()
    progress.started("b", long)
    clock.now = 160
    assert progress.seconds_left() == pytest.approx(40 + 200 * cheaper)
    clock.now = 300  # longer than foreseen
    assert progress.seconds_left() == pytest.approx(200 * cheaper)


def test_trials_side_by_side_share_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    plan = make_plan([LONG], range(8), set(), 1, 1)
    progress, _ = progress_of(plan.trials)
    for number in range(4):
        progress.started(str(number), plan.trials[number])
    clock.now = 100
    for number in range(4):
        progress.finished(str(number), [0.5])
    assert progress.seconds_left() == pytest.approx(100)


def test_runs_are_counted_once_whatever_becomes_of_their_trial() -> None:
    trials = tuple(Trial(LONG, (seed, seed + 1)) for seed in range(0, 8, 2))
    progress, output = progress_of(trials, done_before=2)
    for number, trial in enumerate(trials):
        progress.started(str(number), trial)
    assert progress.running == 8
    progress.stopped("0")
    assert progress.running == 6
    progress.started("0", trials[0])
    progress.finished("0", [0.5, 0.7])
    progress.finished("0")
    progress.was_there(trials[1], [])  # found in the store after all
    progress.stopped("1")
    progress.has_failed("2", trials[2])
    assert (progress.done, progress.running, progress.failed) == (4, 2, 2)
    progress.stopped("never started")
    assert "6/10 runs, 2 running, 2 failed, last session 60.0 % on average" in output.getvalue()
