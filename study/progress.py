"""What is seen of a study while it runs: a live panel on a terminal, plain lines elsewhere."""

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

from hagmeta.common.differences import differing
from study.plan import Trial
from study.time_left import Job, TimeLeft


def last_session(accuracies: list[float]) -> str:
    """Of a study: how accurate the finished runs are at the end of their streams."""
    return f"last session {100 * sum(accuracies) / len(accuracies):.1f} % on average"


def best_validation(objectives: list[float]) -> str:
    """Of a search, which does not look at test streams."""
    return f"best validation {100 * max(objectives):.1f} %"


def average_validation(objectives: list[float]) -> str:
    """Of several searches, whose objectives are not to be compared."""
    return f"validation {100 * sum(objectives) / len(objectives):.1f} % on average"


MOST_SHOWN = 12  # running trials in the table


@dataclass
class Running:
    """A trial that runs, and the last that was heard of it."""

    trial: Trial
    job: Job
    name: str
    since: float
    told: str = ""


class StudyProgress:
    """Runs done, running and failed, time left, what the finished ones reached, and what runs just now."""

    def __init__(
        self,
        console: Console,
        trials: Sequence[Trial],
        done_before: int,
        in_words: Callable[[list[float]], str] = last_session,
    ) -> None:
        """``in_words`` sums up the figures that finished trials come with."""
        self._console, self._in_words = console, in_words
        self._done_before = done_before
        self._missing = sum(len(trial.seeds) for trial in trials)
        self._running: dict[str, Running] = {}
        self._most_at_once = 0
        self._time_left = TimeLeft(trials)
        self._differing = _differing(trials)
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
        return sum(len(each.trial.seeds) for each in self._now_running())

    def started(self, key: str, trial: Trial, settings: Mapping[str, Any] | None = None) -> None:
        """A trial runs.

        ``key`` tells trials apart. ``settings`` describe it to the reader; by default, those that differ
        among the study's trials.
        """
        if settings is None:
            values = trial.config.canonical()
            settings = {name: values[name] for name in self._differing if name in values}
        self._running[key] = Running(trial, Job.of(trial), _name(trial, settings), time.monotonic())
        self._most_at_once = max(self._most_at_once, len(self._running))

    def goes_on(self, key: str, phase: str, done: int, total: int, values: Mapping[str, float]) -> None:
        """A trial is so far in a phase, and found this in it."""
        if key in self._running:
            found = "".join(f", {100 * value:.1f} %" for value in values.values())
            self._running[key].told = f"{phase} {done}/{total}{found}"

    def stopped(self, key: str) -> None:
        """Interrupted: it will be started again."""
        self._running.pop(key, None)

    def finished(self, key: str, figures: Sequence[float] = ()) -> None:
        """Its runs are in the store, with these figures. Nothing happens when it is said again."""
        if key not in self._running:
            return
        ended = self._running.pop(key)
        self._time_left.ended(ended.job, time.monotonic() - ended.since)
        self.done += len(ended.trial.seeds)
        self._figures += figures
        self._show()

    def finished_before(self, trial: Trial, figures: Sequence[float]) -> None:
        """Its runs need not run: they were in the store already."""
        self._time_left.ended(Job.of(trial), None)
        self.done += len(trial.seeds)
        self._figures += figures
        self._show()

    def has_failed(self, key: str, trial: Trial) -> None:
        """It may never have started."""
        if key in self._running:
            trial = self._running.pop(key).trial
        self._time_left.ended(Job.of(trial), None)
        self.failed += len(trial.seeds)
        self._show()

    def say(self, text: str) -> None:
        self._console.print(text, style="yellow", soft_wrap=True)

    def _show(self) -> None:
        if not self._console.is_terminal:  # there the panel is drawn again every second
            self._console.print(self.text(), soft_wrap=True)

    def _panel(self) -> RenderableType:
        """The running trials, then what is said in a line."""
        running = self._now_running()
        if not running:
            return self.text()
        table = Table(box=rich.box.SIMPLE, padding=(0, 1, 0, 0))
        table.add_column("running", overflow="fold")
        for name in ("now", "for", "left"):
            table.add_column(name, no_wrap=True)
        for each in running[:MOST_SHOWN]:
            elapsed = time.monotonic() - each.since
            left = self._time_left.of(each.job, elapsed)  # 0 where it takes longer than others of its kind
            table.add_row(
                each.name,
                each.told or "starts",
                _duration(elapsed),
                f"about {_duration(left)}" if left else "",
            )
        more = [f"and {len(running) - MOST_SHOWN} more"] if len(running) > MOST_SHOWN else []
        return Group(table, *more, self.text())

    def _now_running(self) -> list[Running]:
        """All at once: the panel is drawn by a thread of its own."""
        return list(self._running.values())

    def text(self) -> str:
        """The whole study in a line."""
        parts = [f"{self._done_before + self.done}/{self._done_before + self._missing} runs"]
        parts.append(f"{self.running} running")
        if self.failed:
            parts.append(f"{self.failed} failed")
        if self._figures:
            parts.append(self._in_words(self._figures))
        now = time.monotonic()
        running = [(each.job, now - each.since) for each in self._now_running()]
        left = self._time_left.of_all(running, max(1, self._most_at_once))
        if left:
            parts.append(f"{left} {_duration(left.seconds)} left")
        return ", ".join(parts) + f" ({_duration(now - self._start)})"


def _differing(trials: Sequence[Trial]) -> list[str]:
    """The settings that tell trials apart, but for those that every name has."""
    configs = {trial.config.hash(): trial.config for trial in trials}
    found = differing([config.canonical() for config in configs.values()])
    return [key for key in found if key not in ("method", "dataset")]


def _name(trial: Trial, settings: Mapping[str, Any]) -> str:
    seeds = f"seeds {trial.seeds[0]}-{trial.seeds[-1]}" if len(trial.seeds) > 1 else f"seed {trial.seeds[0]}"
    values = "".join(f", {key} {_readable(value)}" for key, value in settings.items())
    return f"{trial.config.method} on {trial.config.dataset}{values}, {seeds}"


def _readable(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _duration(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))
