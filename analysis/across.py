"""What holds on all datasets and what does not: the same comparisons, dataset by dataset.

A verdict is that of the dataset's own table: ahead or behind where the difference is significant there. Seeds
tell of the graph that they were drawn on; whether datasets agree is counted, not tested.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pandas as pd

from analysis.designs import Factorial, whole_factorials
from analysis.frame import Panel, Results
from analysis.labels import transductive_words
from analysis.statistics import Difference, against, estimate
from analysis.table import Cell, Table
from analysis.tables import INTERVAL, difference_cell, estimate_cell

AGREEMENT = (
    "The last column says on which datasets the difference is significant, each by its own table's test. "
    "Datasets are too few to test over: their agreement is counted."
)


@dataclass(frozen=True)
class Across:
    """One comparison on several datasets."""

    name: str
    found: Mapping[str, Difference]  # by dataset

    def where(self, sign: int) -> list[str]:
        """The datasets on which it is significant and has this sign."""
        return [name for name, each in self.found.items() if each.significant and sign * each.mean > 0]

    @property
    def holds(self) -> int:
        """1 or -1 where all datasets agree on a significant difference, else 0."""
        return next((sign for sign in (1, -1) if len(self.where(sign)) == len(self.found)), 0)

    @property
    def verdict(self) -> str:
        """In words, for a table."""
        more, less = self.where(1), self.where(-1)
        if self.holds:
            return f"{'more' if self.holds > 0 else 'less'} on all"
        parts = [f"{word} on {', '.join(there)}" for word, there in (("more", more), ("less", less)) if there]
        return "; ".join(parts) or "on none"


def by_dataset(results: Results) -> dict[str, Panel]:
    """The panel of each dataset that has just one without leaks; none where that leaves fewer than two."""
    panels = [panel for panel in results.panels() if not panel.leaks and len(panel.labels) > 1]
    names = [str(panel.runs["dataset"].iloc[0]) for panel in panels]
    found = {name: panel for name, panel in zip(names, panels, strict=True) if names.count(name) == 1}
    return found if len(found) > 1 else {}


def compared_methods(panels: Mapping[str, Panel]) -> list[Across]:
    """Every configuration that all datasets have less the first of them, at the last session."""
    common = _common(panels)
    if len(common) < 2 or not all("method" in panel.varied() for panel in panels.values()):
        return []
    tests = {name: against(panel.by_seed("last"), common[0]) for name, panel in panels.items()}
    return [Across(label, {name: tests[name][label] for name in panels}) for label in common[1:]]


def compared_effects(panels: Mapping[str, Panel], moment: str) -> dict[str, list[Across]]:
    """By ablation: the effects of its factors, where all datasets have it; interactions aside."""
    found: dict[str, dict[str, Factorial]] = {}
    for dataset, panel in panels.items():
        for factorial in whole_factorials(panel):
            found.setdefault(factorial.name, {})[dataset] = factorial
    compared = {}
    for name, factorials in found.items():
        if set(factorials) == set(panels):
            effects = {dataset: each.effects(moment) for dataset, each in factorials.items()}
            shared = set.intersection(*map(set, effects.values()))
            names = [each for each in next(iter(effects.values())) if each in shared and " x " not in each]
            compared[name] = [Across(e, {d: effects[d][e] for d in effects}) for e in names]
    return compared


def across_tables(results: Results) -> Iterator[Table]:
    """Methods with their ranks, and effects of an ablation, dataset by dataset."""
    panels = by_dataset(results)
    if not panels:
        return
    if methods := compared_methods(panels):
        yield _methods_table(panels, methods)
    for moment in ("first", "last"):
        for name, effects in compared_effects(panels, moment).items():
            yield _effects_table(panels, name, moment, effects)


def across_words(results: Results) -> Iterator[str]:
    """«On all of debian, metamath and wordnet: …»."""
    panels = by_dataset(results)
    if not panels:
        return
    there = ", ".join(panels)
    if methods := compared_methods(panels):
        reference = _common(panels)[0]
        oracles = _oracles(panels)
        rivals = [each for each in methods if each.name not in oracles]
        yield _sorted_words(f"At the last session on {there}, beside {reference}", rivals, "ahead", "behind")
    for moment, when in (("first", "session 0"), ("last", "the last session")):
        for name, effects in compared_effects(panels, moment).items():
            what = f"{name}, at" if name else "At"
            yield _sorted_words(f"{what} {when} on {there}", effects, "above zero", "below zero")


def _sorted_words(where: str, compared: list[Across], more: str, less: str) -> str:
    groups = {
        f"{more} on all": [each.name for each in compared if each.holds > 0],
        f"{less} on all": [each.name for each in compared if each.holds < 0],
        "certain on none": [each.name for each in compared if not each.where(1) and not each.where(-1)],
        "on some only": [
            each.name for each in compared if not each.holds and (each.where(1) or each.where(-1))
        ],
    }
    parts = [f"{words}: {', '.join(names)}" for words, names in groups.items() if names]
    return f"{where}: {'; '.join(parts)}."


def _methods_table(panels: Mapping[str, Panel], compared: list[Across]) -> Table:
    common = _common(panels)
    verdicts = {each.name: each.verdict for each in compared}
    oracles = _oracles(panels)
    rivals = [label for label in common if label not in oracles]
    ranks = {
        name: panel.by_seed("last")[rivals].mean().rank(ascending=False, method="min")
        for name, panel in panels.items()
    }
    rows, numbers = [], []
    for label in common:
        cells = []
        for name, panel in panels.items():
            found = estimate(panel.by_seed("last")[label])
            rank = int(ranks[name][label]) if label in rivals else None
            cells += [estimate_cell(found, best=rank == 1), Cell("" if rank is None else str(rank), rank)]
            numbers.append({"configuration": label, "dataset": name, "rank": rank, **vars(found)})
        mean = sum(ranks[name][label] for name in panels) / len(panels) if label in rivals else None
        head = [Cell(label, label), *cells, Cell("" if mean is None else f"{mean:.1f}", mean)]
        rows.append([*head, Cell(verdicts.get(label, "reference"), verdicts.get(label, ""))])
    return Table(
        name="across-methods",
        section="comparison",
        title="Methods on every dataset: the last session and the rank by it",
        caption=f"{INTERVAL} {AGREEMENT} Differences are from {common[0]}.",
        columns=[
            "configuration",
            *(column for name in panels for column in (name, "rank")),
            "mean rank",
            f"less {common[0]}",
        ],
        rows=rows,
        numbers=pd.DataFrame(numbers),
        notes=transductive_words(pd.concat([panel.runs for panel in panels.values()])),
        reference=0,
    )


def _effects_table(panels: Mapping[str, Panel], name: str, moment: str, effects: list[Across]) -> Table:
    session = f"{moment} session"
    return Table(
        name="-".join(["across-effects", moment, *name.split()]),
        section="ablation",
        title=f"Effects on every dataset, {session}{f'; {name}' if name else ''}",
        caption=f"Points of accuracy, as in each dataset's own table of effects. {AGREEMENT}",
        columns=["effect", *panels, "significant"],
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
                {"effect": each.name, "dataset": dataset, **vars(difference)}
                for each in effects
                for dataset, difference in each.found.items()
            ]
        ),
    )


def _oracles(panels: Mapping[str, Panel]) -> set[str]:
    return set.union(*(panel.oracles for panel in panels.values()))


def _common(panels: Mapping[str, Panel]) -> list[str]:
    """The configurations that all have, in the order of the first."""
    shared = set.intersection(*(set(panel.labels) for panel in panels.values()))
    return [label for label in next(iter(panels.values())).labels if label in shared]
