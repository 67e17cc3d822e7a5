"""Compute means and intervals for figures, name configurations, and word what captions share."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import pandas as pd

from analysis.data.labels import across, readable, slug, transductive_words
from analysis.data.results import Panel
from hagmeta.common.interval import student

MOST_PANELS = 4  # figures of a kind; saving one takes up to a second
LEAKS = "the released protocol leaks"


def estimates(rows: pd.DataFrame, by: Sequence[str], column: str) -> pd.DataFrame:
    """Return `statistics.estimate` of each group in percent: columns mean, low, high and seeds."""
    groups = rows.groupby(list(by), sort=False)[column]
    table = groups.agg(mean="mean", deviation="std", seeds="count")
    half = table["seeds"].map(student) * table["deviation"] / np.sqrt(table["seeds"])
    percent = {"mean": table["mean"], "low": table["mean"] - half, "high": table["mean"] + half}
    return pd.DataFrame({key: 100 * value for key, value in percent.items()}).assign(seeds=table["seeds"])


def searched(panel: Panel) -> bool:
    """Return whether the runs of a panel are samples of a search, which are scored on validation nodes."""
    first = panel.runs.iloc[0]
    return bool(first["val_classes"] > 0 or first.get("scored_on") == "validation")


def richest(panels: list[Panel], most: int) -> list[Panel]:
    """Return at most `most` panels with most configurations, strict ones first.

    If no panel compares anything, return one. Samples of a search are used only if there is nothing else.
    """
    final = [panel for panel in panels if not searched(panel)] or panels
    ranked = sorted(final, key=lambda panel: (panel.leaks, -len(panel.labels), -len(panel.runs)))
    return [panel for panel in ranked if len(panel.labels) > 1][:most] or ranked[:1]


def last_rows(panel: Panel) -> pd.DataFrame:
    """Return the rows of the last session."""
    return panel.sessions[panel.sessions["session"] == panel.sessions["session"].max()]


def seeds_of(runs: pd.DataFrame, by: Collection[str] = ("config_hash",)) -> str:
    """Return the seeds per configuration: "10 seeds", or "8 to 10 seeds" if some are missing."""
    counts = runs.groupby(list(by))["seed"].nunique()
    few, many = int(counts.min()), int(counts.max())
    if few == many:
        return "one seed" if many == 1 else f"{many} seeds"
    return f"{few} to {many} seeds"


def band_words(runs: pd.DataFrame, drawn: str = "bands") -> str:
    """Return how means and intervals were computed, or why there are no intervals."""
    seeds = seeds_of(runs)
    if seeds == "one seed":
        return "There is one seed, so there are no intervals."
    return f"Values are means over {seeds} per configuration; {drawn} are Student's 95 % intervals."


def warning(panel: Panel) -> str:
    """Return warnings for captions: the released protocol leaks, or predictions are transductive."""
    leak = (
        "Under the released protocol, training sees the queries that it is later scored on. These are not"
        " accuracies on unseen nodes."
    )
    words = [*([leak] if panel.leaks else []), *transductive_words(panel.runs)]
    return "".join(f" {sentence}" for sentence in words)


def left_out(drawn: int, there: int, what: str = "tasks") -> str:
    """Return a sentence for captions if not everything is drawn."""
    if drawn >= there:
        return ""
    return f" Not drawn: {there - drawn} of {there} {what}."


def heading(panel: Panel) -> str:
    """Return the title of `panel`, with a warning if it leaks."""
    return with_leak(panel.title, panel.leaks)


def with_leak(words: str, leaks: bool) -> str:
    """Return a heading, with a warning if `leaks` is true."""
    return f"{words} ({LEAKS})" if leaks else words


def any_leak(runs: pd.DataFrame) -> bool:
    """Return whether some of the runs used a protocol that leaks."""
    return bool(runs["leaks"].any())


__all__ = ["across", "shown", "slug", "text"]
LONGEST = 70  # characters


def shown(panel: Panel) -> dict[str, str]:
    """Return short names for the labels of `panel`, without settings that all of them share."""
    if panel.pooled:
        return {label: label for label in panel.labels}
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
