"""Whether the order of methods depends on a setting: each value of it, method by method."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pandas as pd

from analysis.frame import Results
from analysis.labels import NAMES, readable, slug, transductive_words
from analysis.statistics import FEWEST_SEEDS, Difference, difference, estimate, holm, rank_correlation
from analysis.table import Cell, Table
from analysis.tables import INTERVAL, difference_cell, estimate_cell
from hagmeta.common.differences import sort_key

FEWEST_METHODS = 3
SHAPE = ("dataset", "protocol", "n_way", "k_shot")


@dataclass(frozen=True)
class Ranking:
    """Methods under two or more values of one setting, all else as it is by default."""

    where: str
    setting: str
    values: list[str]  # as they read
    scores: dict[str, pd.DataFrame]  # by method: (seeds, values), at the last session
    oracles: frozenset[str]
    leaks: bool
    notes: list[str]

    @property
    def rivals(self) -> list[str]:
        return [method for method in self.scores if method not in self.oracles]

    def ranks(self, value: str) -> dict[str, int]:
        """1 is the best; an oracle has none."""
        means = {method: self.scores[method][value].mean() for method in self.rivals}
        ordered = sorted(means, key=lambda method: -means[method])
        return {method: rank for rank, method in enumerate(ordered, start=1)}

    def differences(self, value: str) -> dict[str, Difference]:
        """Of each method, a value less the first, paired by seed and corrected over the methods."""
        found = [difference(table[value] - table[self.values[0]]) for table in self.scores.values()]
        return dict(zip(self.scores, holm(found), strict=True))

    def agreement(self, value: str) -> float:
        """Kendall's tau of the order under a value with that under the first."""
        means = [[self.scores[m][v].mean() for m in self.rivals] for v in (self.values[0], value)]
        return rank_correlation(*means)


def rankings(results: Results) -> Iterator[Ranking]:
    """One for each setting that was varied for several methods, around what each has by default."""
    runs = results.runs
    varied = [key for key in results.varied() if key not in (*SHAPE, "method", "sessions", "classes")]
    for shape, group in runs.groupby(list(SHAPE), sort=False):
        dataset, protocol, n_way, k_shot = shape
        for key in varied:
            others = {other for other in varied if other != key}
            centre = group[group["given"].map(others.isdisjoint)]
            found = _methods(centre, key)
            if found:
                where = f"{dataset}, {protocol}, {n_way}-way {k_shot}-shot"
                leaks = bool(centre["leaks"].any())  # all know as much then
                oracles = centre.loc[centre["oracle"] & (not leaks), "method"]
                yield Ranking(where, key, *found, frozenset(oracles), leaks, transductive_words(centre))


def _methods(runs: pd.DataFrame, key: str) -> tuple[list[str], dict[str, pd.DataFrame]] | None:
    """The values that several methods have, and each such method's scores under them."""
    runs = runs[runs[key].notna()]
    if runs.duplicated(["method", key, "seed"]).any():
        return None  # something else tells them apart
    tables = {
        method: each.pivot(index="seed", columns=key, values="last")
        for method, each in runs.groupby("method")
    }
    values = sorted(set(runs[key]), key=sort_key)
    tables = {m: tables[m] for m in (*NAMES, *tables) if m in tables and set(tables[m]) == set(values)}
    if len(values) < 2 or len(tables) < FEWEST_METHODS:
        return None
    names = [readable(value) for value in values]
    return names, {method: table[values].set_axis(names, axis=1) for method, table in tables.items()}


def rank_tables(results: Results) -> Iterator[Table]:
    """A table a setting: accuracy and rank under each of its values, and what each value changes."""
    for ranking in rankings(results):
        first, *rest = ranking.values
        ranks = {value: ranking.ranks(value) for value in ranking.values}
        changes = {value: ranking.differences(value) for value in rest}
        rows, numbers = [], []
        for method, table in ranking.scores.items():
            name = NAMES.get(method, method)
            cells = []
            for value in ranking.values:
                found, rank = estimate(table[value]), ranks[value].get(method)
                cells += [estimate_cell(found, best=rank == 1), Cell("" if rank is None else str(rank), rank)]
                numbers.append({"method": method, "value": value, "rank": rank, **vars(found)})
            cells += [difference_cell(changes[value][method]) for value in rest]
            rows.append([Cell(name, name), *cells])
        yield Table(
            name=slug("ranks", ranking.setting, ranking.where),
            section="comparison",
            title=f"Does the order of methods depend on {ranking.setting}? {ranking.where}",
            caption=(
                f"Accuracy at the last session and the rank by it, all else as it is by default. {INTERVAL} "
                f"Differences are paired by seed and less {ranking.setting} {first}; an asterisk: Wilcoxon "
                "signed-rank, Holm-corrected over the methods, p < 0.05. Methods to which the setting does "
                "not apply are not in the table."
            ),
            columns=[
                "method",
                *(column for value in ranking.values for column in (f"{ranking.setting} {value}", "rank")),
                *(f"{value} less {first}" for value in rest),
            ],
            rows=rows,
            numbers=pd.DataFrame(numbers),
            notes=[*(rank_words(ranking, value) for value in rest), *ranking.notes],
            leaks=ranking.leaks,
        )


def rank_words(ranking: Ranking, value: str) -> str:
    """«With rehearsal none instead of all, 3 of 9 methods change their rank: …»"""
    first = ranking.values[0]
    before, after = ranking.ranks(first), ranking.ranks(value)
    moved = [method for method in ranking.rivals if before[method] != after[method]]
    words = f"With {ranking.setting} {value} instead of {first}"
    tau = f"Kendall's tau {ranking.agreement(value):.2f}"
    if not moved:
        return f"{words} the ranks of {len(before)} methods stay as they are."
    named = ", ".join(
        f"{NAMES.get(m, m)} {before[m]} → {after[m]}" for m in sorted(moved, key=lambda m: after[m])
    )
    seeds = min(len(table.dropna()) for table in ranking.scores.values())
    doubt = "" if seeds >= FEWEST_SEEDS else f" With {seeds} seeds that may be chance."
    return f"{words}, {len(moved)} of {len(before)} methods change their rank ({tau}): {named}.{doubt}"
