"""List the comparisons of a report by family, and test them together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations, product
from typing import Any

import pandas as pd

from analysis.data.results import Panel, Results
from analysis.designs.datasets import by_dataset
from analysis.designs.design import N_AND_K, ONE_AT_A_TIME, PROTOCOLS, Design, designs_of, of_kind
from analysis.designs.factorials import MOMENTS, Factorial, factorials
from analysis.designs.n_and_k import Grid, grids, maps, shots
from analysis.designs.one_at_a_time import one_at_a_time
from analysis.designs.protocols import ProtocolSetting, protocol_pairs, protocol_settings
from analysis.designs.rankings import Ranking, rankings
from analysis.statistics.estimates import adjusted_means
from analysis.statistics.inference import MARGIN, Difference, Family, families
from analysis.statistics.over_datasets import OverDatasets, over_datasets

MOST_RIVALS = 40  # with more configurations, not all pairs are compared
QUESTIONS = {
    "pairs": "pairs of configurations (each with the reference and the oracles, and all pairs of methods) at "
    "the last session",
    "effects": "effects and interactions at session 0 and at the last session",
    "protocols": "released minus strict at session 0 and at the last session",
    "values": "each value of the setting minus the first value, for each method at the last session",
    "shots": "the largest K minus the smallest K at the last session",
    "margins": "one method minus each other method, for each N and K at the last session",
}
AGAINST_REFERENCES = "your method minus each reference at the last session"


@dataclass(frozen=True)
class Comparisons:
    """The families of one report, corrected together; see `analysis.statistics.inference`.

    The comments name the keys of each family.
    """

    pairs: Family  # panel, configuration, the configuration that is subtracted
    effects: Family  # factorial, moment, effect
    protocols: Family  # place, configuration, moment
    values: Family  # place, setting, value, method
    shots: Family  # place, configuration, N
    margins: Family  # place, N, K, the other method
    asymmetry: float  # p of the test that differences are symmetric over seeds, as the tests assume

    @property
    def families(self) -> list[Family]:
        return [each for each in vars(self).values() if isinstance(each, Family)]

    @property
    def tested(self) -> int:
        """Return the number of comparisons with enough seeds."""
        return self.pairs.total

    def pair(self, panel: Panel, one: str, other: str) -> Difference | None:
        """Return `one` minus `other` in `panel`, or None if the report does not compare them."""
        there = self.pairs.comparisons
        if (panel.title, one, other) in there:
            return there[panel.title, one, other]
        turned = there.get((panel.title, other, one))
        if turned is None:
            return None
        return replace(turned, mean=-turned.mean, low=-turned.high, high=-turned.low)

    def against(self, panel: Panel, reference: str) -> dict[str, Difference]:
        """Return each configuration of `panel` minus `reference`, for those that were compared with it."""
        found = {label: self.pair(panel, label, reference) for label in panel.labels}
        return {label: each for label, each in found.items() if each is not None}

    def effects_of(self, factorial: Factorial, moment: str) -> dict[str, Difference]:
        """Return the effects at `moment` by name. Effects that are equal for every seed share one test."""
        found = self.effects.of(factorial.title, moment)
        aliases = factorial.aliases(moment)
        return {name: found[aliases.get(name, name)] for name in factorial.contrasts(moment)}


@dataclass(frozen=True, eq=False)
class Analysis:
    """Results, the designs in them, and all comparisons that these allow, tested together.

    Tables, findings, figures and the explorer of a report read the same analysis.
    """

    results: Results
    designs: tuple[Design, ...] = ()  # by default, those that the launches wrote down, or every kind
    margin: float = MARGIN  # smaller differences count as equivalent
    own: tuple[str, ...] = ()  # if given, only these are compared, with each other configuration

    def __post_init__(self) -> None:
        object.__setattr__(self, "designs", self.designs or designs_of(self.results))

    @property
    def panels(self) -> list[Panel]:
        return self.results.panels

    def factorials(self, panel: Panel) -> list[Factorial]:
        """Return the factorials of a panel."""
        return self._factorials[panel.title]

    @cached_property
    def _factorials(self) -> Mapping[str, list[Factorial]]:
        return {panel.title: factorials(panel, self.designs) for panel in self.panels}

    def one_at_a_time(self, panel: Panel) -> dict[str, list[str]]:
        """Return labels by the single setting in which each differs from the reference."""
        asked = of_kind(self.designs, ONE_AT_A_TIME)
        return one_at_a_time(panel, self.factorials(panel)) if asked else {}

    @cached_property
    def protocols(self) -> list[ProtocolSetting]:
        """Return the settings whose configurations ran under both protocols."""
        return protocol_settings(self.results) if of_kind(self.designs, PROTOCOLS) else []

    @cached_property
    def protocol_pairs(self) -> list[tuple[str, str, pd.DataFrame, pd.DataFrame]]:
        """Return (where, name, strict runs, released runs) for configurations with both protocols."""
        return protocol_pairs(self.protocols)

    @cached_property
    def grids(self) -> list[Grid]:
        """Return (where, runs) for settings with several N or K."""
        return grids(self.results) if of_kind(self.designs, N_AND_K) else []

    @cached_property
    def maps(self) -> list[tuple[str, str, pd.DataFrame]]:
        """Return (where, label, runs) where one method can be compared with others for several N and K."""
        return maps(self.grids)

    @cached_property
    def shots(self) -> list[tuple[str, str, int, int, int, pd.Series]]:
        """Return (where, configuration, N, smallest K, largest K, change by seed)."""
        return list(shots(self.grids))

    @cached_property
    def rankings(self) -> list[Ranking]:
        """Return a ranking for each setting that several methods vary around their defaults."""
        return rankings(self.results, self.designs)

    @cached_property
    def by_dataset(self) -> Mapping[str, Panel]:
        """Return the panel of each dataset, if several have one with the same task."""
        return by_dataset(self.results)

    @cached_property
    def over_datasets(self) -> OverDatasets | None:
        """Return the methods that at least three datasets share, or None."""
        return over_datasets(self.by_dataset, self.results.metric)

    @cached_property
    def comparisons(self) -> Comparisons:
        """Return all comparisons, corrected together."""
        what = QUESTIONS | ({"pairs": AGAINST_REFERENCES} if self.own else {})
        tested = families(self._asked(), what, self.results.metric, margin=self.margin)
        return Comparisons(**tested.families, asymmetry=tested.asymmetry)

    def _asked(self) -> dict[str, dict[Any, pd.Series]]:
        """Return the differences by seed of every comparison, by family. What is not here is not tested."""
        if self.own:
            return {family: dict(_pairs(self)) if family == "pairs" else {} for family in QUESTIONS}
        return {
            "pairs": dict(_pairs(self)),
            "effects": dict(_effects(self)),
            "protocols": dict(_protocols(self)),
            "values": dict(_values(self)),
            "shots": {each[:3]: each[-1] for each in self.shots},
            "margins": dict(_margins(self)),
        }


def best_of(panel: Panel) -> str | None:
    """Return the configuration with the highest mean at the last session, or None without a rival.

    Oracles are ignored. Means are adjusted for missing seeds.
    """
    rivals = panel.rivals
    means = adjusted_means(panel.by_seed("last")[rivals])
    return str(means.idxmax()) if len(rivals) > 1 and means.notna().any() else None


def _pairs(analysis: Analysis) -> Iterator[tuple[tuple[str, str, str], pd.Series]]:
    for panel in analysis.panels:
        last = panel.by_seed("last")
        for one, other in _asked(analysis, panel):
            yield (panel.title, one, other), last[one] - last[other]


def _asked(analysis: Analysis, panel: Panel) -> list[tuple[str, str]]:
    """Return the pairs of configurations to compare in `panel`.

    If all configurations form factorials, their effects are tested instead of pairs. If the map of margins
    over N and K compares the methods, pairs of rivals are left out.
    """
    if analysis.own:
        own = [label for label in analysis.own if label in panel.labels]
        others = [label for label in panel.labels if label not in own]
        return list(product(own, others))
    if sum(len(each.panel.labels) for each in analysis.factorials(panel)) == len(panel.labels):
        return []
    mapped = any(runs["run"].isin(panel.runs["run"]).any() for *_, runs in analysis.maps)
    pairs = [(label, panel.reference) for label in panel.labels[1:]]
    rivals = panel.rivals
    if "method" in panel.varied() and len(rivals) <= MOST_RIVALS and not mapped:
        # The highest is known only from the results, so a test of it needs all pairs.
        pairs += [(one, other) for other, one in combinations(rivals, 2)]
    pairs += [(label, oracle) for oracle in sorted(panel.oracles) for label in rivals]
    return list({frozenset(pair): pair for pair in reversed(pairs)}.values())  # each pair once


def _effects(analysis: Analysis) -> Iterator[tuple[tuple[str, str, str], pd.Series]]:
    for panel in analysis.panels:
        for factorial in analysis.factorials(panel):
            for moment in MOMENTS:
                aliases = factorial.aliases(moment)
                for name, values in factorial.contrasts(moment).items():
                    if name not in aliases:
                        yield (factorial.title, moment, name), values


def _protocols(analysis: Analysis) -> Iterator[tuple[tuple[str, str, str], pd.Series]]:
    for where, name, strict, released in analysis.protocol_pairs:
        for moment in MOMENTS:
            yield (where, name, moment), released[moment] - strict[moment]


def _values(analysis: Analysis) -> Iterator[tuple[tuple[Any, ...], pd.Series]]:
    for ranking in analysis.rankings:
        for value in ranking.values[1:]:
            for method, change in ranking.changes(value).items():
                yield (ranking.where, ranking.setting, value, method), change


def _margins(analysis: Analysis) -> Iterator[tuple[tuple[Any, ...], pd.Series]]:
    for where, own, runs in analysis.maps:
        for (n_way, k_shot), cell in runs.groupby(["n_way", "k_shot"]):
            scores = {
                label: each.set_index("seed")["last"] for label, each in cell.groupby("label", sort=False)
            }
            for label in scores:
                if label != own:
                    yield (where, n_way, k_shot, label), scores[own] - scores[label]
