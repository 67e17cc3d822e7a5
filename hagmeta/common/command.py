"""Shared parts of the command lines: the parser, one-line errors, and the syntax of seeds and settings."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from hagmeta.common.errors import UserError, choose, shown

COMMANDS = {  # installed command: the same program in a checkout
    "hagmeta": "python -m hagmeta",
    "hagmeta-study": "python study/launch.py",
    "hagmeta-report": "python -m analysis",
}


def as_typed(command: str) -> str:
    """Return how to call ``command`` in the same way as this program: installed, or in a checkout."""
    return command if Path(sys.argv[0]).stem in COMMANDS else COMMANDS[command]


class Parser(argparse.ArgumentParser):
    """An argument parser that raises UserError, and suggests the nearest name for an unknown option."""

    def error(self, message: str) -> Any:
        raise UserError(f"{message} (see {self.prog} --help)")

    def add_force(self) -> None:
        """Add the option that allows an output to replace any file; see `hagmeta.common.files.outputs`."""
        text = "replace existing files even if they are inputs or of another kind"
        self.add_argument("--force", action="store_true", help=text)

    def options(self, arguments: Sequence[str] | None) -> argparse.Namespace:
        """Parse ``arguments``. Unknown options are reported first, since they can cause other errors."""
        options, unknown = self.parse_known_args(arguments)
        known = [name for action in self._actions for name in action.option_strings]
        for text in unknown:
            check_no_value(text)
            choose("option", text.partition("=")[0], known)
        return options


def check_no_value(text: str) -> None:
    """Raise a UserError if a word is a setting without its own --set, or a second word of --seeds."""
    if "=" in text and not text.startswith("-"):
        raise UserError(f"unexpected {shown(text)}. Repeat --set for each setting: --set {text}")
    if text[:1].isdigit():
        raise UserError(
            f"unexpected {shown(text)}. A list of seeds is one word: --seeds 20-21 or --seeds 20,21"
        )


def plain_console() -> Console:
    """Return a console that prints text unchanged, without markup or emoji."""
    return Console(highlight=False, markup=False, emoji=False)


def show_error(error: UserError) -> None:
    """Print ``error`` on one line of standard error, without interpreting markup."""
    line = " ".join(f"error: {error}".split())
    console = Console(stderr=True, highlight=False)
    console.print(line, style="bold red", markup=False, emoji=False, soft_wrap=True)


def parse_seeds(text: str) -> list[int]:
    """Parse seeds: a count ``10`` (seeds 0 to 9), a range ``3-5`` or a list ``1,4,7``, without duplicates."""
    given = text.strip()
    seeds: list[int] = []
    try:
        parts = [f"0-{int(given) - 1}"] if given.isdigit() else given.split(",")
        for part in parts:
            first, dash, last = part.partition("-")
            start, stop = int(first), int(last if dash else first) + 1
            if not 0 <= start < stop <= start + 10_000:
                raise ValueError
            seeds += range(start, stop)
        if len(set(seeds)) != len(seeds):
            raise ValueError
    except ValueError:
        raise UserError(
            f"seeds {shown(text)}: expected a count (10), a range (0-9; 0-0 is one seed) or a list (1,4,7)."
        ) from None
    return seeds


def parse_settings(texts: Sequence[str]) -> dict[str, str]:
    """Parse ``KEY=VALUE`` arguments. RunConfig interprets the values."""
    settings: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals:
            raise UserError(f"--set {shown(text)} is not KEY=VALUE.")
        if key in settings:
            raise UserError(f"--set {key} is given twice: {settings[key]} and {value}; expected one value.")
        settings[key] = value
    return settings
