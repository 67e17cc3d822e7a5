"""Compute the margin of one method over the best other method, for each combination of N and K."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from analysis.comparisons import Analysis
from analysis.data.labels import slug, transductive_words
from analysis.statistics.estimates import estimate
from analysis.statistics.inference import BETTER, TOO_FEW, WORSE, Difference, Family
from analysis.tables.cells import INTERVAL, difference_cell, estimate_cell
from analysis.tables.table import Cell, Table
from analysis.words import a_look


@dataclass(frozen=True)
class Margin:
    """One method compared with every other method, for one N and K."""

    n_way: int
    k_shot: int
    own: pd.Series  # by seed, at the last session
    others: dict[str, pd.Series]
    tests: dict[str, Difference]  # own minus each of the others

    @cached_property
    def rival(self) -> str:
        """Return the best other method on shared seeds, or by its mean if none shares a seed."""
        shared = {label: test.mean for label, test in self.tests.items() if test.seeds}
        if shared:
            return min(shared, key=lambda label: shared[label])
        return max(self.others, key=lambda label: self.others[label].mean())

    @property
    def lead(self) -> Difference:
        """Return the difference from the best other method."""
        return self.tests[self.rival]

    @property
    def verdict(self) -> str:
        """Return BETTER than all, WORSE than at least one, TOO_FEW, or an empty string."""
        verdicts = [each.verdict for each in self.tests.values()]
        if self.worse_than:
            return WORSE
        if all(verdict == BETTER for verdict in verdicts):
            return BETTER
        return TOO_FEW if TOO_FEW in verdicts else ""

    @property
    def worse_than(self) -> list[str]:
        return [label for label, each in self.tests.items() if each.verdict == WORSE]


@dataclass(frozen=True)
class Margins:
    """The margins of one method on one dataset and protocol."""

    where: str
    label: str  # the method
    tests: Family
    cells: list[Margin]
    runs: pd.DataFrame

    @property
    def words(self) -> str:
        """Return sentences that describe the margins and their tests."""
        return (
            f"A margin is {self.label} minus the best other method for the same N and K. It is in points, at "
            f"the last session. Oracles are left out. {self.tests.words}"
        )

    @property
    def badge(self) -> str:
        """Return a warning if no combination of N and K has enough seeds to test."""
        return a_look(max(each.seeds for cell in self.cells for each in cell.tests.values()))


def margins(analysis: Analysis) -> list[Margins]:
    """Return the margins for each dataset and protocol in which N and K vary."""
    tests = analysis.comparisons.margins
    return [
        Margins(where, label, tests, _cells(runs, where, label, tests), runs)
        for where, label, runs in analysis.maps
    ]


def _cells(runs: pd.DataFrame, where: str, label: str, tests: Family) -> list[Margin]:
    return [_margin(cell, where, label, tests) for _, cell in runs.groupby(["n_way", "k_shot"])]


def _margin(runs: pd.DataFrame, where: str, label: str, tests: Family) -> Margin:
    scores = {str(name): each.set_index("seed")["last"] for name, each in runs.groupby("label", sort=False)}
    n_way, k_shot = (int(runs[key].iloc[0]) for key in ("n_way", "k_shot"))
    return Margin(n_way, k_shot, scores.pop(label), scores, tests.of(where, n_way, k_shot))


def margin_tables(analysis: Analysis) -> Iterator[Table]:
    """Yield tables with one row per N and K: the method, the best other, the margin and the verdict."""
    for found in margins(analysis):
        rows, numbers = [], []
        for cell in found.cells:
            told = {
                BETTER: f"{BETTER} than all",
                WORSE: f"{WORSE} than {', '.join(cell.worse_than)}",
                TOO_FEW: TOO_FEW,
            }
            verdict = told.get(cell.verdict, "not better than all")
            shape = [Cell(str(value), value) for value in (cell.n_way, cell.k_shot)]
            both = [estimate_cell(estimate(series)) for series in (cell.own, cell.others[cell.rival])]
            lead = difference_cell(cell.lead)
            rows.append(
                [*shape, both[0], Cell(cell.rival, cell.rival), both[1], lead, Cell(verdict, verdict)]
            )
            numbers += [
                {"n_way": cell.n_way, "k_shot": cell.k_shot, "minus": label, **each.told}
                for label, each in cell.tests.items()
            ]
        yield Table(
            name=slug("margins", found.where),
            section="settings",
            title=f"Margins of {found.label}: {found.where}",
            caption=f"{INTERVAL} {found.words}",
            columns=["N", "K", found.label, "best other", "its accuracy", "margin", "verdict"],
            rows=rows,
            numbers=pd.DataFrame(numbers),
            notes=transductive_words(found.runs),
            leaks=bool(found.runs["leaks"].any()),
            badge=found.badge,
        )


def as_grid(found: Margins) -> tuple[list[int], list[int], np.ndarray]:
    """Return all N, all K, and an array (N, K) with the index of the cell, or -1 if it was not run."""
    ways, shots = (sorted({getattr(cell, key) for cell in found.cells}) for key in ("n_way", "k_shot"))
    places = np.full((len(ways), len(shots)), -1)
    for index, cell in enumerate(found.cells):
        places[ways.index(cell.n_way), shots.index(cell.k_shot)] = index
    return ways, shots, places
