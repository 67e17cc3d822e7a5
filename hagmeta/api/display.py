"""Progress and result tables, for terminals, notebooks and scripts."""

from __future__ import annotations

import html
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from importlib import import_module
from itertools import pairwise

import numpy as np
from rich import progress as bars
from rich.console import Console
from rich.table import Table

from hagmeta.common.durations import in_words
from hagmeta.common.interval import student
from hagmeta.common.plugins.identity import short_name, without_hash
from hagmeta.common.records.records import Record, opened
from hagmeta.common.transductive import marks
from hagmeta.packs.pack import Progress

FEWEST_FOR_INTERVAL = 3  # seeds
# In the order in which they run.
PHASES = {"pre-train": "pre-train", "meta-train": "meta-train", "validation": "validate", "test": "sessions"}
STOP_EARLY = ("pre-train", "meta-train")  # phases that may end before their last step
BETWEEN = 29.0  # seconds between lines, looked at every second: there is a line at least every 30 seconds
WARM_UP, LONG = 5.0, 60.0  # seconds until a first estimate, and of a run that has one


def progress_display(
    console: Console, title: str, steps: Mapping[str, int], times: int = 1
) -> AbstractContextManager[Progress]:
    """Return what shows the progress of a run: bars, or lines if there is no terminal and no notebook.

    Args:
        console: The console to print on.
        title: What runs.
        steps: The number of gradient steps by phase, at most.
        times: How often all phases run, one time after the other.
    """
    if console.is_jupyter:
        return NotebookProgress()
    return ProgressDisplay(console) if console.is_terminal else ProgressLines(console, title, steps, times)


class ProgressDisplay:
    """Show one progress bar per phase in a terminal."""

    def __init__(self, console: Console) -> None:
        self._tasks: dict[str, bars.TaskID] = {}
        self._progress = bars.Progress(
            bars.TextColumn("{task.description:10}"),
            bars.BarColumn(),
            bars.TextColumn("{task.completed:.0f}/{task.total:.0f}"),
            bars.TextColumn("{task.fields[values]}"),
            bars.TimeElapsedColumn(),
            bars.TimeRemainingColumn(),
            console=console,
        )

    def __enter__(self) -> ProgressDisplay:
        self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.stop()

    def __call__(self, phase: str, done: int, total: int, values: dict[str, float]) -> None:
        text = " ".join(f"{name} {100 * value:.1f}" for name, value in values.items())
        if phase not in self._tasks:
            for finished in self._tasks.values():  # early stopping leaves a bar incomplete
                self._progress.update(finished, total=self._progress.tasks[finished].completed)
            self._tasks[phase] = self._progress.add_task(PHASES[phase], total=total, values="")
        self._progress.update(self._tasks[phase], completed=done, total=total, values=text)


class NotebookProgress:
    """Show one progress bar for the current phase in the output of a notebook."""

    def __enter__(self) -> NotebookProgress:
        self._ipython = import_module("IPython.display")
        self._area = self._ipython.display(self._ipython.HTML(""), display_id=True)
        return self

    def __exit__(self, *error: object) -> None:
        self._area.update({"text/html": "", "text/plain": ""}, raw=True)

    def __call__(self, phase: str, done: int, total: int, values: dict[str, float]) -> None:
        """Show that ``done`` of ``total`` steps of ``phase`` are done, with the current ``values``."""
        found = " ".join(f"{name} {100 * value:.1f}" for name, value in values.items())
        text = html.escape(f"{PHASES[phase]} {done}/{total} {found}")
        self._area.update(self._ipython.HTML(f"<progress value={done} max={total}></progress> {text}"))


class ProgressLines:
    """Print how much time is left, at least every 30 seconds.

    A run of a minute or more also gets a line when its first steps are measured. The phases report rarely, so
    a thread prints the lines.
    """

    def __init__(self, console: Console, title: str, steps: Mapping[str, int], times: int = 1) -> None:
        self._console, self._title, self._left = console, title, TimeLeft(steps, times)
        self._printed, self._estimated = self._left.started, False
        self._ended, self._lock = threading.Event(), threading.Lock()
        self._thread = threading.Thread(target=self._print_lines, daemon=True)

    def __enter__(self) -> ProgressLines:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()

    def __call__(self, phase: str, done: int, total: int, values: dict[str, float]) -> None:
        with self._lock:
            self._left.update(phase, done, total, time.monotonic())

    def _print_lines(self) -> None:
        while not self._ended.wait(1):
            with self._lock:
                line = self.line(time.monotonic())
            if line:
                self._console.print(line, soft_wrap=True)

    def line(self, now: float) -> str:
        """Return the line to print at this time, or nothing."""
        elapsed, seconds = now - self._left.started, self._left.seconds(now)
        about = f"{'at most ' * self._left.may_stop_early}about"
        if not self._estimated and seconds is not None and self._left.measured and elapsed >= WARM_UP:
            self._estimated = True
            if elapsed + seconds >= LONG:
                self._printed = now
                return f"{self._title}: takes {about} {in_words(elapsed + seconds)}"
        if now - self._printed < BETWEEN:
            return ""
        self._printed = now
        if seconds is None:
            return f"{self._title}: running for {in_words(elapsed)}, no step is measured yet"
        return f"{self._title}: {self._left.place}, {about} {in_words(seconds)} left"


