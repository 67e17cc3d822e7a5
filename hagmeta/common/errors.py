"""The error class for invalid input. Commands print it on one line and exit with status 2."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

MOST_SHOWN = 100  # characters of a value in an error message
MOST_LISTED = 60  # choices in a message that suggests one of them


class UserError(ValueError):
    """Invalid input. The message says what was given, what was expected and what to do."""


class Diverged(UserError):
    """The loss or the scores of some runs are not finite. These runs have no result.

    Attributes:
        failures: Why each of them failed, by its position among all runs.
        finished: The other runs: a `Result` from `hagmeta.run`, a list of outputs from
            `hagmeta.engine.run`. None if there are no other runs.
    """

    def __init__(self, failures: Mapping[int, str], finished: Any = None) -> None:
        self.failures, self.finished = dict(failures), finished
        reasons = "; ".join(dict.fromkeys(self.failures[place] for place in sorted(self.failures)))
        super().__init__(f"{reasons}. Use smaller learning rates or fewer steps.")


def shown(value: object) -> str:
    """Return the repr of ``value`` on one line for an error message, shortened if it is long."""
    try:
        text = repr(value)
    except ValueError:  # Python does not print integers of more than 4,300 digits
        return "a value of thousands of digits"
    text = " ".join(text.splitlines())
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}..."


def choose(kind: str, given: str, choices: Iterable[str]) -> str:
    """Return ``given`` if it is one of ``choices``.

    Raises:
        UserError: It is not. The message lists the choices and suggests the nearest one. If there are many
            choices, it lists only those that are near.
    """
    names = sorted(choices)
    if given in names:
        return given
    given = given if isinstance(given, str) else shown(given)  # YAML reads some keys as numbers or booleans
    near = difflib.get_close_matches(given[: 2 * MOST_SHOWN], names, n=5)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    valid = f"Valid: {', '.join(names)}."
    if near and len(names) > MOST_LISTED:
        valid = f"Nearest of {len(names)} valid names: {', '.join(near)}."
    raise UserError(f"unknown {kind} {shown(given)}.{hint} {valid}")
