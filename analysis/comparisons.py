"""List the comparisons of a report by family, and test them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, product
from typing import Any

import numpy as np
import pandas as pd

from analysis.data.results import Panel, Results
from analysis.designs.datasets import by_dataset
from analysis.designs.design import N_AND_K, ONE_AT_A_TIME, PROTOCOLS, Design, designs_of, of_kind
from analysis.designs.factorials import MOMENTS, Factorial, factorials
from analysis.designs.n_and_k import Grid, grids, maps, shots
from analysis.designs.one_at_a_time import one_at_a_time
from analysis.designs.protocols import ProtocolSetting, protocol_pairs, protocol_settings
from analysis.designs.rankings import Ranking, rankings
from analysis.designs.tuning import Tuned, tuned
from analysis.statistics.estimates import adjusted_means
from analysis.statistics.inference import (
    DIGITS,
    MARGIN,
    Difference,
    Family,
    asymmetry,
    discoveries,
    planned,
)
from analysis.statistics.over_datasets import OverDatasets, over_datasets

MOST_RIVALS = 40  # with more configurations, not all pairs are compared
QUESTIONS = {
    "reference": "each configuration minus the reference at the last session",
    "pairs": "all other pairs of methods, and each method minus each oracle, at the last session",
    "tuning": "each tuned method minus its own default at the last session",
    "protocols": "released minus strict at session 0 and at the last session",
    "values": "each value of the setting minus the first value, for each method at the last session",
    "shots": "the largest K minus the smallest K at the last session",
    "margins": "one method minus each other method, for each N and K at the last session",
}
EFFECTS = "effects and interactions at {}"
OTHER_TABLE = 'The difference between a method and its own default is that of the table "Gain from tuning".'
PLANNED = "values of settings at the last session, as effects of the design"
AGAINST_REFERENCES = "your method minus each reference at the last session"


@dataclass(frozen=True)
class Comparisons:
    """The families of one report; see `analysis.statistics.inference`.

    The comments name the keys of each family.
    """

    reference: Family  # panel, configuration, the reference
    pairs: Family  # panel, configuration, the configuration that is subtracted
    tuning: Family  # panel, what was chosen, the default of the same method
    protocols: Family  # place, configuration, moment
    values: Family  # place, setting, value, method
    shots: Family  # place, configuration, N
    margins: Family  # place, N, K, the other method
    effects: Mapping[tuple[str, str], Family]  # by factorial and moment: the effect
    design: Family  # of pooled runs: panel, value, value that is subtracted, if a design has this effect
    asymmetry: float  # p of the test that differences are symmetric over seeds, as the tests assume

    @property
    def families(self) -> list[Family]:
        """Return all families with comparisons."""
        found = [getattr(self, name) for name in QUESTIONS] + [*self.effects.values(), self.design]
        return [each for each in found if each.comparisons]

    @property
    def tested(self) -> int:
        """Return the number of comparisons with enough seeds."""
        return sum(each.tested for each in self.families)

    @property
    def configurations(self) -> Mapping[Any, Difference]:
        """Return all comparisons of two configurations, by panel, configuration and the one subtracted."""
        return {
            key: each
            for family in (self.reference, self.pairs, self.tuning, self.design)
            for key, each in family.comparisons.items()
        }

    @property
    def reference_words(self) -> str:
        """Return how differences from the reference were tested."""
        other = [OTHER_TABLE] * bool(self.tuning.comparisons)
        other += [self.design.words] * bool(self.design.comparisons)
        own = [self.reference.words] if self.reference.comparisons or not other else []
        return " ".join([*own, *other])

    def pair(self, panel: Panel, one: str, other: str) -> Difference | None:
        """Return `one` minus `other` in `panel`, or None if the report does not compare them."""
        there = self.configurations
        if (panel.title, one, other) in there:
            return there[panel.title, one, other]
        opposite = there.get((panel.title, other, one))
        return None if opposite is None else opposite.turned()

    def against(self, panel: Panel, reference: str) -> dict[str, Difference]:
        """Return each configuration of `panel` minus `reference`, for those that were compared with it."""
        found = {label: self.pair(panel, label, reference) for label in panel.labels}
        return {label: each for label, each in found.items() if each is not None}

    def effects_of(self, factorial: Factorial, moment: str) -> dict[str, Difference]:
        """Return the effects at `moment` by name. Effects that are equal for every seed share one test."""
        found = self.effects[factorial.title, moment]
        aliases = factorial.aliases(moment)
        return {name: found[aliases.get(name, name)] for name in factorial.contrasts(moment)}


@dataclass(frozen=True, eq=False)
class Analysis:
    """Results, the designs in them, and all comparisons that these allow.

    Tables, findings, figures and the explorer of a report read the same analysis.
    """

    results: Results
    designs: tuple[Design, ...] = ()  # by default, those that the launches wrote down, or every kind
    margin: float = MARGIN  # smaller differences count as equivalent
    whole: Analysis | None = None  # of the same runs before they were pooled
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
    def tuned(self) -> list[Tuned]:
        """Return the methods that ran with what a search chose and with their defaults."""
        return list(tuned(self.results, self.panels))

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
        """Return all comparisons, tested by family."""
        asked, metric, margin = self.differences, self.results.metric, self.margin
        what = QUESTIONS | ({"reference": AGAINST_REFERENCES} if self.own else {})
        families = {name: discoveries(asked[name], what[name], metric, margin=margin) for name in QUESTIONS}
        effects = {
            (each.title, moment): planned(_effects(each, moment), EFFECTS.format(when), metric, margin=margin)
            for each in self._every_factorial
            for moment, when in MOMENTS.items()
        }
        every = [each for name in asked for each in asked[name].values()]
        design = Family(PLANNED, metric, margin, self._of_design, planned=True)
        return Comparisons(**families, effects=effects, design=design, asymmetry=asymmetry(every))

    @cached_property
    def _of_design(self) -> dict[tuple[str, str, str], Difference]:
        """Return the differences of pooled runs that are effects of a design, as this design tests them."""
        if self.whole is None:
            return {}
        told, found = self.whole.comparisons, {}
        effects = [
            (values, told.effects_of(factorial, "last")[name])
            for factorial in self.whole._every_factorial
            for name, values in factorial.contrasts("last").items()
            if " x " not in name
        ]
        for key, values in _pairs(self):
            for effect, test in effects:
                if _equal(values, effect):
                    found[key] = test
                elif _equal(-values, effect):
                    found[key] = test.turned()
        return found

    @cached_property
    def differences(self) -> dict[str, dict[Any, pd.Series]]:
        """Return the differences by seed of every comparison. What is not here is not tested."""
        every: dict[str, dict[Any, pd.Series]] = {name: {} for name in (*QUESTIONS, "effects")}
        references = {panel.title: panel.reference for panel in self.panels}
        for key, values in _pairs(self):
            if key in self._of_design:
                continue  # the design tests it
            panel, one, other = key
            reference = self.own or references[panel] in (one, other)
            every["reference" if reference else "pairs"][key] = values
        if self.own:
            return every
        for each in self.tuned:  # a family of its own: no other family has these pairs
            for one, other in ((each.chosen, each.default), (each.default, each.chosen)):
                for family in ("reference", "pairs"):
                    every[family].pop((each.panel.title, one, other), None)
            last = each.panel.by_seed("last")
            every["tuning"][each.key] = last[each.chosen] - last[each.default]
        return every | {
            "effects": {
                (factorial.title, moment, name): values
                for factorial in self._every_factorial
                for moment in MOMENTS
                for name, values in _effects(factorial, moment).items()
            },
            "protocols": dict(_protocols(self)),
            "values": dict(_values(self)),
            "shots": {each[:3]: each[-1] for each in self.shots},
            "margins": dict(_margins(self)),
        }

    @property
    def _every_factorial(self) -> list[Factorial]:
        return [] if self.own else [each for panel in self.panels for each in self.factorials(panel)]


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


def _equal(one: pd.Series, other: pd.Series) -> bool:
    """Return whether two differences have the same seeds and values."""
    one, other = one.dropna().sort_index(), other.sort_index()
    return list(one.index) == list(other.index) and np.allclose(one, other, rtol=0, atol=10.0**-DIGITS)


def _asked(analysis: Analysis, panel: Panel) -> list[tuple[str, str]]:
    """Return the pairs of configurations to compare in `panel`.

    If all configurations of one method form factorials, only their effects are tested. If the map of margins
    over N and K compares the methods, pairs of rivals are left out.
    """
    if analysis.own:
        own = [label for label in analysis.own if label in panel.labels]
        others = [label for label in panel.labels if label not in own]
        return list(product(own, others))
    several = panel.pooled or "method" in panel.varied()
    if not several and sum(len(each.panel.labels) for each in analysis.factorials(panel)) == len(
        panel.labels
    ):
        return []
    mapped = any(runs["run"].isin(panel.runs["run"]).any() for *_, runs in analysis.maps)
    pairs = [(label, panel.reference) for label in panel.labels[1:]]
    rivals = panel.rivals
    if several and len(rivals) <= MOST_RIVALS and not mapped:
        # The highest is known only from the results, so a test of it needs all pairs.
        pairs += [(one, other) for other, one in combinations(rivals, 2)]
    pairs += [(label, oracle) for oracle in sorted(panel.oracles) for label in rivals]
    return list({frozenset(pair): pair for pair in reversed(pairs)}.values())  # each pair once


def _effects(factorial: Factorial, moment: str) -> dict[str, pd.Series]:
    """Return the effects by seed; effects that are equal for every seed occur once."""
    aliases = factorial.aliases(moment)
    return {name: values for name, values in factorial.contrasts(moment).items() if name not in aliases}


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
