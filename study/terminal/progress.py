"""Show the progress of a study: a live panel on a terminal, plain lines elsewhere, and a file for others."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

from hagmeta.common.files.files import written_whole
from hagmeta.common.records.records import Record
from hagmeta.config.run_config import RunConfig
from study.planning.cost import TimeLeft, counts
from study.planning.plan import Trial
from study.terminal.naming import names_of, seeds_text, settings_text

SECONDS_BETWEEN_WRITES = 5.0  # of the file
SECONDS_BETWEEN_LINES = 60.0  # without a terminal
MOST_SHOWN = 12  # running trials


def last_session(accuracies: list[float]) -> str:
    """Return the mean macro accuracy of the finished runs of a study at the end of their streams."""
    return f"mean macro accuracy in the last session {100 * sum(accuracies) / len(accuracies):.1f} %"


def best_validation(objectives: list[float]) -> str:
    """Return the best validation of a search so far; a search does not look at test streams."""
    return f"best validation {100 * max(objectives):.1f} %"


def average_validation(objectives: list[float]) -> str:
    """Return the mean validation of several searches, whose objectives cannot be compared."""
    return f"mean validation {100 * sum(objectives) / len(objectives):.1f} %"


@dataclass
class Running:
    """A running trial and its last report."""

    trial: Trial
    runs: Counter[RunConfig]  # for the time left
    name: str
    since: float
    report: str = "starting"


class StudyProgress:
    """Shows how many runs are done, running and failed, the time left, and the running trials."""

    def __init__(
        self,
        console: Console,
        trials: Sequence[Trial],
        done_before: int,
        in_words: Callable[[list[float]], str] = last_session,
        *,
        time_left: TimeLeft | None = None,
        file: Path | None = None,
    ) -> None:
        """Prepare the display; as a context manager it draws the live panel and writes the file.

        Args:
            console: Where to print.
            trials: The trials to run.
            done_before: The number of runs that earlier launches have finished.
            in_words: Summarises the figures of all finished runs.
            time_left: What earlier launches have measured.
            file: Where to write the state for other terminals; see `read_state`.
        """
        self._console, self._in_words, self._file = console, in_words, file
        self._done_before, self._waiting = done_before, counts(trials)
        self._missing = sum(self._waiting.values())
        self._running: dict[str, Running] = {}
        self._most_at_once = 0
        self._time_left = time_left or TimeLeft()
        self._names = names_of(self._waiting)
        self._start = self._printed = time.monotonic()
        self._figures: list[float] = []
        self.done = self.failed = 0
        self._live = Live(console=console, refresh_per_second=1, transient=True, get_renderable=self._panel)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> StudyProgress:
        self._thread.start()
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._live.stop()
        if self._file:
            self._file.unlink(missing_ok=True)

    @property
    def running(self) -> int:
        return sum(len(each.trial.members) for each in self._now_running())

    def started(
        self, key: str, trial: Trial, values: Mapping[str, Any] | None = None, unit: RunConfig | None = None
    ) -> None:
        """Count a trial as running.

        Args:
            key: Identifies the trial in later calls.
            trial: What runs.
            values: What to show of its settings; by default, those in which trials differ.
            unit: The planned configuration, if this one was not planned.
        """
        runs = counts([trial]) if unit is None else Counter({unit: len(trial.members)})
        self._waiting = self._waiting - runs  # a new one: another thread reads it
        self._running[key] = Running(trial, runs, self._name(trial, values), time.monotonic())
        self._most_at_once = max(self._most_at_once, len(self._running))

    def _name(self, trial: Trial, values: Mapping[str, Any] | None = None) -> str:
        settings = [config.canonical() for config in trial.configs]
        if values:
            parts = [self._names.where(settings[0]), settings_text(values), seeds_text(trial.seeds)]
        else:
            parts = self._names.of(settings, trial.seeds)
        return ", ".join(parts)

    def name(self, key: str, trial: Trial | None = None) -> str:
        """Return the name of a trial with its method, dataset and seeds."""
        running = self._running.get(key)
        return running.name if running else self._name(trial) if trial else key

    def goes_on(self, key: str, phase: str, done: int, total: int, values: Mapping[str, float]) -> None:
        """Show that a trial has finished `done` of `total` steps of a phase, and the values found in it."""
        if key in self._running:
            found = "".join(f", {100 * value:.1f} %" for value in values.values())
            self._running[key].report = f"{phase} {done}/{total}{found}"

    def waits(self, key: str, other: str | None) -> None:
        """Show that a trial waits for an encoder that another one trains."""
        if key in self._running:
            whose = self.name(other) if other else "another trial"
            self._running[key].report = f"waiting for the encoder of {whose}"

    def stopped(self, key: str) -> None:
        """Count a trial as interrupted; its runs will start again."""
        if ended := self._running.pop(key, None):
            self._waiting = self._waiting + ended.runs

    def finished(
        self, key: str, records: Sequence[Record] = (), failed: int = 0, figures: Sequence[float] = ()
    ) -> None:
        """Count a trial as finished. A second call does nothing.

        Args:
            key: Identifies the trial.
            records: The records of its runs.
            failed: How many of its runs have failed.
            figures: What the summary shows of its runs.
        """
        if key not in self._running:
            return
        ended = self._running.pop(key)
        for record in records:
            self._time_left.learn(record)
        self.done += len(ended.trial.members) - failed
        self.failed += failed
        self._figures += figures
        self._show()

    def finished_before(self, config: RunConfig, times: int = 1) -> None:
        """Count runs as finished that did not run, because the store has their records."""
        self._waiting = self._waiting - Counter({config: times})
        self.done += times
        self._show()

    def found(self, figure: float) -> None:
        """Add a figure to the summary; the next line shows it."""
        self._figures.append(figure)

    def has_failed(self, key: str) -> None:
        """Count the runs of a trial as failed."""
        if ended := self._running.pop(key, None):
            self.failed += len(ended.trial.members)
            self._show()

    def failed_before(self, config: RunConfig, times: int) -> None:
        """Count runs as failed that never start."""
        self._waiting = self._waiting - Counter({config: times})
        self.failed += times
        self._show()

    def say(self, text: str) -> None:
        """Print a note above the panel."""
        self._console.print(text, style="yellow", soft_wrap=True)

    def _show(self) -> None:
        if not self._console.is_terminal:  # a terminal has the live panel
            self._printed = time.monotonic()
            self._console.print(self.text(), soft_wrap=True)

    def _watch(self) -> None:
        """Write the file, and a line each minute if there is no terminal."""
        while not self._over.wait(SECONDS_BETWEEN_WRITES):
            self._write_state()
            if time.monotonic() - self._printed >= SECONDS_BETWEEN_LINES:
                self._show()

    def _write_state(self) -> None:
        if self._file is None:
            return
        state = {
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
            "summary": self.text(),
            "running": [[each.name, *self._state(each)] for each in self._now_running()],
        }
        with written_whole(self._file) as partial:
            partial.write_text(json.dumps(state))

    def _panel(self) -> RenderableType:
        return show([[each.name, *self._state(each)] for each in self._now_running()], self.text())

    def _state(self, each: Running) -> list[str]:
        """Return the phase of a trial, the time for which it has run, and the time left if it is known."""
        elapsed = time.monotonic() - each.since
        left = (self._time_left.of(each.runs) or 0.0) - elapsed
        return [each.report, _duration(elapsed), f"~{_duration(left)} left" if left > 0 else ""]

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
        running = [(each.runs, now - each.since) for each in self._now_running()]
        left = self._time_left.of_all(running, dict(self._waiting), max(1, self._most_at_once))
        if left:
            parts.append(f"{'at least' if left[1] else 'about'} {_duration(left[0])} left")
        return ", ".join(parts) + f" ({_duration(now - self._start)})"


def show(running: Sequence[Sequence[str]], summary: str) -> Text:
    """Return the running trials, in two lines each, and a summary.

    Args:
        running: The name, phase, elapsed time and time left of each trial.
        summary: The state of the whole study.
    """
    lines = [f"{name}\n    {', '.join(filter(None, state))}" for name, *state in running[:MOST_SHOWN]]
    more = [f"and {len(running) - MOST_SHOWN} more"] if len(running) > MOST_SHOWN else []
    return Text("\n".join([*lines, *more, summary]))


def show_state(file: Path) -> Text | None:
    """Return what a launch writes for other terminals, ready to print; None if there is nothing yet."""
    try:
        state = json.loads(file.read_bytes())
        age = datetime.now(UTC) - datetime.fromisoformat(state["time"])
        return show(state["running"], f"{state['summary']}, {_duration(age.total_seconds())} ago")
    except (OSError, ValueError, KeyError):
        return None


def _duration(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))
