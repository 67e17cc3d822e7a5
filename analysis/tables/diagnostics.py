"""Show old and new nodes on growing graphs, and attention weights."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from analysis.data.results import Panel
from analysis.statistics.estimates import Estimate, estimate, estimates
from analysis.tables.table import Cell, Table
from analysis.words import count_of_seeds

OLD, NEW = "macro_old_node_accuracy", "macro_new_node_accuracy"


def ages_table(panel: Panel, ordered: Sequence[str]) -> Table | None:
    """Return accuracies on old and on new nodes by configuration, or None if no graph grows.

    Args:
        panel: The runs of one setting.
        ordered: The configurations in the order of rows.
    """
    by_run = panel.sessions.groupby(["label", "seed"])[[OLD, NEW]].mean().dropna()  # over sessions
    if by_run.empty:
        return None
    rows, numbers = [], []
    for label in (label for label in ordered if label in by_run.index.get_level_values("label")):
        runs = by_run.loc[label]
        found = {"old nodes": estimate(runs[OLD]), "new nodes": estimate(runs[NEW])}
        found |= {"new minus old": estimate(runs[NEW] - runs[OLD])}
        *both, difference = found.values()
        rows.append([Cell(label, label), *map(_percent, both), _points(difference)])
        numbers += [{"configuration": label, "value": name, **vars(each)} for name, each in found.items()]
    return Table(
        name=f"ages-{panel.slug}",
        section="ages",
        title=f"Old and new nodes: {panel.title}",
        caption=(
            "Values are means ± 95 % intervals over the seeds (Student's t), in percent. New nodes arrived "
            "in the session, and old nodes were there before. Both accuracies are averaged over the same "
            "classes, those of earlier sessions with new nodes, and over the sessions after session 0. "
            "Differences are in points, paired by seed. They are not tested."
        ),
        columns=["configuration", "old nodes", "new nodes", "new minus old"],
        rows=rows,
        numbers=pd.DataFrame(numbers),
        leaks=panel.leaks,
        badge=panel.badge,
    )


def _percent(found: Estimate) -> Cell:
    half = "" if np.isnan(found.half) else f" ± {100 * found.half:.1f}"
    return Cell(f"{100 * found.mean:.1f}{half}", found.mean)


def _points(found: Estimate) -> Cell:
    limits = "" if np.isnan(found.half) else f" [{100 * found.low:+.1f}, {100 * found.high:+.1f}]"
    return Cell(f"{100 * found.mean:+.1f}{limits}", found.mean)


EQUAL = "equal weights"
MEASURES = {"NLA's entropy": "nla_entropy", "TLA's weight on the base task": "tla_base_share"}


def attention_table(panel: Panel) -> Table | None:
    """Return a table with one row per configuration and measure, or None if no record has any."""
    measures = {name: column for name, column in MEASURES.items() if panel.sessions[column].notna().any()}
    if not measures:
        return None
    sessions = sorted(panel.sessions["session"].unique())
    rows, numbers = [], []
    for name, column in measures.items():
        rows.append([Cell(name, name), Cell(EQUAL, EQUAL), *_equal(panel, column)])
        tables = [estimates(panel.by_seed(column, session)) for session in sessions]
        for label in panel.labels:
            found = [table[label] for table in tables]
            if all(each.seeds == 0 for each in found):
                continue
            cells = [_cell(each.mean) for each in found]
            rows.append([Cell(name, name), Cell(label, label), *cells])
            numbers += [
                {"measure": name, "configuration": label, "session": session, **vars(each)}
                for session, each in zip(sessions, found, strict=True)
            ]
    few, many = min(panel.counts.values()), max(panel.counts.values())
    seeds = count_of_seeds(many) if few == many else f"{few} to {count_of_seeds(many)}"
    return Table(
        name=f"attention-{panel.slug}",
        section="attention",
        title=f"Attention weights by session: {panel.title}",
        caption=(
            f"Values are means over {seeds} per configuration, in evaluation mode after the steps of a "
            "session. NLA's entropy is the entropy of the weights of a class's support nodes, divided by the "
            "entropy of equal weights. It is averaged over the classes with support nodes: 1 is a plain "
            "mean, 0 a single node. TLA's weight on the base task is a share of the weights of all "
            "tasks. With equal weights it is 1 / number of tasks."
        ),
        columns=["measure", "configuration", *map(str, sessions)],
        rows=rows,
        numbers=pd.DataFrame(numbers),
        leaks=panel.leaks,
    )


def _equal(panel: Panel, column: str) -> list[Cell]:
    """Return the values that equal weights would have, for sessions with known weights."""
    known = panel.sessions[panel.sessions[column].notna()]
    values = known["tla_equal_share"] if column == "tla_base_share" else known[column].mul(0).add(1)
    means = values.groupby(known["session"]).mean()
    return [_cell(means.get(session, np.nan)) for session in sorted(panel.sessions["session"].unique())]


def _cell(value: float) -> Cell:
    return Cell("", None) if np.isnan(value) else Cell(f"{value:.3f}", float(value))
