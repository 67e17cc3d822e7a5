"""Make cells, notes and orders that several tables share."""

from __future__ import annotations

import numpy as np
import pandas as pd

from analysis.comparisons import Comparisons, best_of
from analysis.data.labels import transductive_words
from analysis.data.results import Panel
from analysis.statistics.estimates import (
    Estimate,
    adjusted_means,
    ranks_of,
)
from analysis.statistics.inference import BETTER, WORSE, Difference
from analysis.tables.table import Cell
from analysis.words import listed, p_value, points, verdict

INTERVAL = "Values are means ± 95 % intervals over the seeds (Student's t), in percent."
BOLD = (
    "Bold marks the first rank at the last session, and the next ranks down to the first one that is "
    "significantly worse."
)
ABOUT_RANKS = "Ranks and gaps use the means at the last session."
DIFFERENCES = "Differences are in points; an asterisk marks significant ones."
LEAKS = "The released protocol leaks: it trains on the queries that it is scored on."


def by_rank(panel: Panel) -> list[str]:
    """Return the configurations by mean at the last session, the highest first, and then the oracles."""
    means = adjusted_means(panel.by_seed("last")[panel.rivals])
    rivals = sorted(panel.rivals, key=lambda label: (bool(np.isnan(means[label])), -means[label]))
    return [*rivals, *(label for label in panel.labels if label in panel.oracles)]


def top_of(panel: Panel, told: Comparisons) -> set[str]:
    """Return the first ranks, down to the first one that is significantly worse than the best.

    Return nothing if a pair with the best was not tested.
    """
    best = best_of(panel)
    others = [label for label in by_rank(panel) if label in panel.rivals and label != best]
    tests = [told.pair(panel, best, label) if best else None for label in others]
    if best is None or not all(test is not None and test.tested for test in tests):
        return set()
    worse = [test is not None and test.verdict == BETTER for test in tests]
    return {best, *others[: worse.index(True) if True in worse else len(others)]}


def difference_cell(difference: Difference | None, *, p: bool = False) -> Cell:
    """Return "+1.2 [+0.8, +1.6]" in points, with an asterisk if it is significant."""
    if difference is None:
        return Cell("reference", 0.0)
    if np.isnan(difference.mean):
        return Cell("no common seed", None)
    text = points(difference) + (f", {p_value(difference.corrected)}" if p and difference.tested else "")
    return Cell(text, difference.mean, mark="*" if difference.significant else "")


def verdict_cell(difference: Difference | None, *, detects: bool = False) -> Cell:
    """Return the verdict; an open one names the seeds that would decide it."""
    if difference is None:
        return Cell("", "")
    return Cell(verdict(difference, detects=detects), difference.verdict)


def estimate_cell(found: Estimate, *, best: bool = False) -> Cell:
    """Return "57.2 ± 1.0" in percent."""
    if found.seeds == 0:
        return Cell("", None)
    text = f"{round(100 * found.mean, 1) + 0.0:.1f}"  # 0.0 removes the sign of a value rounded to zero
    if not np.isnan(found.half):
        text += f" ± {100 * found.half:.1f}"
    return Cell(text, found.mean, best=best)


def seed_count(panel: Panel, label: str) -> Cell:
    """Return the number of seeds, with a dagger if they come from different versions."""
    count = panel.counts[label]
    return Cell(str(count), count, mark="†" if label in panel.mixed else "")


def numbers_of(
    panel: Panel,
    columns: dict[str, dict[str, Estimate]],
    tests: dict[str, Difference],
    ranks: pd.Series | None = None,
) -> pd.DataFrame:
    """Return the numbers of the cells, with one row per configuration, in the order of the page."""
    first = panel.runs.drop_duplicates("label").set_index("label")
    rows = []
    for label in by_rank(panel):
        row = {"configuration": label, **first.loc[label, ["method", "dataset", "config_hash"]]}
        row["seeds"] = panel.counts[label]
        row |= {} if ranks is None else {"rank": ranks.get(label)}
        for name, found in columns.items():
            row |= wide(name, found[label])
        if label in tests:
            row |= {"minus": panel.reference, **tests[label].told}
        rows.append(row)
    return pd.DataFrame(rows)


def wide(name: str, found: Estimate) -> dict[str, float]:
    """Return a mean and the limits of its interval as three columns of a CSV file."""
    return {name: found.mean, f"{name} low": found.low, f"{name} high": found.high}


def notes_of(panel: Panel, told: Comparisons) -> list[str]:
    """Return the notes below every table of `panel`."""
    notes = []
    if len(set(panel.counts.values())) > 1:
        notes.append(
            "The rows have different numbers of seeds. Ranks and gaps use means of a fit with one effect per "
            "seed and one per configuration, so that a row does not gain from missing difficult seeds. "
            "Differences use the seeds that both rows have."
        )
    if unranked := sorted(
        label for label, rank in ranks_of(panel.by_seed("last")[panel.rivals]).items() if rank != rank
    ):
        notes.append(f"Not ranked, because no seed is shared with the others: {', '.join(unranked)}.")
    if panel.mixed:
        notes.append("† This row averages runs with different commits, torch versions or devices.")
    notes += oracle_words(panel, told).values()
    if panel.leaks:
        notes.append(LEAKS)
    return notes + transductive_words(panel.runs)


def oracle_words(panel: Panel, told: Comparisons) -> dict[str, str]:
    """Return, for each oracle, whether it is an upper bound of the others at the last session."""
    return {oracle: _bound_words(panel, told, oracle) for oracle in sorted(panel.oracles)}


def exceeded(panel: Panel, told: Comparisons) -> list[str]:
    """Return the oracles that another configuration is significantly better than."""
    rivals = {oracle: told.against(panel, oracle).values() for oracle in sorted(panel.oracles)}
    return [name for name, found in rivals.items() if any(each.verdict == BETTER for each in found)]


def _bound_words(panel: Panel, told: Comparisons, oracle: str) -> str:
    given = f"{oracle} sees labels that the others never see."
    rivals = {
        label: each for label, each in told.against(panel, oracle).items() if label not in panel.oracles
    }
    above = [
        f"{label} ({points(each, unit=' points')})"
        for label, each in rivals.items()
        if each.verdict == BETTER
    ]
    if above:
        return f"{given} It is not an upper bound here. Significantly better: {', '.join(above)}."
    if not rivals:
        return f"{given} It is not ranked."
    open_ones = [label for label, each in rivals.items() if each.verdict != WORSE]
    if open_ones:
        return f"{given} It is not ranked. It is not significantly better than {listed(open_ones)}."
    return f"{given} It is an upper bound and is not ranked."
