"""Compare nodes that arrived in a session with those that were there before, on graphs that grow."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from analysis.frame import Panel
from analysis.statistics import Estimate, estimate
from analysis.table import Cell, Table

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
