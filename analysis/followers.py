"""Show the numbers that later papers print, and why they can or cannot be compared with ours."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pandas as pd

from analysis.frame import Panel, Results
from analysis.table import Cell, Table

SOURCE = "Table 3 of LPMC (arXiv 2609.25781, 2026)"
MEASURES = ("first", "middle", "last", "pd", "average")
HEADS = {"pd": "PD", "labels": "labels per new class", "why": "why"}
COLUMNS = ("system", *MEASURES, "labels", "comparable", "why")


@cache
def read_followers() -> pd.DataFrame:
    """Return the numbers of later papers in percent, a row per dataset, setting and system.

    `labels` is the number of labelled nodes per new class. `comparable` says with which of our protocols a
    number can be compared, or no. `why` gives the reason.
    """
    texts = dict.fromkeys(("labels", "comparable", "why"), str)
    return pd.read_csv(Path(__file__).with_name("followers.csv"), dtype=texts)


def follower_tables(results: Results) -> Iterator[Table]:
    """Yield a table of printed numbers for each dataset and setting that later papers use."""
    for panel in results.panels():
        printed = _printed_for(panel)
        if not printed.empty:
            yield _table(panel, printed)


def _printed_for(panel: Panel) -> pd.DataFrame:
    first, printed = panel.runs.iloc[0], read_followers()
    keys = ["dataset", "n_way", "k_shot"]
    return printed[(printed[keys] == first[keys]).all(axis=1)]


def _table(panel: Panel, printed: pd.DataFrame) -> Table:
    rows = [[_cell(row[column]) for column in COLUMNS] for _, row in printed.iterrows()]
    fit = printed[printed["comparable"] != "no"]
    verdicts = [f"{row['system']}: {row['comparable']}." for _, row in fit.iterrows()]
    return Table(
        name=f"followers-{panel.slug}",
        section="published",
        title=f"Numbers in later papers: {panel.title}",
        caption=(
            f"Plain accuracy in percent, as printed in {SOURCE}, without spread. Our headline metric is "
            "macro accuracy. No difference to our numbers is computed."
        ),
        columns=[HEADS.get(column, column) for column in COLUMNS],
        rows=rows,
        numbers=printed.reset_index(drop=True),
        notes=[" ".join(["Comparable with ours:", *(verdicts or ["none of these numbers."])])],
        leaks=True,
    )


def _cell(value: float | str) -> Cell:
    if isinstance(value, str):
        return Cell(value, value)
    return Cell("", None) if pd.isna(value) else Cell(f"{value:.1f}", value)
