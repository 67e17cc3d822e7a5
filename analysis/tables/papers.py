"""Compare our results with numbers printed in papers, never in one mean and always by protocol."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from analysis.data.labels import TOGGLES, has_switches, is_on, training
from analysis.data.results import Panel, Results
from analysis.statistics.estimates import Estimate, estimate
from analysis.tables.table import Cell, Table

SOURCE = "Tan et al., Graph Few-shot Class-incremental Learning, WSDM 2022"
COMPARABLE = "These numbers are comparable: ours follow the protocol of the authors' code."
NOT_COMPARABLE = (
    "These numbers are not comparable: the authors' code trains on the labels of the queries that it is "
    "scored on, and ours does not."
)
WHAT = ("first", "last", "PD", "RPD")
MEASURES = {"first": "0", "last": "last", "pd": "PD", "rpd": "RPD"}


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


COLUMNS_OF_PAPERS = ("first", "middle", "last", "pd", "average")
HEADS = {"pd": "PD", "labels": "labels per new class"}
COLUMNS = ("system", "from", *COLUMNS_OF_PAPERS, "labels", "comparable", "why")


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
            yield _later_table(panel, printed)


def _printed_for(panel: Panel) -> pd.DataFrame:
    first, printed = panel.runs.iloc[0], read_followers()
    keys = ["dataset", "n_way", "k_shot"]
    return printed[(printed[keys] == first[keys]).all(axis=1)].assign(**{"from": "the paper"})


def _ours_in_percent(panel: Panel) -> pd.DataFrame:
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


def _later_table(panel: Panel, printed: pd.DataFrame) -> Table:
    numbers = pd.concat([printed, _ours_in_percent(panel)], ignore_index=True)[list(COLUMNS)]
    rows = [[_percent_cell(row[column]) for column in COLUMNS] for _, row in numbers.iterrows()]
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


def _percent_cell(value: float | str) -> Cell:
    if isinstance(value, str):
        return Cell(value, value)
    return Cell("", None) if pd.isna(value) else Cell(f"{value:.1f}", value)
