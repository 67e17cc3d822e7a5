"""Show the numbers that later papers print next to ours, and why they can or cannot be compared."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pandas as pd

from analysis.frame import Panel, Results
from analysis.table import Cell, Table

MEASURES = ("first", "middle", "last", "pd", "average")
HEADS = {"pd": "PD", "labels": "labels per new class"}
COLUMNS = ("system", "from", *MEASURES, "labels", "comparable", "why")


@cache
def read_followers() -> pd.DataFrame:
    """Return the numbers of later papers in percent, a row per dataset, setting and system.

    `labels` is the number of labelled nodes per new class. `comparable` says with which of our protocols a
    number can be compared, or no. `why` gives the reason.
    """
    texts = dict.fromkeys(("labels", "comparable", "why"), str)
    return pd.read_csv(Path(__file__).with_name("followers.csv"), dtype=texts)


def follower_tables(results: Results) -> Iterator[Table]:
    """Yield a table of printed numbers and ours for each dataset and setting that later papers use."""
    for panel in results.panels:
        printed = _printed_for(panel)
        if not printed.empty:
            yield _table(panel, printed)


def _printed_for(panel: Panel) -> pd.DataFrame:
    first, printed = panel.runs.iloc[0], read_followers()
    keys = ["dataset", "n_way", "k_shot"]
    return printed[(printed[keys] == first[keys]).all(axis=1)].assign(**{"from": "the paper"})


def _ours(panel: Panel) -> pd.DataFrame:
    """Return plain accuracies of our runs in percent, a row per configuration, sorted by the last session."""
    curves = 100 * panel.sessions.groupby(["label", "session"])["accuracy"].mean().unstack()
    last, run = curves.columns.max(), panel.runs.iloc[0]
    found = pd.DataFrame(
        {
            "system": curves.index,
            "from": f"this study, {run['protocol']}",
            "first": curves[0].to_numpy(),
            "middle": curves[last // 2].to_numpy(),
            "last": curves[last].to_numpy(),
            "pd": (curves[0] - curves[last]).to_numpy(),
            "average": curves.mean(axis=1).to_numpy(),
            "labels": str(run["k_shot"]),
            "comparable": "",
            "why": "",
        }
    )
    return found.sort_values("last", ascending=False)


def _table(panel: Panel, printed: pd.DataFrame) -> Table:
    numbers = pd.concat([printed, _ours(panel)], ignore_index=True)[list(COLUMNS)]
    rows = [[_cell(row[column]) for column in COLUMNS] for _, row in numbers.iterrows()]
    fit = printed[printed["comparable"] != "no"]
    verdicts = [f"{row['system']}: {row['comparable']}." for _, row in fit.iterrows()]
    return Table(
        name=f"followers-{panel.slug}",
        section="published",
        title=f"Numbers in later papers: {panel.title}",
        caption=(
            f"Plain accuracy in percent. The first rows are printed in {printed['printed_in'].iloc[0]}, "
            "without spread. The others are means over our seeds, sorted by the last session. Our headline "
            "metric is macro accuracy; this table has plain accuracy because the papers do. Differences are "
            "not computed, because most numbers are not comparable."
        ),
        columns=[HEADS.get(column, column) for column in COLUMNS],
        rows=rows,
        numbers=numbers,
        notes=[" ".join(["Comparable with ours:", *(verdicts or ["none of these numbers."])])],
        leaks=True,
    )


def _cell(value: float | str) -> Cell:
    if isinstance(value, str):
        return Cell(value, value)
    return Cell("", None) if pd.isna(value) else Cell(f"{value:.1f}", value)
