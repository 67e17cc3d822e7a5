"""Where N and K vary together: how far one method is ahead of the best of the others, cell by cell."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from analysis.designs import grids
from analysis.frame import Results
from analysis.inference import AHEAD, BEHIND, LEVEL, Difference, family, holm
from analysis.labels import slug, transductive_words
from analysis.statistics import estimate
from analysis.table import Cell, Table
from analysis.tables import INTERVAL, difference_cell, estimate_cell

OURS = "posterior-means"


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

    @cached_property
    def differences(self) -> dict[str, Difference]:
        """Ours less each of the others."""
        found = {(label,): self.ours - other for label, other in self.others.items()}
        return family(found, "", "").of()

    @property
    def lead(self) -> Difference:
        return self.differences[self.rival]

    @property
    def leads(self) -> bool:
        return all(each.mean > 0 for each in self.differences.values())

    @property
    def p(self) -> float:
        """Where it leads all others, that it does not; else that it is behind none of them."""
        found = self.differences.values()
        if self.leads:
            return max(each.p for each in found)  # each by itself: all must hold
        return min((each.corrected for each in found if each.mean < 0), default=1.0)


@dataclass(frozen=True)
class Margins:
    """The cells of one dataset and protocol."""

    where: str
    label: str  # whose margins they are
    metric: str
    cells: list[Margin]
    runs: pd.DataFrame

    @cached_property
    def corrected(self) -> list[float]:
        """The cells' p, Holm-corrected over them."""
        return list(holm([cell.p for cell in self.cells]))

    def verdict(self, index: int) -> str:
        """Ahead of all others, behind at least one, or neither."""
        if not self.corrected[index] < LEVEL:
            return ""
        return AHEAD if self.cells[index].leads else BEHIND

    def behind(self, index: int) -> list[str]:
        """Those that a cell which is behind is significantly behind of."""
        found = self.cells[index].differences
        return [label for label, each in found.items() if each.mean < 0 and each.significant]

    @property
    def words(self) -> str:
        """How it was tested."""
        return (
            f"Margins are of {self.label} over the best other method of the cell, by {self.metric} at the "
            "last session, in points, paired by seed, with Student's 95 % intervals. Tested is against "
            "every other method, by exact sign-flip tests: ahead of each of them, or behind at least one "
            "(step-down maximum over the methods); Holm-corrected over the cells of the dataset, p < 0.05. "
            "Oracles take no part."
        )


def margins(results: Results) -> Iterator[Margins]:
    """One for each dataset and protocol in which N and K both vary and methods are compared."""
    for where, runs in grids(results):
        rivals = runs[~runs["oracle"] | runs["leaks"]]
        if runs["n_way"].nunique() < 2 or runs["k_shot"].nunique() < 2 or rivals["method"].nunique() < 2:
            continue
        label = _whose(rivals)
        cells = [_margin(cell, label) for _, cell in rivals.groupby(["n_way", "k_shot"])]
        found = [cell for cell in cells if cell is not None]
        if len(found) > 1:
            yield Margins(where, label, results.metric, found, runs)


def _whose(runs: pd.DataFrame) -> str:
    """Our own method where it is there, or what all else is compared with."""
    own = runs[runs["method"] == OURS]
    return str((own if len(own) else runs)["label"].iloc[0])


def _margin(runs: pd.DataFrame, label: str) -> Margin | None:
    scores = {str(name): each.set_index("seed")["last"] for name, each in runs.groupby("label", sort=False)}
    if label not in scores or len(scores) < 2:
        return None
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
            lead = difference_cell(cell.lead)
            shown = Cell(lead.text, lead.value, mark="*" if verdict else "")
            rows.append([*shape, both[0], Cell(cell.rival, cell.rival), both[1], shown, Cell(told, told)])
            numbers += [
                {"n_way": cell.n_way, "k_shot": cell.k_shot, "less": label, **each.told}
                | {"of the cell": found.corrected[index], "cell": verdict}
                for label, each in cell.differences.items()
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
