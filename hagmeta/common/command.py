"""What every command line of the project does alike: options that name what is wrong, errors in one line."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from hagmeta.common.errors import UserError, choose, shown

COMMANDS = {  # what an installation puts on the path, and how a checkout calls the same program
    "hagmeta": "python -m hagmeta",
    "hagmeta-study": "python study/launch.py",
    "hagmeta-report": "python -m analysis",
}


def as_typed(command: str) -> str:
    """Return how to call one of ``COMMANDS``: installed or from a checkout, as this program was called."""
    return command if Path(sys.argv[0]).stem in COMMANDS else COMMANDS[command]


class Parser(argparse.ArgumentParser):
    """Raises a UserError instead of leaving, and offers the nearest name for an unknown option."""

    def error(self, message: str) -> Any:
        raise UserError(f"{message} (see {self.prog} --help)")

    def options(self, arguments: Sequence[str] | None) -> argparse.Namespace:
        """Parse; an unknown option is named before anything that it might have displaced."""
        options, unknown = self.parse_known_args(arguments)
        known = [name for action in self._actions for name in action.option_strings]
        for text in unknown:
            choose("option", text.partition("=")[0], known)
        return options


def show_error(error: UserError) -> None:
    """One line on standard error, to the letter."""
    line = " ".join(f"error: {error}".split())
    console = Console(stderr=True, highlight=False)
    console.print(line, style="bold red", markup=False, emoji=False, soft_wrap=True)


def parse_seeds(text: str) -> list[int]:
    """``10`` is the first ten seeds, ``3-5`` three of them, ``1,4,7`` those; without repetition."""
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
            f"seeds {shown(text)}: give a count (10), a range (0-9; 0-0 is one seed) or a list (1,4,7)."
        ) from None
    return seeds


def parse_settings(texts: Sequence[str]) -> dict[str, str]:
    """``KEY=VALUE`` texts of a command line; what they mean is for RunConfig to say."""
    settings: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals:
            raise UserError(f"--set {shown(text)} is not KEY=VALUE.")
        if key in settings:
            raise UserError(f"--set {key} is given twice: {settings[key]} and {value}.")
        settings[key] = value
    return settings
