"""Make the tables of a comparison with the references."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from analysis.data.labels import slug, transductive_words
from analysis.references.place import Placed, Standing
from analysis.references.references import TUNED
from analysis.statistics.estimates import estimate
from analysis.statistics.inference import BETTER, EQUIVALENT, INCONCLUSIVE, WORSE
from analysis.statistics.over_datasets import FEWEST_FOR_INTERVALS
from analysis.tables.cells import DIFFERENCES, INTERVAL, difference_cell, estimate_cell, verdict_cell
from analysis.tables.cost import ABOUT
from analysis.tables.over_datasets import rating_table
from analysis.tables.table import Cell, Table
from analysis.words import a_look, listed

SEE = "The first table says how differences were tested."
VERDICTS = (BETTER, EQUIVALENT, INCONCLUSIVE, WORSE)


def compare_tables(placed: Placed) -> Iterator[Table]:
    """Yield where each method lands, the table for a paper, a table per graph, and ratings."""
    for label in placed.labels:
        yield landing_table(placed, label)
    yield paper_table(placed)
    for standing in placed.standings:
        yield graph_table(standing)
    if len({each.dataset for each in placed.standings}) >= FEWEST_FOR_INTERVALS and (
        table := rating_table(placed.analysis)
    ):
        yield table


def landing_table(placed: Placed, label: str) -> Table:
    """Return one row per graph: the rank, the best reference, and how many have each verdict."""
    standings = placed.of(label)
    counted = [verdict.removeprefix("significantly ") for verdict in VERDICTS]
    rows, numbers = [], []
    for each in standings:
        last = each.panel.by_seed("last")
        counts = {verdict: len(each.with_verdict(verdict)) for verdict in VERDICTS}
        rank = f"{each.rank} of {len(each.rivals) + 1}"
        rows.append(
            [
                Cell(each.dataset, each.dataset),
                Cell(rank, each.rank),
                estimate_cell(estimate(last[label])),
                Cell(each.best, each.best),
                estimate_cell(estimate(last[each.best])),
                difference_cell(each.lead),
                verdict_cell(each.lead),
                *(Cell(str(count), count) for count in counts.values()),
            ]
        )
        numbers.append(
            {"dataset": each.dataset, "rank": each.rank, "of": len(each.rivals) + 1, "best": each.best}
            | counts
            | each.lead.told
        )
    return Table(
        name=slug("landing", label),
        section="landing",
        title=f"Rank of {label}",
        caption=(
            f"{INTERVAL} {DIFFERENCES} Ranks are among the references and {label}, without oracles. The best "
            "reference has the highest mean. The last four columns count the references by verdict: it is "
            "significantly better than them, equivalent, inconclusive or significantly worse. "
            f"{placed.analysis.comparisons.reference.words}"
        ),
        columns=[
            *("graph", "rank", "accuracy", "best reference", "its accuracy", "difference", "verdict"),
            *counted,
        ],
        rows=rows,
        numbers=pd.DataFrame(numbers),
        extra=("best reference", "its accuracy", *counted),
        badge=a_look(max(each.lead.seeds for each in standings)),
    )


def paper_table(placed: Placed) -> Table:
    """Return all methods in rows and graphs in columns, the user's first; for a paper."""
    first = placed.labels[0]
    panels = {each.dataset: each.panel for each in placed.standings}
    tests = {each.dataset: each.tests for each in placed.of(first)}
    means = pd.DataFrame(
        {
            name: {label: panel.by_seed("last")[label].mean() for label in panel.labels}
            for name, panel in panels.items()
        }
    )
    oracles = set().union(*(panel.oracles for panel in panels.values()))
    others = [label for label in means.index if label not in placed.labels and label not in oracles]
    ranks = means.loc[[*placed.labels, *others]].rank(ascending=False).mean(axis=1)
    ordered = [*placed.labels, *sorted(others, key=lambda label: ranks[label]), *sorted(oracles)]
    highest = {name: means.loc[[*placed.labels, *others], name].idxmax() for name in panels}
    rows, numbers = [], []
    for label in ordered:
        cells = []
        for name, panel in panels.items():
            found = estimate(panel.by_seed("last")[label]) if label in panel.labels else estimate([])
            test = tests.get(name, {}).get(label)
            mark = "*" if test is not None and test.significant else ""
            shown = estimate_cell(found, best=highest[name] == label)
            cells.append(Cell(shown.text, shown.value, shown.best, mark))
            numbers.append({"method": label, "dataset": name, **vars(found), "differs": bool(mark)})
        rows.append([Cell(label, label), *cells])
    return Table(
        name="paper",
        section="landing",
        title="All methods on all graphs",
        caption=(
            f"{placed.analysis.results.metric.capitalize()} at the last session. {INTERVAL} Bold is the "
            f"highest mean, without oracles. An asterisk marks methods that differ significantly from "
            f"{first}, in t-tests paired by seed, with a false discovery rate of 5 % over "
            f"{placed.analysis.comparisons.reference.tested} comparisons. "
            f"{about_references(placed)}"
        ),
        columns=["method", *panels],
        rows=rows,
        numbers=pd.DataFrame(numbers),
        reference=0,
        reference_badge="yours",
    )