class TimeLeft:
    """Estimate the seconds that a run still takes, from how long its steps took.

    A step of a later phase is taken to be as long as a step of this phase. Training may stop early, so the
    estimate is an upper limit then. It is rough.

    Attributes:
        started: When the run began.
        place: The phase and its steps, in words.
        measured: Whether steps were measured without the preparations before them.
        may_stop_early: Whether the phase may end before its last step.
    """

    def __init__(self, steps: Mapping[str, int], times: int = 1) -> None:
        self._steps, self._times = steps, times
        self.started = time.monotonic()
        self.place, self.measured, self.may_stop_early = "", False, False
        self._begun = [self.started]  # when each of the times began
        self._phase, self._to_do = -1, 0.0  # steps of this phase and of later ones
        self._first = self._last = (self.started, 0.0)  # two moments, and the steps of the phase at them

    def update(self, phase: str, done: int, total: int, now: float) -> None:
        """Take note that ``done`` of ``total`` steps of a phase are done."""
        number, from_zero = list(PHASES).index(phase), phase not in STOP_EARLY  # sessions count from 0
        steps = self._steps.get(phase) or max(total + from_zero, 1)
        reached = steps * (done + from_zero) / (total + from_zero)
        again = number < self._phase or (number == self._phase and reached <= self._last[1])
        if again:
            self._begun.append(self._last[0])
        if again or number > self._phase:
            self.measured = self._phase >= 0
            self._first = (self._last[0], 0.0)
        elif not self.measured:  # the first steps include preparations
            self.measured, self._first = True, self._last
        self._phase, self._last = number, (now, reached)
        later = sum(self._steps.get(each, 0) for each in list(PHASES)[number + 1 :])
        self._to_do = steps - reached + later
        self.place, self.may_stop_early = f"{PHASES[phase]} {done}/{total}", not from_zero

    def seconds(self, now: float) -> float | None:
        """Return an estimate of the seconds left, or None before the first step."""
        if self._phase < 0:
            return None
        (start, before), (last, reached) = self._first, self._last
        left = max(0.0, self._to_do * (last - start) / (reached - before) - (now - last))
        ended = [end - begin for begin, end in pairwise(self._begun)]
        each = sum(ended) / len(ended) if ended else now + left - self.started
        return left + max(0, self._times - len(self._begun)) * each


def mean_and_interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean and the half-width of its 95 % interval (Student's t); NaN for a single value."""
    array = np.asarray(values, dtype=float)
    if len(array) < 2:
        return float(array.mean()), float("nan")
    return float(array.mean()), float(student(len(array)) * array.std(ddof=1) / np.sqrt(len(array)))


def percent(values: Sequence[float]) -> str:
    """Return fractions as "mean ± interval" in percent, without an interval below three values.

    With two values the interval is too wide to be useful.
    """
    mean, half = mean_and_interval([100 * value for value in values])
    return f"{mean:.1f}" if len(values) < FEWEST_FOR_INTERVAL else f"{mean:.1f} ± {half:.1f}"


def _seeds(count: int) -> str:
    if count < FEWEST_FOR_INTERVAL:
        return "1 seed" if count == 1 else f"mean of {count} seeds"
    return f"{count} seeds, mean ± 95 % interval"


def score(record: Record) -> list[float]:
    """Return macro accuracy by session."""
    return record["macro_accuracy"]


def transductive(record: Record) -> list[str]:
    """Return the marks of a run whose predictions depend on unlabelled nodes."""
    return marks(record["config"], record["traits"].get("transductive", ""))


def sessions_table(records: Sequence[Record]) -> Table:
    """Return a table of macro accuracy by session over seeds, with PD, the average and the run time."""
    first = records[0]
    config = first["config"]
    parts = [part for part in ("gpil", "nla", "tla") if part in config]
    toggles = " + ".join(part.upper() for part in parts if config[part])
    toggles = toggles or "no GPIL, NLA or TLA" * bool(parts)
    if config.get("instead_of_gpil", "nothing") != "nothing":
        toggles += f", {config['instead_of_gpil']} instead of GPIL"
    oracle = " (an oracle)" if first["oracle"] else ""
    marked = "".join(f", {mark}" for mark in transductive(first))
    name = f"{without_hash(config['method'])}{oracle}{marked}" + "," * bool(marked)
    leak = " (leaks)" if first["leaks"] else ""
    seconds = sum(sum(record["seconds"].values()) for record in records)
    trained = first.get("trained_parameters")  # older records have none
    table = Table(
        title=f"{name} on {short_name(config['dataset'])}, {config['n_way']}-way "
        f"{config['k_shot']}-shot, {config['protocol']}{leak}" + (f"; {toggles}" if toggles else ""),
        caption=f"accuracy in percent, classes weighted equally; {_seeds(len(records))}; "
        f"total time {seconds:.0f} s on {first['environment']['device']}"
        + (f"; {trained:,} trained parameters" if trained is not None else ""),
    )
    for column in ("session", "all classes", "base", "novel", "new"):
        table.add_column(column, justify="right")
    keys = ("macro_accuracy", "macro_base_accuracy", "macro_novel_accuracy", "new_accuracy")
    for session in range(len(first["accuracy"])):
        columns = [[opened(record)[key][session] for record in records] for key in keys]
        table.add_row(str(session), *("" if None in column else percent(column) for column in columns))
    table.add_section()
    curves = [score(record) for record in records]
    table.add_row("PD", percent([curve[0] - curve[-1] for curve in curves]), "", "", "")
    table.add_row("average", percent([sum(curve) / len(curve) for curve in curves]), "", "", "")
    return table
