"""What is seen of a study while it runs: a live panel on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import timedelta

from rich.console import Console
from rich.live import Live

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


class StudyProgress:
    """Runs done, running and failed, time left, and what the finished ones reached so far."""

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
        self._running: dict[str, tuple[Trial, float]] = {}  # and when it started
        self._most_at_once = 0
        self._foreseen = sum(map(trial_seconds, trials))  # for trials that have not ended
        self._ended_foreseen = self._ended_seconds = 0.0
        self._start = time.monotonic()
        self._figures: list[float] = []
        self.done = self.failed = 0
        self._live = Live(console=console, refresh_per_second=2, transient=True)

    def __enter__(self) -> StudyProgress:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    @property
    def running(self) -> int:
        return sum(len(trial.seeds) for trial, _ in self._running.values())

    def started(self, key: str, trial: Trial) -> None:
        """``key`` tells trials apart."""
        self._running[key] = trial, time.monotonic()
        self._most_at_once = max(self._most_at_once, len(self._running))
        self._show(line=False)

    def stopped(self, key: str) -> None:
        """Interrupted: it will be started again."""
        self._running.pop(key, None)
        self._show(line=False)

    def finished(self, key: str, figures: Sequence[float] = ()) -> None:
        """Its runs are in the store, with these figures. Nothing happens when it is said again."""
        if key not in self._running:
            return
        trial, start = self._running.pop(key)
        self._foreseen -= trial_seconds(trial)
        self._ended_foreseen += trial_seconds(trial)
        self._ended_seconds += time.monotonic() - start
        self.done += len(trial.seeds)
        self._figures += figures
        self._show(line=True)

    def was_there(self, trial: Trial, figures: Sequence[float]) -> None:
        """Its runs need not run: they were in the store already."""
        self._foreseen -= trial_seconds(trial)
        self.done += len(trial.seeds)
        self._figures += figures
        self._show(line=True)

    def has_failed(self, key: str, trial: Trial) -> None:
        """It may never have started."""
        trial, _ = self._running.pop(key, (trial, 0.0))
        self._foreseen -= trial_seconds(trial)
        self.failed += len(trial.seeds)
        self._show(line=True)

    def say(self, text: str) -> None:
        self._console.print(text, style="yellow", markup=False)

    def _show(self, *, line: bool) -> None:
        if self._console.is_terminal:
            self._live.update(self._text())
        elif line:
            self._console.print(self._text(), soft_wrap=True)

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
        now, pace = time.monotonic(), self._ended_seconds / self._ended_foreseen
        foreseen = {key: trial_seconds(trial) for key, (trial, _) in self._running.items()}
        waiting = pace * max(0.0, self._foreseen - sum(foreseen.values()))
        left = [max(0.0, pace * foreseen[key] - (now - start)) for key, (_, start) in self._running.items()]
        return max([(waiting + sum(left)) / self._most_at_once, *left])


def _duration(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))
