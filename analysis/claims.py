"""Collect and test every comparison of a report. All verdicts of a report come from here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations
from typing import Any

import pandas as pd

from analysis.designs import Factorial, factorials, maps, protocol_pairs, rankings, shots
from analysis.frame import Panel, Results
from analysis.inference import Difference, Family, families
from analysis.statistics import adjusted_means

MOST_RIVALS = 40  # with more configurations, not all pairs are compared
MOMENTS = {"first": "session 0", "last": "the last session"}
QUESTIONS = {
    "pairs": "pairs of configurations (each with the reference and the oracles, and all pairs of methods) at "
    "the last session",
    "effects": "effects and interactions at session 0 and at the last session",
    "protocols": "released minus strict at session 0 and at the last session",
    "values": "each value of the setting minus the first value, for each method at the last session",
    "shots": "the largest K minus the smallest K at the last session",
    "margins": "one method minus each other method, for each N and K at the last session",
}


@dataclass(frozen=True)
class Claims:
    """The families of one report, corrected together; see `analysis.inference`.

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


@lru_cache(maxsize=1)  # tables, findings and figures of a report use the same claims
def claims(results: Results) -> Claims:
    """Return all comparisons that `results` allow, tested together."""
    asked = {
        "pairs": dict(_pairs(results)),
        "effects": dict(_effects(results)),
        "protocols": dict(_protocols(results)),
        "values": dict(_values(results)),
        "shots": {each[:3]: each[-1] for each in shots(results)},
        "margins": dict(_margins(results)),
    }
    tested = families(asked, QUESTIONS, results.metric, margin=results.margin)
    return Claims(**tested.families, asymmetry=tested.asymmetry)


def best_of(panel: Panel) -> str | None:
    """Return the configuration with the highest mean at the last session, or None without a rival.

    Oracles are ignored. Means are adjusted for missing seeds.
    """
    rivals = panel.rivals
    means = adjusted_means(panel.by_seed("last")[rivals])
    return str(means.idxmax()) if len(rivals) > 1 and means.notna().any() else None


def _pairs(results: Results) -> Iterator[tuple[tuple[str, str, str], pd.Series]]:
    mapped = {run for *_, runs in maps(results) for run in runs["run"]}
    for panel in results.panels():
        last = panel.by_seed("last")
        for one, other in _asked(panel, not mapped.isdisjoint(panel.runs["run"])):
            yield (panel.title, one, other), last[one] - last[other]


def _asked(panel: Panel, mapped: bool) -> list[tuple[str, str]]:
    """Return the pairs of configurations to compare in `panel`.

    If all configurations form factorials, their effects are tested instead of pairs. If the panel is
    `mapped`, the map of margins over N and K compares the methods, so pairs of rivals are left out.
    """
    if sum(len(each.panel.labels) for each in factorials(panel)) == len(panel.labels):
        return []
    pairs = [(label, panel.reference) for label in panel.labels[1:]]
    rivals = panel.rivals
    if "method" in panel.varied() and len(rivals) <= MOST_RIVALS and not mapped:
        # The highest is known only from the results, so a test of it needs all pairs.
        pairs += [(one, other) for other, one in combinations(rivals, 2)]
    pairs += [(label, oracle) for oracle in sorted(panel.oracles) for label in rivals]
    return list({frozenset(pair): pair for pair in reversed(pairs)}.values())  # each pair once


def _effects(results: Results) -> Iterator[tuple[tuple[str, str, str], pd.Series]]:
    for panel in results.panels():
        for factorial in factorials(panel):
            for moment in MOMENTS:
                aliases = factorial.aliases(moment)
                for name, values in factorial.contrasts(moment).items():
                    if name not in aliases:
                        yield (factorial.title, moment, name), values


def _protocols(results: Results) -> Iterator[tuple[tuple[str, str, str], pd.Series]]:
    for where, name, strict, released in protocol_pairs(results):
        for moment in MOMENTS:
            yield (where, name, moment), released[moment] - strict[moment]


def _values(results: Results) -> Iterator[tuple[tuple[Any, ...], pd.Series]]:
    for ranking in rankings(results):
        for value in ranking.values[1:]:
            for method, change in ranking.changes(value).items():
                yield (ranking.where, ranking.setting, value, method), change


def _margins(results: Results) -> Iterator[tuple[tuple[Any, ...], pd.Series]]:
    for where, own, runs in maps(results):
        for (n_way, k_shot), cell in runs.groupby(["n_way", "k_shot"]):
            scores = {
                label: each.set_index("seed")["last"] for label, each in cell.groupby("label", sort=False)
            }
            for label in scores:
                if label != own:
                    yield (where, n_way, k_shot, label), scores[own] - scores[label]
