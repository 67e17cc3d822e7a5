"""Every comparison that a report tests: what is claimed anywhere is claimed from here."""

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

MOST_RIVALS = 40  # of which all pairs are compared
MOMENTS = {"first": "session 0", "last": "the last session"}
QUESTIONS = {
    "pairs": "configurations less the reference, all pairs where methods are compared, rivals less oracles, "
    "at the last session",
    "effects": "effects of factors at session 0 and at the last session, each once",
    "protocols": "released less strict, at session 0 and at the last session",
    "values": "a setting's other values less the first, method by method, at the last session",
    "shots": "the most labels per class less the fewest, at the last session",
    "margins": "one method less every other, for every N and K, at the last session",
}


@dataclass(frozen=True)
class Claims:
    """The families of one report, corrected together: see `analysis.inference` for what they hold."""

    pairs: Family  # by panel, configuration and the one that it is less
    effects: Family  # by factorial, moment and effect
    protocols: Family  # by place, configuration and moment
    values: Family  # by place, setting, value and method
    shots: Family  # by place, configuration and N
    margins: Family  # by place, N, K and the other method
    asymmetry: float  # p that differences are symmetric over seeds, as the tests assume

    @property
    def families(self) -> list[Family]:
        return [each for each in vars(self).values() if isinstance(each, Family)]

    @property
    def tested(self) -> int:
        """Comparisons that have enough seeds."""
        return self.pairs.total

    def pair(self, panel: Panel, one: str, other: str) -> Difference | None:
        """One configuration less another; None where that was not asked."""
        there = self.pairs.comparisons
        if (panel.title, one, other) in there:
            return there[panel.title, one, other]
        turned = there.get((panel.title, other, one))
        if turned is None:
            return None
        return replace(turned, mean=-turned.mean, low=-turned.high, high=-turned.low)

    def beside(self, panel: Panel, reference: str) -> dict[str, Difference]:
        """By configuration, each that was compared with this one, less it."""
        found = {label: self.pair(panel, label, reference) for label in panel.labels}
        return {label: each for label, each in found.items() if each is not None}

    def effects_of(self, factorial: Factorial, moment: str) -> dict[str, Difference]:
        """By name; those that are another one under another name have that one's test."""
        found = self.effects.of(factorial.title, moment)
        aliases = factorial.aliases(moment)
        return {name: found[aliases.get(name, name)] for name in factorial.contrasts(moment)}


@lru_cache(maxsize=1)  # tables, findings and figures of a report ask for the same
def claims(results: Results) -> Claims:
    """All that the results can be asked."""
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
    """The configuration with the highest mean at the last session, oracles aside; None without a rival.

    Means are adjusted for missing seeds.
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
    """Where all configurations are a factorial, its effects are tested and not its cells.

    Who leads for which N and K is asked of a map of margins, and not of each of its cells again.
    """
    if sum(len(each.panel.labels) for each in factorials(panel)) == len(panel.labels):
        return []
    pairs = [(label, panel.reference) for label in panel.labels[1:]]
    rivals = panel.rivals
    if "method" in panel.varied() and len(rivals) <= MOST_RIVALS and not mapped:
        # Which is the highest is seen in the results: whoever asks about it has asked about all pairs.
        pairs += [(one, other) for other, one in combinations(rivals, 2)]
    pairs += [(label, oracle) for oracle in sorted(panel.oracles) for label in rivals]
    return list({frozenset(pair): pair for pair in reversed(pairs)}.values())  # each once, either way round


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
