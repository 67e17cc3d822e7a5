"""Progress bars and result tables for the terminal and for notebooks."""

from __future__ import annotations

import html
from collections.abc import Sequence
from importlib import import_module
from types import TracebackType

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from hagmeta.common.identity import short_name, without_hash
from hagmeta.common.interval import student
from hagmeta.common.records import Record, opened
from hagmeta.common.transductive import marks

FEWEST_FOR_INTERVAL = 3  # seeds
PHASES = {"pre-train": "pre-train", "meta-train": "meta-train", "validation": "validate", "test": "sessions"}


class ProgressDisplay:
    """Show one progress bar per phase in a terminal, or one line per phase elsewhere."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._tasks: dict[str, TaskID] = {}
        self._progress = Progress(
            TextColumn("{task.description:10}"),
            BarColumn(),
            TextColumn("{task.completed:.0f}/{task.total:.0f}"),
            TextColumn("{task.fields[values]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
        )

    def __enter__(self) -> ProgressDisplay:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def __call__(self, phase: str, done: int, total: int, values: dict[str, float]) -> None:
        text = " ".join(f"{name} {100 * value:.1f}" for name, value in values.items())
        if phase not in self._tasks:
            for finished in self._tasks.values():  # early stopping leaves a bar incomplete
                self._progress.update(finished, total=self._progress.tasks[finished].completed)
            self._tasks[phase] = self._progress.add_task(PHASES[phase], total=total, values="")
            if not self._console.is_terminal:
                self._console.print(f"{PHASES[phase]} ...")
        self._progress.update(self._tasks[phase], completed=done, total=total, values=text)


class NotebookProgress:
    """Show one progress bar for the current phase in the output of a notebook."""

    def __enter__(self) -> NotebookProgress:
        self._ipython = import_module("IPython.display")
        self._area = self._ipython.display(self._ipython.HTML(""), display_id=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._area.update({"text/html": "", "text/plain": ""}, raw=True)

    def __call__(self, phase: str, done: int, total: int, values: dict[str, float]) -> None:
        """Show that ``done`` of ``total`` steps of ``phase`` are done, with the current ``values``."""
        found = " ".join(f"{name} {100 * value:.1f}" for name, value in values.items())
        text = html.escape(f"{PHASES[phase]} {done}/{total} {found}")
        self._area.update(self._ipython.HTML(f"<progress value={done} max={total}></progress> {text}"))


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
    """Return macro accuracy by session. Old records have only plain accuracy, which is returned instead."""
    curve: list[float] = record["macro_accuracy"] if "macro_accuracy" in record else record["accuracy"]
    return curve


def transductive(record: Record) -> list[str]:
    """Return the marks of a run whose predictions depend on unlabelled nodes."""
    return marks(record["config"], record.get("traits", {}).get("transductive", ""))


def sessions_table(records: Sequence[Record]) -> Table:
    """Return a table of macro accuracy by session over seeds, with PD, the average and the run time."""
    first = records[0]
    config = first["config"]
    parts = [part for part in ("gpil", "nla", "tla") if part in config]
    toggles = " ".join(f"{part.upper()} {'on' if config[part] else 'off'}" for part in parts)
    if config.get("instead_of_gpil", "nothing") != "nothing":
        toggles += f", {config['instead_of_gpil']} instead of GPIL"
    oracle = " (an oracle)" if first["oracle"] else ""
    marked = "".join(f", {mark}" for mark in transductive(first))
    name = f"{without_hash(config['method'])}{oracle}{marked}" + "," * bool(marked)
    leak = " (leaks)" if first["leaks"] else ""
    seconds = sum(sum(record["seconds"].values()) for record in records)
    table = Table(
        title=f"{name} on {short_name(config['dataset'])}, {config['n_way']}-way "
        f"{config['k_shot']}-shot, {config['protocol']}{leak}" + (f"; {toggles}" if toggles else ""),
        caption=f"accuracy in percent, classes weighted equally; {_seeds(len(records))}; "
        f"total time {seconds:.0f} s on {first['environment']['device']}",
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
