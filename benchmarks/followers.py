"""Test what later papers claim on their graphs: `python benchmarks/followers.py results/followers_tuned`.

The claims are all orders of two systems in `analysis/tables/followers.csv`, by the last session, and a
few ideas of later papers. Each is a paired t-test over seeds, of macro and of plain accuracy. Holm's
correction covers all tests of all graphs together.
"""

from __future__ import annotations

import argparse
from itertools import combinations
from pathlib import Path

import pandas as pd
import scipy.stats

from analysis.data import reading
from analysis.data.results import Panel
from analysis.statistics.inference import holm
from analysis.tables.papers import read_followers
from hagmeta.common.interval import student
from hagmeta.methods import METHODS

IDEAS = [("tlp", "gpn"), ("teen", "frozen"), ("fact", "frozen")]  # an idea, and a method without it
METRICS = {"score": "macro", "accuracy": "plain"}
LEVEL = 0.05


def printed_orders(dataset: str) -> list[tuple[str, str]]:
    """Return all pairs of systems that later papers print for `dataset`, the higher one first."""
    names = {method.traits.title: name for name, method in METHODS.items()}
    printed = read_followers().query("dataset == @dataset").sort_values("last", ascending=False)
    return list(combinations([names[system] for system in printed["system"]], 2))


def tests_of(panel: Panel) -> pd.DataFrame:
    """Return a row per metric and claim: the mean difference in points, half its 95 % interval, and p."""
    methods = panel.runs.drop_duplicates("label").set_index("label")["method"]
    dataset, last = str(panel.runs["dataset"].iloc[0]), int(panel.sessions["session"].max())
    rows = []
    for column, metric in METRICS.items():
        table = 100 * panel.by_seed(column, last).rename(columns=methods)
        for one, other in [*printed_orders(dataset), *IDEAS]:
            differences = (table[one] - table[other]).dropna()
            half = student(len(differences)) * differences.sem()
            p = scipy.stats.ttest_1samp(differences, 0).pvalue
            rows.append((dataset, metric, one, other, len(differences), differences.mean(), half, p))
    return pd.DataFrame(rows, columns=["dataset", "metric", "one", "other", "seeds", "mean", "half", "p"])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("study", type=Path, help="folder of a study of followers_tuned")
    results = reading.read([parser.parse_args().study]).where({"val_classes": ["0"]})
    wanted = set(read_followers()["dataset"])
    panels = [panel for panel in results.panels if panel.runs["dataset"].iloc[0] in wanted]
    found = pd.concat([tests_of(panel) for panel in panels], ignore_index=True)
    found["corrected"] = holm(found["p"].to_numpy())
    direction = found["mean"].gt(0).map({True: "ahead", False: "behind"})
    found["verdict"] = direction.where(found["corrected"] < LEVEL, "undecided")
    print(found.round({"mean": 1, "half": 1, "p": 4, "corrected": 4}).to_string(index=False))


if __name__ == "__main__":
    main()
