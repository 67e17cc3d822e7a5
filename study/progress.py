"""What is seen of a study while it runs: a live panel on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

import rich.box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table

from study.cost import trial_seconds
from study.plan import Trial


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
        self._foreseen = sum(map(trial_seconds, trials))  # for trials that have not ended
        self._ended_foreseen = self._ended_seconds = 0.0
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

    def started(self, key: str, trial: Trial) -> None:
        """``key`` tells trials apart."""
        self._running[key] = Running(trial, time.monotonic())
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
        trial = ended.trial
        self._foreseen -= trial_seconds(trial)
        self._ended_foreseen += trial_seconds(trial)
        self._ended_seconds += time.monotonic() - ended.since
        self.done += len(trial.seeds)
        self._figures += figures
        self._show()

    def was_there(self, trial: Trial, figures: Sequence[float]) -> None:
        """Its runs need not run: they were in the store already."""
        self._foreseen -= trial_seconds(trial)
        self.done += len(trial.seeds)
        self._figures += figures
        self._show()

    def has_failed(self, key: str, trial: Trial) -> None:
        """It may never have started."""
        if key in self._running:
            trial = self._running.pop(key).trial
        self._foreseen -= trial_seconds(trial)
        self.failed += len(trial.seeds)
        self._show()

    def say(self, text: str) -> None:
        self._console.print(text, style="yellow", soft_wrap=True)

    def _show(self) -> None:
        if not self._console.is_terminal:  # there the panel is drawn again every second
            self._console.print(self._text(), soft_wrap=True)

    def _panel(self) -> RenderableType:
        """The running trials, then what is said in a line."""
        running = self._now_running()
        if not running:
            return self._text()
        table = Table(box=rich.box.SIMPLE, padding=(0, 1, 0, 0))
        table.add_column("running", overflow="fold")
        for name in ("now", "for", "left"):
            table.add_column(name, no_wrap=True)
        for each in running[:MOST_SHOWN]:
            left = self._trial_left(each)
            table.add_row(
                _in_words(each.trial),
                each.told or "starts",
                _duration(time.monotonic() - each.since),
                "" if left is None else f"about {_duration(left)}",
            )
        more = [f"and {len(running) - MOST_SHOWN} more"] if len(running) > MOST_SHOWN else []
        return Group(table, *more, self._text())

    def _now_running(self) -> list[Running]:
        """All at once: the panel is drawn by a thread of its own."""
        return list(self._running.values())

    def _trial_left(self, each: Running) -> float | None:
        """Seconds, by what trials that have ended took beside what was foreseen."""
        if not self._ended_foreseen:
            return None
        pace = self._ended_seconds / self._ended_foreseen
        return max(0.0, pace * trial_seconds(each.trial) - (time.monotonic() - each.since))

    def _text(self) -> str:
        parts = [f"{self._done_before + self.done}/{self._done_before + self._missing} runs"]
        parts.append(f"{self.running} running")
        if self.failed:
            parts.append(f"{self.failed} failed")
        if self._figures:
            parts.append(self._in_words(self._figures))
        if self.done and self.done + self.failed < self._missing:
            parts.append(f"about {_duration(self.seconds_left())} left")
        return ", ".join(parts) + f" ({_duration(time.monotonic() - self._start)})"

    def seconds_left(self) -> float:
        """By how long trials took beside what was foreseen: the longest come first, so counting misleads."""
        pace = self._ended_seconds / self._ended_foreseen
        running = self._now_running()
        waiting = pace * max(0.0, self._foreseen - sum(trial_seconds(each.trial) for each in running))
        left = [self._trial_left(each) or 0.0 for each in running]
        return max([(waiting + sum(left)) / self._most_at_once, *left])


def _in_words(trial: Trial) -> str:
    seeds = f"seeds {trial.seeds[0]}-{trial.seeds[-1]}" if len(trial.seeds) > 1 else f"seed {trial.seeds[0]}"
    return f"{trial.config.method} on {trial.config.dataset}, {seeds} ({trial.config.hash()[:8]})"


def _duration(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))
