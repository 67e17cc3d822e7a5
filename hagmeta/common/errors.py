"""The one kind of error that is the user's to mend: shown as a single line, exit status 2."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

MOST_SHOWN = 100  # characters of a value in an error


class UserError(ValueError):
    """What was given, what was expected, what to do; shown without a traceback."""


def shown(value: object) -> str:
    """A value in an error: as Python writes it, and not too long."""
    try:
        text = repr(value)
    except ValueError:  # Python writes no whole number of more than 4,300 digits
        return "a value of thousands of digits"
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}..."


def choose(kind: str, given: str, choices: Iterable[str]) -> str:
    """Return ``given`` if it is one of ``choices``; otherwise say which there are and which is nearest."""
    names = sorted(choices)
    if given in names:
        return given
    given = given if isinstance(given, str) else shown(given)  # YAML reads some keys as other than text
    near = difflib.get_close_matches(given[: 2 * MOST_SHOWN], names, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise UserError(f"unknown {kind} {shown(given)}.{hint} Valid: {', '.join(names)}.")
