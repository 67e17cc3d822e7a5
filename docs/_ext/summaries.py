"""Render tables over several archives, and tables whose runs are not stored one by one.

- `<!-- generate: regimes REVISION MEASURE -->`: our method in each regime, by graph.
- `<!-- generate: revisions OLD NEW -->`: two revisions of our method in each regime.
- `<!-- generate: ablation -->`: the validation runs that decided which parts stay, archives/parts-12.csv.
- `<!-- generate: printed TABLE -->`: results whose runs were not kept, archives/printed.csv.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

import pandas as pd
from stored_results import GRAPHS, OURS, _cell, _file, _graph, _signed, _table, records_of

from analysis.references.archives import FOLDER
from hagmeta.common.records.records import OpenRecord

ARCHIVES = {  # all runs of our method in the regimes, by revision
    "11": (f"{OURS}-11", "regimes-11", "confirmation-defaults-11", "lacking-11", "growing-11"),
    "12": (f"{OURS}-12", "regimes-12", "confirmation-12", "confirmation-growing-12"),
}
REGIMES = {
    "strict": "default",
    "none": "no rehearsal",
    "20": "20 old labels per class",
    "whole": "future classes visible",
    "growing": "growing",
}
MADE = ("-small", "-rewired", "-uneven")  # graphs that are parts or changes of others
LARGEST_MEAN, LARGEST = 0.3, 2.0  # losses above these keep a part
PARTS = {
    "unlabelled_weight: 0": "no unlabelled nodes in the class means",
    "finetune_steps: 0": "no fine-tuning of the encoder in sessions",
    "simulated_sessions: false": "shrinkage from the number of labels",
    "capped_penalty: false": "no cap on the penalty for uncertain means",
    "random_features: 0": "no random features",
    "refitted: false": "SVD and eigenvectors of session 0",
    "propagation_weight: 0": "no propagation of predictions",
    "hidden: 64, embedding: 64": "encoder of width 64",
    "outlier_class: false": "no outlier class",
    "tukey: 1": "no Tukey power",
    "revision 12": "revision 12: no outlier class, no Tukey power, 1,000 random features",
}


@cache
def _by_regime(revision: str) -> pd.DataFrame:
    """Return the mean accuracy of our method, by graph and regime."""
    rows = [
        {
            **{"graph": _graph(record), "regime": _regime(record)},
            **{"macro": 100 * record["macro_accuracy"][-1], "plain": 100 * record["accuracy"][-1]},
        }
        for name in ARCHIVES[revision]
        for record in records_of(name)
        if record["config"]["method"] == OURS
        and str(record["revisions"]["method"]) == revision
        and not any(made in _file(record["config"]["dataset"]) for made in MADE)
    ]
    return pd.DataFrame(rows).groupby(["graph", "regime"])[["macro", "plain"]].mean()


def _regime(record: OpenRecord) -> str:
    config = record["config"]
    if config["protocol"] == "growing" or config.get("visibility") == "whole":
        return "growing" if config["protocol"] == "growing" else "whole"
    return (
        {"all": "strict"}.get(config["rehearsal"], config["rehearsal"])
        if config["prior"] == "equal"
        else "prior"
    )


def _source(*revisions: str) -> str:
    names = ", ".join(f"`{name}`" for revision in revisions for name in ARCHIVES[revision])
    return f"*Source: {names}; posterior means revision {' and '.join(revisions)}; seeds 100 to 109.*"


def regimes(argument: str) -> str:
    """Return the accuracy of a revision in each regime, by graph."""
    revision, measure = argument.split()
    table = _by_regime(revision)[measure].unstack()[list(REGIMES)]
    rows = [[graph, *map(_cell, table.loc[graph])] for graph in GRAPHS.values() if graph in table.index]
    return f"{_table(['', *REGIMES.values()], rows, 1)}\n\n{_source(revision)}"


def revisions(argument: str) -> str:
    """Return two revisions in each regime: means over graphs, and the largest loss and gain."""
    old, new = (_by_regime(revision) for revision in argument.split())
    rows = []
    for regime, words in REGIMES.items():
        for measure in ("macro", "plain"):
            before, after = (each[measure].unstack()[regime].dropna() for each in (old, new))
            change = (after - before).dropna()
            means = [_cell(each[change.index].mean()) for each in (before, after)]
            ends = [f"{_signed(change[graph])} {graph}" for graph in (change.idxmin(), change.idxmax())]
            rows.append([words, measure, str(len(change)), *means, _signed(change.mean()), *ends])
    numbers = [f"revision {revision}" for revision in argument.split()]
    heads = ["regime", "accuracy", "graphs", *numbers, "change", "largest loss", "largest gain"]
    return f"{_table(heads, rows, 2, left=(6, 7))}\n\n{_source(*argument.split())}"


def ablation() -> str:
    """Return what each part is worth on validation nodes, and whether it is worth enough to stay."""
    found = pd.read_csv(FOLDER / "parts-12.csv")
    found = found[found["regime"] == "strict"]
    macro, plain = (
        found.pivot(index="setting", columns="dataset", values=each) for each in ("macro", "plain")
    )
    rows = [["revision 11", "", _cell(macro.loc["revision 11"].mean()), "", "", "", ""]]
    for setting, words in PARTS.items():
        change = macro.loc[setting] - macro.loc["revision 11"]
        of_plain = (plain.loc[setting] - plain.loc["revision 11"]).mean()
        needed = change.mean() < -LARGEST_MEAN or change.min() < -LARGEST
        verdict = ("yes" if needed else "no") if setting != "revision 12" else ""
        numbers = [_cell(macro.loc[setting].mean()), _signed(change.mean()), _signed(of_plain)]
        name = "" if setting == "revision 12" else f"`{setting}`"
        rows.append([words, name, *numbers, f"{_signed(change.min())} {GRAPHS[change.idxmin()]}", verdict])
    heads = ["", "setting", "macro", "change", "change in plain", "largest loss, macro", "needed by the rule"]
    rule = (
        f"The rule: a part is needed if macro accuracy falls by more than {LARGEST_MEAN:g} points on average "
        f"without it, or by more than {LARGEST:g} points on one graph."
    )
    source = "*Source: `archives/parts-12.csv`; validation nodes, seeds 20 to 27.*"
    return f"{_table(heads, rows, 2, left=(5, 6))}\n\n{source}\n\n{rule}"


def printed(study: str) -> str:
    """Return a table that was published without its runs."""
    found = pd.read_csv(FOLDER / "printed.csv", dtype=str, keep_default_na=False)
    found = found[found["study"] == study]
    columns, rows, group = list(dict.fromkeys(found["column"])), [], ""
    if all(column.isdigit() for column in columns):  # sessions
        columns = sorted(columns, key=int)
    for (of, name), own in found.groupby(["group", "row"], sort=False):
        if of != group:
            rows.append([f"*{of}*", *[""] * len(columns)])
        cells = {cell["column"]: _printed(cell) for _, cell in own.iterrows()}
        rows.append([name, *(cells.get(column, "-") for column in columns)])
        group = of
    return f"{_table(['', *columns], rows, 1)}\n\n*Source: `archives/printed.csv`, table `{study}`.*"


def _printed(cell: pd.Series) -> str:
    difference = cell["difference"]
    if cell["low"]:
        difference += f" [{cell['low']}, {cell['high']}]"
    elif cell["half"]:
        difference += f" ± {cell['half']}"
    difference = f"({difference.strip()})" if cell["value"] and cell["difference"] else difference.strip()
    mark = {"significant": "*", "equivalent": " =", "": ""}[cell["verdict"]].replace("*", "\\*")
    return f"{cell['value']} {difference}".strip() + mark


GENERATORS: Mapping[str, Callable[..., str]] = {
    **{"regimes": regimes, "revisions": revisions, "ablation": ablation, "printed": printed},
}
