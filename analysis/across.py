"""What holds on all datasets and what does not: the same comparisons, dataset by dataset.

A verdict is that of the dataset's own table. Variation over seeds describes one graph only; whether datasets
agree is counted, not tested.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from analysis.claims import MOMENTS, Claims, claims
from analysis.designs import Factorial, factorials
from analysis.frame import Panel, Results
from analysis.inference import AHEAD, BEHIND, EQUIVALENT, TOO_FEW, UNDECIDED, Difference
from analysis.labels import transductive_words
from analysis.statistics import estimate, ranks_of
from analysis.table import Cell, Table
from analysis.tables import ABOUT_RANKS, BOLD, INTERVAL, difference_cell, estimate_cell, top_of
from analysis.words import a_look, some

AGREEMENT = (
    "The last column lists the verdicts of each dataset's own table: ahead (more), behind (less) or "
    "equivalent; other datasets are undecided or not tested. Agreement of datasets is counted here, not "
    "tested."
)
OPEN = ("undecided on all", "not tested", "undecided or not tested")  # where no dataset has a verdict


@dataclass(frozen=True)
class Across:
    """One comparison on several datasets."""

    name: str
    found: Mapping[str, Difference]  # by dataset

    def where(self, verdict: str) -> list[str]:
        """The datasets on which this is the verdict."""
        return [name for name, each in self.found.items() if each.verdict == verdict]

    def everywhere(self, verdict: str) -> bool:
        return len(self.where(verdict)) == len(self.found)

    @property
    def mean(self) -> float:
        return sum(each.mean for each in self.found.values()) / len(self.found)

    @property
    def verdicts(self) -> dict[str, list[str]]:
        """By «more», «less» and «equivalent», the datasets that have this verdict."""
        words = {"more": AHEAD, "less": BEHIND, "equivalent": EQUIVALENT}
        return {word: there for word, verdict in words.items() if (there := self.where(verdict))}

    @property
    def verdict(self) -> str:
        """In words, for a table."""
        parts = [
            f"{word} on {'all' if len(there) == len(self.found) else ', '.join(there)}"
            for word, there in self.verdicts.items()
        ]
        return "; ".join(parts) or self.open

    @property
    def open(self) -> str:
        """One of `OPEN`."""
        undecided, untested, both = OPEN
        return undecided if self.everywhere(UNDECIDED) else untested if self.everywhere(TOO_FEW) else both


def by_dataset(results: Results) -> dict[str, Panel]:
    """The panel of each dataset that has just one without leaks; none where that leaves fewer than two."""
    panels = [panel for panel in results.panels() if not panel.leaks and len(panel.labels) > 1]
    names = [str(panel.runs["dataset"].iloc[0]) for panel in panels]
    found = {name: panel for name, panel in zip(names, panels, strict=True) if names.count(name) == 1}
    return found if len(found) > 1 else {}


def compared_methods(panels: Mapping[str, Panel], told: Claims) -> list[Across]:
    """Every configuration that all datasets have less the reference, at the last session."""
    common = common_labels(panels)
    same = {panel.reference for panel in panels.values()}
    if len(same) > 1 or not all("method" in panel.varied() for panel in panels.values()):
        return []
    tests = {name: told.beside(panel, panel.reference) for name, panel in panels.items()}
    return [Across(label, {name: tests[name][label] for name in panels}) for label in common[1:]]


def compared_effects(panels: Mapping[str, Panel], told: Claims, moment: str) -> dict[str, list[Across]]:
    """By ablation: the effects of its factors, where all datasets have it; interactions aside."""
    found: dict[str, dict[str, Factorial]] = {}
    for dataset, panel in panels.items():
        for factorial in factorials(panel):
            found.setdefault(factorial.name, {})[dataset] = factorial
    compared = {}
    for name, there in found.items():
        if set(there) == set(panels):
            effects = {dataset: told.effects_of(each, moment) for dataset, each in there.items()}
            shared = set.intersection(*map(set, effects.values()))
            names = [each for each in next(iter(effects.values())) if each in shared and " x " not in each]
            compared[name] = [Across(e, {d: effects[d][e] for d in effects}) for e in names]
    return compared


def across_tables(results: Results) -> Iterator[Table]:
    """Methods with their ranks, and effects of an ablation, dataset by dataset."""
    panels, told = by_dataset(results), claims(results)
    if not panels:
        return
    if methods := compared_methods(panels, told):
        yield _methods_table(panels, methods, told)
    for moment in MOMENTS:
        for name, effects in compared_effects(panels, told, moment).items():
            yield _effects_table(panels, name, moment, effects)


def across_words(results: Results) -> Iterator[str]:
    """«On all of debian, metamath and wordnet: …»."""
    panels, told = by_dataset(results), claims(results)
    if not panels:
        return
    there = ", ".join(panels)
    if methods := compared_methods(panels, told):
        reference = common_labels(panels)[0]
        oracles = oracles_of(panels)
        rivals = sorted((each for each in methods if each.name not in oracles), key=lambda each: -each.mean)
        where = f"Compared with {reference} at the last session on {there}"
        if rivals:
            yield _sorted_words(where, rivals, "ahead", "behind")
    for moment, when in MOMENTS.items():
        for name, effects in compared_effects(panels, told, moment).items():
            what = f"{name}, at" if name else "At"
            yield _sorted_words(f"{what} {when} on {there}", effects, "above zero", "below zero")


def _sorted_words(where: str, compared: list[Across], more: str, less: str) -> str:
    """«At the last session on debian, wordnet: above zero on all: GPIL; equivalent on all: NLA, TLA.»"""
    whole = {AHEAD: f"{more} on all", BEHIND: f"{less} on all", EQUIVALENT: "equivalent on all"}
    groups: dict[str, list[str]] = {words: [] for words in (*whole.values(), "decided on some only", *OPEN)}
    for each in compared:
        words = next((words for verdict, words in whole.items() if each.everywhere(verdict)), None)
        if words is None:
            words = "decided on some only" if each.verdicts else each.open
        groups[words].append(each.name)
    parts = [f"{words}: {some(names)}" for words, names in groups.items() if names]
    return f"{where}: {'; '.join(parts)}."


def _methods_table(panels: Mapping[str, Panel], compared: list[Across], told: Claims) -> Table:
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
        for name in panels:
            found = estimate(last[name][label])
            rank = ranks[name].get(label, np.nan)
            cell = estimate_cell(found, best=label in tops[name])
            cells.append(cell if np.isnan(rank) else replace(cell, text=f"{cell.text} ({rank:.0f})"))
            numbers.append({"configuration": label, "dataset": name, "rank": rank, **vars(found)})
        mean = means.get(label, np.nan)
        head = [Cell(label, label), *cells, Cell("", None) if np.isnan(mean) else Cell(f"{mean:.1f}", mean)]
        rows.append([*head, Cell(verdicts.get(label, "reference"), verdicts.get(label, ""))])
    everyone = pd.concat([panel.runs for panel in panels.values()])
    return Table(
        name="across-methods",
        section="comparison",
        title="Methods on every dataset: the last session and the rank by it",
        caption=(
            f"{INTERVAL} {AGREEMENT} Differences are from {common[0]}. {ABOUT_RANKS}"
            f"{f' {BOLD}' if any(tops.values()) else ''}"
        ),
        columns=[
            "configuration",
            *(f"{name} (rank)" for name in panels),
            "mean rank",
            f"less {common[0]}",
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
        caption=f"Points of accuracy, as in each dataset's own table of effects. {AGREEMENT}",
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


def oracles_of(panels: Mapping[str, Panel]) -> set[str]:
    """Configurations that know more than the others, on any dataset."""
    return set.union(*(panel.oracles for panel in panels.values()))


def common_labels(panels: Mapping[str, Panel]) -> list[str]:
    """The configurations that all have, in the order of the first."""
    shared = set.intersection(*(set(panel.labels) for panel in panels.values()))
    return [label for label in next(iter(panels.values())).labels if label in shared]
