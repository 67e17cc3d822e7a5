"""Show the progress of a study: a live panel on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import rich.box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from hagmeta.common.records.differences import differing
from hagmeta.config.run_config import scopes_of
from study.naming import TrialNames
from study.plan import Trial
from study.time_left import Job, TimeLeft


def last_session(accuracies: list[float]) -> str:
    """Return the mean macro accuracy of the finished runs of a study at the end of their streams."""
    return f"mean macro accuracy in the last session {100 * sum(accuracies) / len(accuracies):.1f} %"


def best_validation(objectives: list[float]) -> str:
    """Return the best validation of a search so far; a search does not look at test streams."""
    return f"best validation {100 * max(objectives):.1f} %"


def average_validation(objectives: list[float]) -> str:
    """Return the mean validation of several searches, whose objectives cannot be compared."""
    return f"mean validation {100 * sum(objectives) / len(objectives):.1f} %"


MOST_SHOWN = 12  # running trials in the table


@dataclass
class Running:
    """A running trial and its last report."""

    trial: Trial
    job: Job
    jobs: int  # how many of this job it does
    name: str
    since: float
    report: str = ""


class StudyProgress:
    """Shows how many runs are done, running and failed, the time left, and the running trials."""

    def __init__(
        self,
        console: Console,
        trials: Sequence[Trial],
        done_before: int,
        in_words: Callable[[list[float]], str] = last_session,
    ) -> None:
        """Prepare the display; as a context manager it draws the live panel.

        Args:
            console: Where to print.
            trials: The trials to run.
            done_before: The number of runs that earlier launches have finished.
            in_words: Summarises the figures of all finished trials.
        """
        self._console, self._in_words = console, in_words
        self._done_before = done_before
        self._missing = sum(len(trial.members) for trial in trials)
        self._running: dict[str, Running] = {}
        self._most_at_once = 0
        self._time_left = TimeLeft(trials)
        self._names = _names(trials)
        self._start = time.monotonic()
        self._figures: list[float] = []
        self.done = self.failed = 0
        self._live = Live(console=console, refresh_per_second=1, transient=True, get_renderable=self._panel)

    def __enter__(self) -> StudyProgress:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    @property
    def running(self) -> int:
        return sum(len(each.trial.members) for each in self._now_running())

    def started(
        self, key: str, trial: Trial, settings: Mapping[str, Any] | None = None, unit: Trial | None = None
    ) -> None:
        """Count a trial as running.

        Args:
            key: Identifies the trial in later calls.
            trial: What runs.
            settings: What to show of its settings; by default, those in which trials differ.
            unit: The planned trial of one run, if `trial` was not planned: it counts once per member.
        """
        configs = [config.canonical() for config in trial.configs]
        name = ", ".join(self._names.of(configs, trial.seeds, settings))
        jobs = len(trial.members) if unit else 1
        self._running[key] = Running(trial, Job.of(unit or trial), jobs, name, time.monotonic())
        self._most_at_once = max(self._most_at_once, len(self._running))

    def goes_on(self, key: str, phase: str, done: int, total: int, values: Mapping[str, float]) -> None:
        """Show that a trial has finished `done` of `total` steps of a phase, and the values found in it."""
        if key in self._running:
            found = "".join(f", {100 * value:.1f} %" for value in values.values())
            self._running[key].report = f"{phase} {done}/{total}{found}"

    def stopped(self, key: str, instead: Sequence[Trial] = ()) -> None:
        """Count a trial as interrupted; it will start again, or the trials `instead` of it will."""
        ended = self._running.pop(key, None)
        if ended and instead:
            self._time_left.ended(ended.job, None, ended.jobs)
            self._time_left.add(instead)

    def finished(self, key: str, figures: Sequence[float] = (), failed: int = 0) -> None:
        """Count a trial as finished, with these `figures`. A second call does nothing.

        Args:
            key: Identifies the trial.
            figures: What the summary shows of its runs.
            failed: How many of its runs have failed.
        """
        if key not in self._running:
            return
        ended = self._running.pop(key)
        self._time_left.ended(ended.job, time.monotonic() - ended.since, ended.jobs)
        self.done += len(ended.trial.members) - failed
        self.failed += failed
        self._figures += figures
        self._show()

    def finished_before(self, trial: Trial, times: int = 1) -> None:
        """Count a trial as finished that did not run, because the store has its records."""
        self._time_left.ended(Job.of(trial), None, times)
        self.done += times * len(trial.members)
        self._show()

    def found(self, figure: float) -> None:
        """Add a figure to the summary; the next line shows it."""
        self._figures.append(figure)

    def has_failed(self, key: str, trial: Trial, times: int = 1) -> None:
        """Count a trial as failed; it may never have started, and then it counts `times`."""
        if key in self._running:
            ended = self._running.pop(key)
            self._time_left.ended(ended.job, None, ended.jobs)
            self.failed += len(ended.trial.members)
        else:
            self._time_left.ended(Job.of(trial), None, times)
            self.failed += times * len(trial.members)
        self._show()

    def say(self, text: str) -> None:
        """Print a note above the panel."""
        self._console.print(text, style="yellow", soft_wrap=True)

    def _show(self) -> None:
        if not self._console.is_terminal:  # a terminal has the live panel
            self._console.print(self.text(), soft_wrap=True)

    def _panel(self) -> RenderableType:
        """Return the running trials, in a table or in two lines each where it is too wide, and `text`."""
        running = self._now_running()
        if not running:
            return self.text()
        table = Table(box=rich.box.SIMPLE, padding=(0, 1, 0, 0))
        table.add_column("running", no_wrap=True)
        for name in ("phase", "elapsed", "left"):
            table.add_column(name, no_wrap=True)
        lines = Text()
        for each in running[:MOST_SHOWN]:
            elapsed = time.monotonic() - each.since
            left = self._time_left.of(
                each.job, elapsed, each.jobs
            )  # 0 if it takes longer than others of its kind
            state = [each.report or "starting", _duration(elapsed), f"~{_duration(left)}" if left else ""]
            table.add_row(each.name, *state)
            lines.append(f"{each.name}\n    {', '.join(state[:2])}{f', {state[2]} left' if left else ''}\n")
        more = [f"and {len(running) - MOST_SHOWN} more"] if len(running) > MOST_SHOWN else []
        fits = Console(width=1000).measure(table).maximum <= self._console.width
        return Group(table if fits else lines, *more, self.text())

    def _now_running(self) -> list[Running]:
        """Return a copy, because another thread draws the panel."""
        return list(self._running.values())

    def text(self) -> str:
        """Return the state of the whole study in one line."""
        parts = [f"{self._done_before + self.done}/{self._done_before + self._missing} runs"]
        parts.append(f"{self.running} running")
        if self.failed:
            parts.append(f"{self.failed} failed")
        if self._figures:
            parts.append(self._in_words(self._figures))
        now = time.monotonic()
        running = [(each.job, each.jobs, now - each.since) for each in self._now_running()]
        left = self._time_left.of_all(running, max(1, self._most_at_once))
        if left:
            parts.append(f"{left} {_duration(left.seconds)} left")
        return ", ".join(parts) + f" ({_duration(now - self._start)})"


def _names(trials: Sequence[Trial]) -> TrialNames:
    configs = {config.hash(): config for trial in trials for config in trial.configs}
    settings = [config.canonical() for config in configs.values()]
    return TrialNames(settings, differing(settings, scopes_of(configs.values())))


def _duration(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))
