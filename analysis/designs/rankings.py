"""Find settings under which several methods can be ranked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pandas as pd

from analysis.data.labels import readable, transductive_words
from analysis.data.results import Results
from analysis.designs.design import RANKING, Design, of_kind
from analysis.statistics.estimates import adjusted_means, rank_correlation, ranks_of
from hagmeta.common.records.differences import sort_key

SHAPE = ("dataset", "protocol", "n_way", "k_shot")
FEWEST_METHODS = 3  # fewer methods have no order to compare


@dataclass(frozen=True)
class Ranking:
    """Methods under two or more values of one setting; all other settings have their defaults."""

    where: str
    setting: str
    values: list[str]  # as text
    scores: dict[str, pd.DataFrame]  # by method: (seeds, values) at the last session
    titles: dict[str, str]  # by method
    oracles: frozenset[str]
    leaks: bool
    notes: list[str]

    @property
    def rivals(self) -> list[str]:
        return [method for method in self.scores if method not in self.oracles]

    def under(self, value: str) -> pd.DataFrame:
        """Return the scores (seeds, methods without oracles) under one value."""
        return pd.DataFrame({method: self.scores[method][value] for method in self.rivals})

    def ranks(self, value: str) -> dict[str, int]:
        """Return ranks, 1 for the best; oracles and methods without a shared seed have none."""
        return {str(method): int(rank) for method, rank in ranks_of(self.under(value)).dropna().items()}

    def changes(self, value: str) -> dict[str, pd.Series]:
        """Return the scores under `value` minus those under the first value, by method and seed."""
        return {method: table[value] - table[self.values[0]] for method, table in self.scores.items()}

    def agreement(self, value: str) -> float:
        """Return Kendall's tau between the orders under `value` and under the first value."""
        means = pd.DataFrame({each: adjusted_means(self.under(each)) for each in (self.values[0], value)})
        known = means.dropna()
        return rank_correlation(*(known[each] for each in known))


def rankings(results: Results, designs: Sequence[Design]) -> list[Ranking]:
    """Return a ranking for each setting that several methods vary around their defaults.

    A setting of the labels needs one method only and no design, if it separates panels: no panel compares its
    values then.
    """
    found = []
    asked = bool(of_kind(designs, RANKING))
    for where, key, fewest, runs in _around_defaults(results):
        scores = _methods(runs, key, fewest) if asked or fewest == 1 else None
        if scores:
            leaks = bool(runs["leaks"].any())  # under a leaking protocol no method is an oracle
            oracles = runs.loc[runs["oracle"] & (not leaks), "method"]
            titles = {
                method: traits.title for method, traits in zip(runs["method"], runs["traits"], strict=True)
            }
            notes = transductive_words(runs)
            found.append(Ranking(where, key, *scores, titles, frozenset(oracles), leaks, notes))
    return found


def _around_defaults(results: Results) -> Iterator[tuple[str, str, int, pd.DataFrame]]:
    """Yield (where, setting, fewest methods, runs) for each setting, with runs of one task.

    All other settings that vary in the report have their defaults.
    """
    runs, task = results.runs, [*SHAPE, "classes", "sessions"]
    differ = [key for key in results.varied() if key not in (*task, "method")]
    classes_apart = bool(runs.groupby("dataset")["classes"].nunique().max() > 1)
    for shape, group in runs.groupby(task, sort=False, dropna=False):
        dataset, protocol, n_way, k_shot, classes, sessions = shape
        where = f"{dataset}, {protocol}, {n_way}-way {k_shot}-shot"
        where += f", classes {classes}" * classes_apart + f", sessions {sessions}" * results.sessions_apart
        for key in differ:
            others = {other for other in differ if other != key}
            same = [*task, *(other for other in results.task if other in others)]
            for _, alike in group.groupby(same, sort=False, dropna=False):
                apart = key in results.scopes.labels and len(list(results.comparable(alike))) > 1
                at_defaults = alike["given"].map(others.isdisjoint)
                yield where, key, 1 if apart else FEWEST_METHODS, alike[at_defaults]


def _methods(runs: pd.DataFrame, key: str, fewest: int) -> tuple[list[str], dict[str, pd.DataFrame]] | None:
    """Return the values that several methods share, and the scores of these methods under each value."""
    runs = runs[runs[key].notna()]
    if runs.duplicated(["method", key, "seed"]).any():
        return None  # another setting differs
    values = sorted(set(runs[key]), key=sort_key)
    if len(values) < 2:
        return None
    by_method = runs.groupby("method", sort=False)
    groups = {method: each for method, each in by_method if each[key].nunique() == len(values)}
    if len(groups) < fewest:
        return None
    tables = {
        str(method): each.pivot(index="seed", columns=key, values="last") for method, each in groups.items()
    }
    names = [readable(value) for value in values]
    return names, {
        method: table.reindex(columns=values).set_axis(names, axis=1) for method, table in tables.items()
    }
