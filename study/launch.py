"""Run a study with Ray Tune: plan the runs of a space and run the missing ones.

examples:
  see what a study would run, then run its small version
    python study/launch.py --space ablation --quick --dry-run
    python study/launch.py --space ablation --quick
  compare two methods on an embedded graph, or on your own
    python study/launch.py --methods sgc-lda,hag-meta --dataset debian
    python study/launch.py --methods sgc-lda,hag-meta --dataset my.npz
  change a setting and the seeds
    python study/launch.py --space comparison --set hidden=32 --seeds 3

Repeat a command to continue a study that was stopped: finished runs are kept.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).resolve().parent.parent
if __name__ == "__main__":
    sys.path[0] = str(ROOT)  # instead of study/: this file is run as a script, from anywhere

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from hagmeta.common.command import plain_console, show_error
from hagmeta.common.errors import UserError
from study import early
from study.options import CommandLine, read_options
from study.running.errors import LaunchBroken
from study.running.signals import Stopped, stopped_by_signals

if TYPE_CHECKING:
    from study.space.spaces import Space

DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)
KEPT = "Finished runs are kept. Repeat the command to continue."


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line ``arguments`` (default: ``sys.argv``) and return the exit status."""
    console = plain_console()
    try:
        with stopped_by_signals():
            return _run(arguments, console)
    except BrokenPipeError:  # the reader of a pipe, such as head, has ended
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else the exit would fail again
        return 1
    except Stopped as stopped:
        with suppress(OSError):  # the terminal may be gone
            console.print(f"Stopped by {stopped}. {KEPT}", style="bold red")
        return stopped.status


def _run(arguments: Sequence[str] | None, console: Console) -> int:
    """Run the command line and report errors; a Ray that has started early ends after the message."""
    try:
        typed = read_options(arguments, __doc__)
        if typed.lists:
            _list(console)
            return 0
        if typed.status is not None:
            _show_status(Path(typed.status), console)
            return 0
        return _launch(typed, console)
    except UserError as error:
        show_error(error)
        return 2
    except LaunchBroken as error:
        show_error(UserError(f"{error} {KEPT}"))
        return 1
    except Exception as error:
        reason = None if isinstance(error, BrokenPipeError) else _disk_error(error)
        if reason is None:
            raise
        where = f"check the disks of {typed.options.results} and $HAGMETA_HOME"
        show_error(UserError(f"{reason}; {where}. {KEPT}"))
        return 1
    finally:
        early.end_ray()


def _launch(typed: CommandLine, console: Console) -> int:
    if "torch" not in sys.modules:  # otherwise there is nothing to do while Ray starts
        early.begin_ray_for(typed)
    with early.collector_paused():
        from study.api import launch  # imports torch, which takes seconds

    return launch(typed.space, typed.options, console=console).status


def _disk_error(error: BaseException | None) -> str | None:
    """Return the message of the disk error behind `error`, or None; Tune and MLflow wrap such errors."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in DISK_ERRORS:
            return error.strerror
        if isinstance(error, sqlite3.OperationalError) and "disk" in str(error):
            return str(error)
        error = error.__cause__ or error.__context__
    return None


def _list(console: Console) -> None:
    """Print each search space with its description, its size and a rough time."""
    with early.collector_paused():
        from study.space import spaces as spaces

    for name in spaces.names():
        whole, quick = spaces.read(name), spaces.read(name, quick=True)
        console.print(name, style="bold")
        for text in (whole.description, f"{_size(whole)}; --quick: {_size(quick)}"):
            console.print(Padding(Text(text), (0, 0, 0, 4)))
    console.print("Times are rough estimates for one CPU core.")


def _show_status(folder: Path, console: Console) -> None:
    """Print what the launch in a folder is doing or, if there is none, what is finished."""
    from study.store.store import Store
    from study.terminal.progress import show_state

    store = Store(folder)
    if not store.runs.is_dir():
        raise UserError(f"--status {folder}: no study; expected the folder of one, such as results/ablation.")
    if store.is_in_use():
        console.print(show_state(store.status) or "a launch is running; no trial has started")
        return
    scan, launches = store.scan(set_aside=False), store.asked()
    done = scan.done
    planned = {(config, seed) for each in launches for config in each["configs"] for seed in each["seeds"]}
    console.print(f"no launch is running; {len(planned & done)} of {len(planned)} planned runs are finished")
    if (not launches or planned - done - scan.diverged) and store.nothing_since_launch():
        console.print("the last launch ended before any trial was finished")
    if planned - done:
        console.print(f"continue with: {launches[0]['command']}", soft_wrap=True)


def _size(space: Space) -> str:
    """Return the number of runs or samples of `space` and a rough time."""
    from hagmeta.common.durations import in_words
    from study.planning.cost import total_seconds
    from study.terminal.naming import counted

    seconds, seeds = total_seconds(space.resolved, len(space.seeds)), counted(len(space.seeds), "seed")
    if space.search:
        samples, searches = space.search.samples, len(space.configs)
        many = f"{searches} searches x " if searches > 1 else ""
        return f"{many}{counted(samples, 'sample')} x {seeds}, about {in_words(seconds * samples)}"
    return f"{counted(len(space.configs) * len(space.seeds), 'run')}, about {in_words(seconds)}"


if __name__ == "__main__":
    sys.exit(main())
