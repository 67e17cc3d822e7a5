"""What every command line of the project does alike: options that name what is wrong, errors in one line."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from rich.console import Console

from hagmeta.common.errors import UserError, choose


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
