"""Show whether the order of methods depends on a setting."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pandas as pd

from analysis.comparisons import Analysis
from analysis.designs.rankings import Ranking
from analysis.labels import slug
from analysis.statistics import estimate
from analysis.table import Cell, Table
from analysis.tables import DIFFERENCES, INTERVAL, difference_cell, estimate_cell, verdict_cell

CHANCE = "Ranks of means are not tested. Methods with close means can swap ranks by chance."


def rank_tables(analysis: Analysis) -> Iterator[Table]:
    """Yield a table per setting: accuracy and rank under each value, and the change from the first value."""
    tests = analysis.comparisons.values
    for ranking in analysis.rankings:
        first, *rest = ranking.values
        ranks = {value: ranking.ranks(value) for value in ranking.values}
        changes = {value: tests.of(ranking.where, ranking.setting, value) for value in rest}
        several = len(ranking.rivals) > 1  # one method has no rank
        rows, numbers = [], []
        for method, table in ranking.scores.items():
            name = ranking.titles[method]
            cells = []
            for value in ranking.values:
                found, rank = estimate(table[value]), ranks[value].get(method)
                cells.append(estimate_cell(found, best=several and rank == 1))
                cells += [Cell("" if rank is None else str(rank), rank)] * several
                numbers.append({"method": method, "value": value, "rank": rank, **vars(found)})
            for value in rest:
                cells += [show(changes[value][method]) for show in (difference_cell, verdict_cell)]
                numbers.append({"method": method, "value": value, **changes[value][method].told})
            rows.append([Cell(name, name), *cells])
        values = [[f"{ranking.setting} {value}", *["rank"] * several] for value in ranking.values]
        question = f"Does the order of methods depend on {ranking.setting}?"
        yield Table(
            name=slug("ranks", ranking.setting, ranking.where),
            section="comparison",
            title=f"{question if several else f'Does {ranking.setting} matter?'} {ranking.where}",
            caption=(
                f"Accuracy at the last session{' and its rank' * several}; all other settings have their "
                f"defaults. {INTERVAL} {DIFFERENCES} {tests.words} "
                "The table leaves out methods without this setting."
            ),
            columns=[
                "method",
                *(column for columns in values for column in columns),
                *(column for value in rest for column in (f"{value} minus {first}", "verdict")),
            ],
            rows=rows,
            numbers=pd.DataFrame(numbers),
            notes=[*[*(rank_words(ranking, value) for value in rest), CHANCE] * several, *ranking.notes],
            leaks=ranking.leaks,
        )


def rank_words(ranking: Ranking, value: str) -> str:
    """Return "With rehearsal none instead of all, 3 of 9 methods change their rank ..."."""
    first = ranking.values[0]
    before, after = ranking.ranks(first), ranking.ranks(value)
    both = [method for method in ranking.rivals if method in before and method in after]
    moved = [method for method in both if before[method] != after[method]]
    words = f"With {ranking.setting} {value} instead of {first}"
    agreement = ranking.agreement(value)
    tau = "no order to compare" if math.isnan(agreement) else f"Kendall's tau {agreement:.2f}"
    if not moved:
        return f"{words}, the ranks of {len(both)} methods stay the same."
    named = ", ".join(
        f"{ranking.titles[m]} {before[m]} → {after[m]}" for m in sorted(moved, key=lambda m: after[m])
    )
    return f"{words}, {len(moved)} of {len(both)} methods change their rank ({tau}). They are {named}."
