"""Launch a study: plan all runs of a search space, subtract the finished ones, run the rest.

python study/launch.py --space ablation --quick
python study/launch.py --methods sgc-lda,hag-meta --dataset debian
"""

from __future__ import annotations

import errno
import sqlite3
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if __name__ == "__main__":
    sys.path[0] = str(ROOT)  # instead of study/: this file is run as a script, from anywhere

from rich.console import Console

from hagmeta.common.command import show_error
from hagmeta.common.errors import UserError
from study import space as spaces
from study.api import launch, plain_console
from study.cost import in_words, total_seconds
from study.errors import LaunchBroken
from study.options import read_options
from study.signals import Stopped, stopped_by_signals

DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)
KEPT = "Finished runs are kept; the same command goes on from here."


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    console = plain_console()
    try:
        with stopped_by_signals():
            typed = read_options(arguments, __doc__)
            if typed.lists:
                _list(console)
                return 0
            return launch(typed.space, typed.options, console=console).status
    except UserError as error:
        show_error(error)
        return 2
    except Stopped as stopped:
        with suppress(OSError):  # the terminal may be gone
            console.print(f"stopped by {stopped}. {KEPT}", style="bold red")
        return stopped.status
    except LaunchBroken as error:
        show_error(UserError(f"{error} {KEPT}"))
        return 1
    except Exception as error:
        reason = _of_the_disk(error)
        if reason is None:
            raise
        show_error(UserError(f"{reason}: {typed.options.results} or $HAGMETA_HOME. {KEPT}"))
        return 1


def _of_the_disk(error: BaseException | None) -> str | None:
    """What the disk has to say, where it is behind an error: Tune and Optuna raise errors of their own."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in DISK_ERRORS:
            return error.strerror
        if isinstance(error, sqlite3.OperationalError) and "disk" in str(error):
            return str(error)
        error = error.__cause__ or error.__context__
    return None


def _list(console: Console) -> None:
    for name in spaces.names():
        whole, quick = spaces.read(name), spaces.read(name, quick=True)
        console.print(f"{name}: {whole.description}", style="bold")
        console.print(f"    {_size(whole)}; --quick: {_size(quick)}")
    console.print("Times are those of one CPU core, and rough.")


def _size(space: spaces.Space) -> str:
    seconds, seeds = total_seconds(space.resolved, len(space.seeds)), len(space.seeds)
    if space.search:
        samples, searches = space.search.samples, len(space.configs)
        many = f"{searches} searches x " if searches > 1 else ""
        return f"{many}{samples} samples x {seeds} seeds, {in_words(seconds * samples)}"
    return f"{len(space.configs) * seeds} runs, {in_words(seconds)}"


if __name__ == "__main__":
    sys.exit(main())
