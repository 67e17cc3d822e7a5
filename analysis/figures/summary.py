"""Means and intervals for many lines at once, and the words that tell how they were made."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import pandas as pd

from analysis.frame import Panel
from analysis.labels import transductive_words
from hagmeta.common.interval import student

MOST_PANELS = 4  # figures of a kind, each of a setting: saving one takes up to a second
LEAKS = "the released protocol leaks"


def estimates(rows: pd.DataFrame, by: Sequence[str], column: str) -> pd.DataFrame:
    """``statistics.estimate`` of each group, in percent: columns mean, low, high and seeds."""
    groups = rows.groupby(list(by), sort=False)[column]
    table = groups.agg(mean="mean", deviation="std", seeds="count")
    half = table["seeds"].map(student) * table["deviation"] / np.sqrt(table["seeds"])
    percent = {"mean": table["mean"], "low": table["mean"] - half, "high": table["mean"] + half}
    return pd.DataFrame({key: 100 * value for key, value in percent.items()}).assign(seeds=table["seeds"])


def richest(panels: list[Panel], most: int) -> list[Panel]:
    """The settings with most to compare, strict ones first; one where there is nothing to compare in any.

    Samples of a search, which hold classes out to validate on, come in only where there is nothing else.
    """
    final = [panel for panel in panels if panel.runs["val_classes"].iloc[0] == 0] or panels
    ranked = sorted(final, key=lambda panel: (panel.leaks, -len(panel.labels), -len(panel.runs)))
    return [panel for panel in ranked if len(panel.labels) > 1][:most] or ranked[:1]


def last_rows(panel: Panel) -> pd.DataFrame:
    """The panel's runs at the last session."""
    return panel.sessions[panel.sessions["session"] == panel.sessions["session"].max()]


def seeds_of(runs: pd.DataFrame, by: Collection[str] = ("config_hash",)) -> str:
    """How many seeds a configuration has: `10 seeds`, or `8 to 10 seeds` where some are missing."""
    counts = runs.groupby(list(by))["seed"].nunique()
    few, many = int(counts.min()), int(counts.max())
    if few == many:
        return "one seed" if many == 1 else f"{many} seeds"
    return f"{few} to {many} seeds"


def band_words(runs: pd.DataFrame, drawn: str = "bands") -> str:
    """Where the intervals come from, or why there are none."""
    seeds = seeds_of(runs)
    if seeds == "one seed":
        return "From one seed, so without intervals."
    return f"Means over {seeds} a configuration; {drawn} are 95 % intervals (Student's t over seeds)."


def warning(panel: Panel) -> str:
    """Sentences for captions of figures under the released protocol, or of smoothed answers."""
    leak = (
        "Under the released protocol training sees queries that it is later scored on: these accuracies are"
        " not those of unseen nodes."
    )
    words = [*([leak] if panel.leaks else []), *transductive_words(panel.runs)]
    return "".join(f" {sentence}" for sentence in words)


def left_out(drawn: int, there: int, what: str = "settings") -> str:
    """A sentence for captions where not everything was drawn."""
    if drawn >= there:
        return ""
    return f" Not drawn: {there - drawn} of {there} {what}."


def heading(panel: Panel) -> str:
    """The panel's title, with the leak named."""
    return with_leak(panel.title, panel.leaks)


def with_leak(words: str, leaks: bool) -> str:
    """A heading, with the leak named where there is one."""
    return f"{words} ({LEAKS})" if leaks else words


def any_leak(runs: pd.DataFrame) -> bool:
    """Whether some of the runs were made by a protocol that leaks."""
    return bool(runs["leaks"].any())
