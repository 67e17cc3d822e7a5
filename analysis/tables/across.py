"""Show the same comparisons on every dataset, and where the datasets agree.

Each verdict comes from the dataset's own table. Variation over seeds describes one graph only. The agreement
of datasets is counted, not tested.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from analysis.comparisons import Analysis
from analysis.data.labels import transductive_words
from analysis.data.results import Panel
from analysis.designs.datasets import common_labels, oracles_of
from analysis.designs.factorials import MOMENTS, Factorial
from analysis.statistics.estimates import estimate, ranks_of
from analysis.statistics.inference import BETTER, EQUIVALENT, INCONCLUSIVE, TOO_FEW, WORSE, Difference
from analysis.tables.cells import ABOUT_RANKS, BOLD, INTERVAL, difference_cell, estimate_cell, top_of, wide
from analysis.tables.table import Cell, Table
from analysis.words import a_look

AGREEMENT = (
    "The last column lists the verdicts of each dataset's own table. Datasets that it does not name are "
    "inconclusive or not tested. The agreement of datasets is counted, not tested."
)
OPEN = ("inconclusive on all", "not tested", "inconclusive or not tested")  # if no dataset has a verdict


@dataclass(frozen=True)
class Across:
    """One comparison on several datasets."""

    name: str
    found: Mapping[str, Difference]  # by dataset

    def where(self, verdict: str) -> list[str]:
        """Return the datasets that have this `verdict`."""
        return [name for name, each in self.found.items() if each.verdict == verdict]

    def everywhere(self, verdict: str) -> bool:
        return len(self.where(verdict)) == len(self.found)

    @property
    def mean(self) -> float:
        return sum(each.mean for each in self.found.values()) / len(self.found)

    @property
    def verdicts(self) -> dict[str, list[str]]:
        """Return the datasets by verdict."""
        return {each: there for each in (BETTER, WORSE, EQUIVALENT) if (there := self.where(each))}

    @property
    def verdict(self) -> str:
        """Return the verdicts of all datasets in words, for a table."""
        parts = [
            f"{word} on {'all' if len(there) == len(self.found) else ', '.join(there)}"
            for word, there in self.verdicts.items()
        ]
        return "; ".join(parts) or self.open

    @property
    def open(self) -> str:
        """Return one of `OPEN`."""
        inconclusive, untested, both = OPEN
        return (
            inconclusive if self.everywhere(INCONCLUSIVE) else untested if self.everywhere(TOO_FEW) else both
        )


def compared_methods(analysis: Analysis) -> list[Across]:
    """Return each configuration that all datasets have minus the reference, at the last session."""
    panels, told = analysis.by_dataset, analysis.comparisons
    common = common_labels(panels)
    same = {panel.reference for panel in panels.values()}
    if len(same) > 1 or not all("method" in panel.varied() for panel in panels.values()):
        return []
    tests = {name: told.against(panel, panel.reference) for name, panel in panels.items()}
    return [Across(label, {name: tests[name][label] for name in panels}) for label in common[1:]]


def compared_effects(analysis: Analysis, moment: str) -> dict[str, list[Across]]:
    """Return the main effects of each ablation that all datasets have, by the ablation's name."""
    panels, told = analysis.by_dataset, analysis.comparisons
    found: dict[str, dict[str, Factorial]] = {}
    for dataset, panel in panels.items():
        for factorial in analysis.factorials(panel):
            found.setdefault(factorial.name, {})[dataset] = factorial
    compared = {}
    for name, there in found.items():
        if set(there) == set(panels):
            effects = {dataset: told.effects_of(each, moment) for dataset, each in there.items()}
            shared = set.intersection(*map(set, effects.values()))
            names = [each for each in next(iter(effects.values())) if each in shared and " x " not in each]
            compared[name] = [Across(e, {d: effects[d][e] for d in effects}) for e in names]
    return compared


def across_tables(analysis: Analysis) -> Iterator[Table]:
    """Yield a table of methods with their ranks, and tables of effects, with a column per dataset."""
    panels = analysis.by_dataset
    if not panels:
        return
    if methods := compared_methods(analysis):
        yield _methods_table(analysis, methods)
    for moment in MOMENTS:
        for name, effects in compared_effects(analysis, moment).items():
            yield _effects_table(panels, name, moment, effects)


def _methods_table(analysis: Analysis, compared: list[Across]) -> Table:
    panels, told = analysis.by_dataset, analysis.comparisons
    common = common_labels(panels)
    verdicts = {each.name: each.verdict for each in compared}
    oracles = oracles_of(panels)
    rivals = [label for label in common if label not in oracles]
    last = {name: panel.by_seed("last") for name, panel in panels.items()}
    ranks = pd.DataFrame({name: ranks_of(table[rivals]) for name, table in last.items()})
    means = ranks.mean(axis=1, skipna=False)
    tops = {name: top_of(panel, told) for name, panel in panels.items()}
    rows, numbers = [], []
    for label in sorted(common, key=lambda label: (label in oracles, means.get(label, 0.0))):
        cells = []
        row: dict[str, Any] = {"configuration": label}
        for name in panels:
            found = estimate(last[name][label])
            rank = ranks[name].get(label, np.nan)
            cell = estimate_cell(found, best=label in tops[name])
            cells.append(cell if np.isnan(rank) else replace(cell, text=f"{cell.text} ({rank:.0f})"))
            row |= wide(name, found) | {f"{name} rank": rank}
        mean = means.get(label, np.nan)
        numbers.append(row | {"mean rank": mean, "verdict": verdicts.get(label, "reference")})
        head = [Cell(label, label), *cells, Cell("", None) if np.isnan(mean) else Cell(f"{mean:.1f}", mean)]
        rows.append([*head, Cell(verdicts.get(label, "reference"), verdicts.get(label, ""))])
    everyone = pd.concat([panel.runs for panel in panels.values()])
    return Table(
        name="across-methods",
        section="comparison",
        title="Methods on every dataset: accuracy at the last session, and rank",
        caption=(
            f"{INTERVAL} {AGREEMENT} Methods are compared with {common[0]}. {ABOUT_RANKS}"
            f"{f' {BOLD}' if any(tops.values()) else ''}"
        ),
        columns=[
            "configuration",
            *(f"{name} (rank)" for name in panels),
            "mean rank",
            f"compared with {common[0]}",
        ],
        rows=rows,
        numbers=pd.DataFrame(numbers),
        notes=transductive_words(everyone),
        reference=[row[0].text for row in rows].index(common[0]),
        badge=a_look(max(panel.enough for panel in panels.values())),
    )


def _effects_table(panels: Mapping[str, Panel], name: str, moment: str, effects: list[Across]) -> Table:
    return Table(
        name="-".join(["across-effects", moment, *name.split()]),
        section="ablation",
        title=f"Effects on every dataset, {MOMENTS[moment]}{f'; {name}' if name else ''}",
        caption=f"Effects in points, as in each dataset's own table of effects. {AGREEMENT}",
        columns=["effect", *panels, "verdict"],
        rows=[
            [
                Cell(each.name, each.name),
                *(difference_cell(difference) for difference in each.found.values()),
                Cell(each.verdict, each.verdict),
            ]
            for each in effects
        ],
        numbers=pd.DataFrame(
            [
                {"effect": each.name, "dataset": dataset, **difference.told}
                for each in effects
                for dataset, difference in each.found.items()
            ]
        ),
    )
