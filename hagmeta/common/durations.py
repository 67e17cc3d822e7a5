"""Durations in words."""

from __future__ import annotations


def in_words(seconds: float) -> str:
    """Return a duration with one or two digits, such as ``3 hours``."""
    for unit, size in (("day", 86400), ("hour", 3600), ("minute", 60), ("second", 1)):
        if seconds >= 1.5 * size or unit == "second":
            count = f"{seconds / size:.0f}"
            return f"{count} {unit}{'' if count == '1' else 's'}"
    raise AssertionError
