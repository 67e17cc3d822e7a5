"""Compare our results with the numbers printed in the paper, never in one mean and always by protocol."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd

from analysis.frame import Panel, Results
from analysis.labels import TOGGLES, has_switches, is_on, training
from analysis.statistics import Estimate, estimate
from analysis.table import Cell, Table

SOURCE = "Tan et al., Graph Few-shot Class-incremental Learning, WSDM 2022"
COMPARABLE = "These numbers are comparable: ours follow the protocol of the authors' code."
NOT_COMPARABLE = (
    "These numbers are not comparable: the authors' code trains on the labels of the queries that it is "
    "scored on, and ours does not."
)
WHAT = ("first", "last", "PD", "RPD")
MEASURES = {"first": "0", "last": "last", "pd": "PD", "rpd": "RPD"}


@cache
def read_published() -> pd.DataFrame:
    """Return the paper's Tables 2 and 3 in percent; `session` is 0 to 9, PD or RPD.

    `system` is the method of a row, and `parts` lists the switches that are on.
    """
    path = Path(__file__).with_name("published.csv")
    return pd.read_csv(path, dtype={"session": str}, keep_default_na=False)


def printed_for(panel: Panel) -> pd.DataFrame:
    """Return the paper's numbers for the dataset and setting of `panel`; `ours` is the key of `_identity`."""
    first = panel.runs.iloc[0]
    printed = read_published()
    same = (printed["dataset"] == first["dataset"]) & (printed["n_way"] == first["n_way"])
    printed = printed[same & (printed["k_shot"] == first["k_shot"])]
    return printed.assign(ours=printed["system"].str.casefold() + "; " + printed["parts"])


def printed_curves(panel: Panel) -> dict[str, dict[int, float]]:
    """Return the paper's accuracies in percent by our label and session, for shared configurations."""
    printed = printed_for(panel)
    curves = {}
    for label, run in panel.runs.drop_duplicates("label").set_index("label").iterrows():
        theirs = printed[(printed["ours"] == _identity(run)) & printed["session"].str.isdigit()]
        if not theirs.empty:
            first = theirs[theirs["table"] == theirs["table"].iloc[0]]
            curves[str(label)] = dict(zip(first["session"].astype(int), first["percent"], strict=True))
    return curves


def published_tables(results: Results) -> Iterator[Table]:
    """Yield the paper's numbers, ours and the differences, for each panel on a dataset of the paper."""
    for panel in results.panels:
        printed = printed_for(panel)
        rows, numbers = [], []
        for label in panel.labels if len(printed) else ():
            runs = panel.runs[panel.runs["label"] == label]
            last = int(panel.sessions["session"].max())
            theirs = printed[printed["ours"] == _identity(runs.iloc[0])]
            for table, values in theirs.groupby("table"):
                paper = _printed(values.set_index("session")["percent"], last)
                ours = [estimate(runs[column]) for column in MEASURES]
                cells = [cell for pair in zip(paper, ours, strict=True) for cell in _compared(*pair)]
                rows.append([Cell(label, label), Cell(str(table), str(table)), *cells])
                numbers += [
                    {"configuration": label, "table": table, "measure": name, "paper": theirs_, **vars(each)}
                    for name, theirs_, each in zip(MEASURES, paper, ours, strict=True)
                ]
        if rows:
            yield Table(
                name=f"published-{panel.slug}",
                section="published",
                title=f"Comparison with the paper: {panel.title}",
                caption=(
                    f'Accuracies are in percent. "Paper" is the number printed by {SOURCE}. Its code leaks '
                    'in the same way as the released protocol. "Ours" is the mean over our seeds under the '
                    f"{panel.runs['protocol'].iloc[0]} protocol. "
                    '"Difference" is ours minus the paper, in points. "Last" is our last session. PD and RPD '
                    "are left out if the paper has more sessions."
                ),
                columns=[
                    "configuration",
                    "table",
                    *(f"{what} {who}" for what in WHAT for who in ("paper", "ours", "difference")),
                ],
                rows=rows,
                numbers=pd.DataFrame(numbers),
                notes=[COMPARABLE if panel.runs["protocol"].iloc[0] == "released" else NOT_COMPARABLE],
                leaks=True,  # the paper's do
            )


def _printed(by_session: pd.Series, last: int) -> list[float]:
    """Return the paper's numbers up to our last session; drops only if that is also its last session."""
    sessions = [int(name) for name in by_session.index if name.isdigit()]
    whole = max(sessions) == last
    there = {"last": by_session.get(str(last), np.nan)} | {
        name: by_session[name] if whole else np.nan for name in ("PD", "RPD")
    }
    return [float(there[name] if name in there else by_session[name]) for name in MEASURES.values()]


def _compared(paper: float, ours: Estimate) -> list[Cell]:
    mean = 100 * ours.mean
    if np.isnan(paper):
        return [Cell("", None), Cell(f"{mean:.1f}", mean), Cell("", None)]
    return [
        Cell(f"{paper:.1f}", paper),
        Cell(f"{mean:.1f}", mean),
        Cell(f"{mean - paper:+.1f}", mean - paper),
    ]


def _identity(run: pd.Series) -> str:
    """Return the title of a run's method, and which of its switches are on."""
    parts = ""
    if has_switches(run):
        on = [key for key in TOGGLES if is_on(run.get(key))]
        parts = "supervised" if training(run) == "supervised" else " + ".join(sorted(on)) or "none"
    return f"{run['traits'].title.casefold()}; {parts}"