def graph_table(standing: Standing) -> Table:
    """Return every reference on one graph: accuracy, difference, verdict and cost, the highest first."""
    panel, label = standing.panel, standing.label
    last, average = panel.by_seed("last"), panel.by_seed("average")
    shown = [other for other in panel.labels if other == label or other not in standing.mine]
    ordered = sorted(shown, key=lambda other: -standing.means[other])
    rows, numbers = [], []
    for other in ordered:
        test = standing.tests.get(other)
        seconds = float(standing.seconds[other])
        rows.append(
            [
                Cell(other, other),
                estimate_cell(estimate(last[other])),
                estimate_cell(estimate(average[other])),
                difference_cell(test) if test else Cell("", None),
                verdict_cell(test),
                Cell("" if np.isnan(seconds) else f"{seconds:.1f}", seconds),
            ]
        )
        found = estimate(last[other])
        about = {"method": other, "accuracy": found.mean, "seconds": seconds}
        numbers.append(about | (test.told if test else {}))
    return Table(
        name=slug("against", label, standing.dataset),
        section="comparison",
        title=f"{label} and every reference: {panel.title}",
        caption=(
            f"{INTERVAL} Differences are {label} minus the method of the row, in points; an asterisk marks "
            f"significant ones. {SEE} {ABOUT} {_devices(standing)}"
        ),
        columns=["method", "last session", "average", f"{label} minus it", "verdict", "seconds per seed"],
        rows=rows,
        numbers=pd.DataFrame(numbers),
        notes=[*_oracle_words(standing), *transductive_words(panel.runs)],
        reference=ordered.index(label),
        reference_badge="yours",
        badge=a_look(standing.lead.seeds),
        extra=("average", "seconds per seed"),
    )


def about_references(placed: Placed) -> str:
    """Return how the references were configured."""
    if placed.kind == TUNED:
        searches = " ".join(f"{each.rstrip('.')}." for each in placed.references.searches)
        return (
            f"The references were tuned for each graph by a search on validation streams. {searches}".strip()
        )
    return "The references have the default settings of their methods."


def _devices(standing: Standing) -> str:
    """Return the devices of both sides."""
    runs = standing.panel.runs
    mine = runs["label"].isin(standing.mine)
    own, theirs = (
        listed(sorted(map(str, runs.loc[side, "device"].dropna().unique())) or ["unknown"])
        for side in (mine, ~mine)
    )
    if own == theirs:
        return f"All runs used {own}."
    return f"Your runs used {own} and the references {theirs}, so the times do not compare methods."


def _oracle_words(standing: Standing) -> list[str]:
    names = sorted(standing.panel.oracles)
    if not names:
        return []
    return [f"Oracles see labels that the others never see, and are not ranked: {listed(names)}."]
