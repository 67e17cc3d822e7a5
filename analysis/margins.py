"""Where N and K vary together: how far one method is ahead of the best of the others, cell by cell."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import pandas as pd

from analysis.claims import claims
from analysis.designs import maps
from analysis.frame import Results
from analysis.inference import AHEAD, BEHIND, TOO_FEW, Difference, Family
from analysis.labels import slug, transductive_words
from analysis.statistics import estimate
from analysis.table import Cell, Table
from analysis.tables import INTERVAL, difference_cell, estimate_cell
from analysis.words import a_look


@dataclass(frozen=True)
class Margin:
    """One method in one cell, compared with every other."""

    n_way: int
    k_shot: int
    own: pd.Series  # by seed, at the last session
    others: dict[str, pd.Series]
    tests: dict[str, Difference]  # own less each of the others

    @cached_property
    def rival(self) -> str:
        """The best of the others, by the seeds that it shares; by its mean where none shares any."""
        shared = {label: test.mean for label, test in self.tests.items() if test.seeds}
        if shared:
            return min(shared, key=lambda label: shared[label])
        return max(self.others, key=lambda label: self.others[label].mean())

    @property
    def lead(self) -> Difference:
        """Over the best of the others."""
        return self.tests[self.rival]

    @property
    def verdict(self) -> str:
        """Ahead of all others, behind at least one, not tested, or none of these."""
        verdicts = [each.verdict for each in self.tests.values()]
        if self.behind:
            return BEHIND
        if all(verdict == AHEAD for verdict in verdicts):
            return AHEAD
        return TOO_FEW if TOO_FEW in verdicts else ""

    @property
    def behind(self) -> list[str]:
        return [label for label, each in self.tests.items() if each.verdict == BEHIND]


@dataclass(frozen=True)
class Margins:
    """The cells of one dataset and protocol."""

    where: str
    label: str  # whose margins they are
    tests: Family
    cells: list[Margin]
    runs: pd.DataFrame

    @property
    def words(self) -> str:
        """How it was tested."""
        return (
            f"Margins are of {self.label} over the best other method of the cell, at the last session, in "
            f"points. {self.tests.words} Oracles take no part."
        )

    @property
    def badge(self) -> str:
        """What to say where no cell has enough seeds to decide anything."""
        return a_look(max(each.seeds for cell in self.cells for each in cell.tests.values()))


@lru_cache(maxsize=1)  # tables, findings and figures of a report ask for the same
def margins(results: Results) -> list[Margins]:
    """One for each map."""
    tests = claims(results).margins
    return [
        Margins(where, label, tests, _cells(runs, where, label, tests), runs)
        for where, label, runs in maps(results)
    ]


def _cells(runs: pd.DataFrame, where: str, label: str, tests: Family) -> list[Margin]:
    return [_margin(cell, where, label, tests) for _, cell in runs.groupby(["n_way", "k_shot"])]


def _margin(runs: pd.DataFrame, where: str, label: str, tests: Family) -> Margin:
    scores = {str(name): each.set_index("seed")["last"] for name, each in runs.groupby("label", sort=False)}
    n_way, k_shot = (int(runs[key].iloc[0]) for key in ("n_way", "k_shot"))
    return Margin(n_way, k_shot, scores.pop(label), scores, tests.of(where, n_way, k_shot))


def margin_tables(results: Results) -> Iterator[Table]:
    """A row a cell: ours, the best other, the margin, and whom it is ahead of or behind."""
    for found in margins(results):
        rows, numbers = [], []
        for cell in found.cells:
            told = {AHEAD: "ahead of all", BEHIND: f"behind {', '.join(cell.behind)}", TOO_FEW: TOO_FEW}
            verdict = told.get(cell.verdict, "not ahead of all")
            shape = [Cell(str(value), value) for value in (cell.n_way, cell.k_shot)]
            both = [estimate_cell(estimate(series)) for series in (cell.own, cell.others[cell.rival])]
            lead = difference_cell(cell.lead)
            rows.append(
                [*shape, both[0], Cell(cell.rival, cell.rival), both[1], lead, Cell(verdict, verdict)]
            )
            numbers += [
                {"n_way": cell.n_way, "k_shot": cell.k_shot, "less": label, **each.told}
                for label, each in cell.tests.items()
            ]
        yield Table(
            name=slug("margins", found.where),
            section="settings",
            title=f"Margins of {found.label}: {found.where}",
            caption=f"{INTERVAL} {found.words}",
            columns=["N", "K", found.label, "best other", "its accuracy", "margin", "tested"],
            rows=rows,
            numbers=pd.DataFrame(numbers),
            notes=transductive_words(found.runs),
            leaks=bool(found.runs["leaks"].any()),
            badge=found.badge,
        )


def as_grid(found: Margins) -> tuple[list[int], list[int], np.ndarray]:
    """Every N, every K, and (N, K) the number of the cell, or -1."""
    ways, shots = (sorted({getattr(cell, key) for cell in found.cells}) for key in ("n_way", "k_shot"))
    places = np.full((len(ways), len(shots)), -1)
    for index, cell in enumerate(found.cells):
        places[ways.index(cell.n_way), shots.index(cell.k_shot)] = index
    return ways, shots, places
