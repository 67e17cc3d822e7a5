"""Begin to start Ray before the imports and the data of a launch, which take as long as Ray itself."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from study.options import CommandLine, LaunchOptions

ROOT = Path(__file__).resolve().parent.parent
SPACES = ROOT / "search_spaces"
PLUGIN = ".py:"  # a reference to a file has it


def begin_ray_for(typed: CommandLine) -> None:
    """Begin to start Ray for a command line that will need it, as far as can be told without imports."""
    options, text, stem = typed.options, "", "comparison"
    if typed.space is not None:
        file = SPACES / f"{typed.space}.yaml"
        try:
            file = file if file.is_file() else Path(typed.space)
            text, stem = file.read_text(errors="replace"), file.stem
        except (OSError, ValueError):  # reported when the space is read
            return
    if PLUGIN not in text and not options.mps:  # the processes of Ray need an MPS that runs already
        begin_ray(options, (options.name or stem) + "-quick" * options.quick)


def begin_ray(options: LaunchOptions, study: str) -> None:
    """Begin to start Ray on this machine if some runs are missing for certain: the study has no records yet.

    Plug-ins need a Ray that knows them, so they are left to `study.execution.start_ray`.
    """
    elsewhere = options.address or "://" in options.results
    if options.dry_run or elsewhere or os.path.exists(Path(options.results) / study / "runs"):
        return
    if any(PLUGIN in text for text in (options.command, *options.methods, *options.metrics)):
        return
    from study.running import connection

    connection.begin_ray(ROOT, cpus=options.cpus_per_trial)


def use_token() -> None:
    """Let Ray use the token of a cluster if this machine has one; Ray reads this when it is imported."""
    path = Path(os.environ.get("RAY_AUTH_TOKEN_PATH", "~/.ray/auth_token")).expanduser()
    if "RAY_AUTH_TOKEN" in os.environ or path.is_file():
        os.environ.setdefault("RAY_AUTH_MODE", "token")


def end_ray() -> None:
    """Shut down the Ray of this launch, if there is one."""
    if "study.running.connection" in sys.modules:  # importing Ray takes a while
        from study.running import connection

        connection.end_ray()


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pause the garbage collector for imports: their objects stay, so looking at them only takes time."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.freeze()
