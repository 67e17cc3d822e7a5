"""Options that several forms of `hagmeta-report` share."""

from __future__ import annotations

from collections.abc import Sequence

from hagmeta.common.command import Parser
from hagmeta.common.errors import UserError


def add_common_options(parser: Parser) -> None:
    """Add the options of every form."""
    add = parser.add_argument
    add("--metric", metavar="NAME", help="score for headlines, tests and figures (default: macro accuracy)")
    add(
        "--margin",
        type=float,
        default=1.0,
        metavar="POINTS",
        help="differences below POINTS count as equivalent (default: 1)",
    )
    add("--open", action="store_true", help="open the page in a browser")
    parser.add_force()


def add_report_options(parser: Parser) -> None:
    """Add the options of a report."""
    add = parser.add_argument
    add(
        "--where",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="use only runs with this setting; repeat it with the same KEY to allow several values",
    )
    add("--explore", action="store_true", help="also write explorer.html, a page to filter, hover and click")


def margin_of(points: float) -> float:
    """Return a margin in points as a share."""
    if not 0 < points < 100:
        raise UserError(f"--margin {points:g}: expected a number of points between 0 and 100.")
    return points / 100


def conditions(given: Sequence[str]) -> dict[str, list[str]]:
    """Return the values that are allowed for each setting."""
    found: dict[str, list[str]] = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not equals:
            raise UserError(f"--where {text!r}: expected KEY=VALUE, such as protocol=strict.")
        found.setdefault(key, []).append(value)
    return found
