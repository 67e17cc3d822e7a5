"""Name configurations in figures."""

from __future__ import annotations

from typing import Any

from analysis.frame import Panel
from analysis.labels import across, readable, slug

__all__ = ["across", "shown", "slug", "text"]
LONGEST = 70  # characters


def shown(panel: Panel) -> dict[str, str]:
    """Return short names for the labels of `panel`, without settings that all of them share."""
    first = panel.runs.drop_duplicates("label")
    names = dict(zip(first["label"], across(first, panel.varied(), panel.scopes), strict=True))
    if len(set(names.values())) < len(names):
        return {label: label for label in panel.labels}
    shorter = {label: _cut(min(name, label, key=len)) for label, name in names.items()}
    return shorter if len(set(shorter.values())) == len(names) else names


def _cut(name: str) -> str:
    """Return the first settings of a long list, and how many more there are."""
    parts = name.split(", ")
    if len(name) <= LONGEST or len(parts) < 4:
        return name
    return f"{', '.join(parts[:2])} and {len(parts) - 2} more changes"


def text(value: Any) -> str:
    """Return a setting's value as text for an axis."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:.3g}" if isinstance(value, float) else readable(value)
