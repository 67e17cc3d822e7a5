"""Where N and K vary together: how far one method is ahead of the best of the others, cell by cell."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import pandas as pd

from analysis.designs import maps
from analysis.frame import Results
from analysis.inference import AHEAD, BEHIND, Difference, Family, family
from analysis.labels import slug, transductive_words
from analysis.statistics import estimate
from analysis.table import Cell, Table
from analysis.tables import INTERVAL, difference_cell, estimate_cell


@dataclass(frozen=True)
class Margin:
    """One method in one cell, beside every other."""

    n_way: int
    k_shot: int
    ours: pd.Series  # by seed, at the last session
    others: dict[str, pd.Series]

    @cached_property
    def rival(self) -> str:
        """The best of the others, by its mean."""
        return max(self.others, key=lambda label: self.others[label].mean())


@dataclass(frozen=True)
class Margins:
    """The cells of one dataset and protocol."""

    where: str
    label: str  # whose margins they are
    metric: str
    margin: float  # within which methods are equivalent
    cells: list[Margin]
    runs: pd.DataFrame

    @cached_property
    def tests(self) -> Family:
        """Ours less every other in every cell."""
        found = {
            (index, label): cell.ours - other
            for index, cell in enumerate(self.cells)
            for label, other in cell.others.items()
        }
        what = f"{self.label} less every other method in every cell"
        return family(found, what, self.metric, margin=self.margin)

    def lead(self, index: int) -> Difference:
        """Over the best of the others."""
        return self.tests[index, self.cells[index].rival]

    def verdict(self, index: int) -> str:
        """Ahead of all others, behind at least one, or neither."""
        if all(each.verdict == AHEAD for each in self.tests.of(index).values()):
            return AHEAD
        return BEHIND if self.behind(index) else ""

    def behind(self, index: int) -> list[str]:
        return [label for label, each in self.tests.of(index).items() if each.verdict == BEHIND]

    @property
    def words(self) -> str:
        """How it was tested."""
        return (
            f"Margins are of {self.label} over the best other method of the cell, at the last session, in "
            f"points. {self.tests.words} The cells of a dataset are a family of their own. Oracles take no "
            "part."
        )


@lru_cache(maxsize=1)  # tables, findings and figures of a report ask for the same
def margins(results: Results) -> list[Margins]:
    """One for each map."""
    found = []
    for where, label, runs in maps(results):
        cells = [_margin(cell, label) for _, cell in runs.groupby(["n_way", "k_shot"])]
        found.append(Margins(where, label, results.metric, results.margin, cells, runs))
    return found


def _margin(runs: pd.DataFrame, label: str) -> Margin:
    scores = {str(name): each.set_index("seed")["last"] for name, each in runs.groupby("label", sort=False)}
    n_way, k_shot = (int(runs[key].iloc[0]) for key in ("n_way", "k_shot"))
    return Margin(n_way, k_shot, scores.pop(label), scores)


def margin_tables(results: Results) -> Iterator[Table]:
    """A row a cell: ours, the best other, the margin, and whom it is ahead of or behind."""
    for found in margins(results):
        rows, numbers = [], []
        for index, cell in enumerate(found.cells):
            verdict, behind = found.verdict(index), ", ".join(found.behind(index))
            told = {AHEAD: "ahead of all", BEHIND: f"behind {behind}"}.get(verdict, "")
            shape = [Cell(str(value), value) for value in (cell.n_way, cell.k_shot)]
            both = [estimate_cell(estimate(series)) for series in (cell.ours, cell.others[cell.rival])]
            lead = difference_cell(found.lead(index))
            shown = Cell(lead.text, lead.value, mark="*" if verdict else "")
            rows.append([*shape, both[0], Cell(cell.rival, cell.rival), both[1], shown, Cell(told, told)])
            numbers += [
                {"n_way": cell.n_way, "k_shot": cell.k_shot, "less": label, **each.told}
                for label, each in found.tests.of(index).items()
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
        )


def as_grid(found: Margins) -> tuple[list[int], list[int], np.ndarray]:
    """Every N, every K, and (N, K) the number of the cell, or -1."""
    ways, shots = (sorted({getattr(cell, key) for cell in found.cells}) for key in ("n_way", "k_shot"))
    places = np.full((len(ways), len(shots)), -1)
    for index, cell in enumerate(found.cells):
        places[ways.index(cell.n_way), shots.index(cell.k_shot)] = index
    return ways, shots, places
