"""Find the experimental designs in the results: factorials, one setting at a time, protocols, N and K.

This module decides which designs exist. Tables and figures decide how to show them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd

from analysis.frame import Panel, Results, common_words
from analysis.inference import DIGITS
from analysis.labels import (
    SWITCHES,
    TRAINING,
    across,
    has_switches,
    readable,
    rows_of,
    slug,
    training,
    transductive_words,
    varied_settings,
)
from analysis.statistics import Factor, adjusted_means, contrasts, rank_correlation, ranks_of, switch
from hagmeta.common.records.differences import sort_key

BOTH = ("strict", "released")
CALLED = {"GPIL": "GPIL", "supervised": "supervised training", "nothing": "no training"}
TRAINING_PAIRS = (
    "GPIL minus supervised training",
    "supervised training minus no training",
    "GPIL minus no training",
)
ABOUT_TRAINING = (
    "The training between pre-training and the sessions is GPIL, supervised training on the same labels, or "
    "none. GPIL minus supervised training is the gain of GPIL itself. Supervised training minus no training "
    "is the gain of the labels, if pre-training did not see them. Interactions of training use GPIL minus "
    "supervised training."
)
REPEATED_FOR = ("pretrain_on",)  # each value of these settings has a separate ablation
SHAPE = ("dataset", "protocol", "n_way", "k_shot")
PROPOSED = "proposed"  # the role of our methods
FEWEST_METHODS = 3  # fewer methods have no order to compare
OF_THE_PROTOCOL = ("queries_per_class", "revision")  # each protocol draws different test nodes


@dataclass(frozen=True, eq=False)
class Factorial:
    """Runs that differ only in switches and training, with every combination."""

    panel: Panel  # these runs only
    name: str  # the settings that the combinations share, if the panel has several factorials
    factors: list[str]  # includes `training` if supervised training is a level, otherwise `gpil`

    @property
    def title(self) -> str:
        return f"{self.panel.title}; {self.name}" if self.name else self.panel.title

    @property
    def slug(self) -> str:
        """Return the title as a file name."""
        return slug(self.panel.slug, self.name)

    @property
    def names(self) -> list[str]:
        """Return the names of the factors for readers."""
        return [factor if factor == "training" else factor.upper() for factor in self.factors]

    @property
    def about_training(self) -> str:
        """Return a description of the levels of training, if there are more than in the paper."""
        return f" {ABOUT_TRAINING}" if "training" in self.factors else ""

    @property
    def runs(self) -> pd.DataFrame:
        return self.panel.runs

    def parts(self, cell: tuple[Any, ...]) -> list[str]:
        """Return the parts that are on in a combination."""
        levels = zip(self.names, cell, strict=True)
        named = [level if isinstance(level, str) else name for name, level in levels if level]
        return [part for part in named if part != "nothing"]

    def cells(self, moment: str) -> dict[tuple[Any, ...], pd.Series]:
        """Return the accuracies by seed for each combination, at the `first` or the `last` session."""
        return {
            tuple(cell): runs.set_index("seed")[moment].sort_index()
            for cell, runs in self.runs.groupby(self.factors, sort=False)
        }

    @lru_cache(maxsize=256)  # noqa: B019
    def contrasts(self, moment: str) -> dict[str, pd.Series]:
        """Return effects and interactions by seed, at the `first` or the `last` session."""
        return contrasts(self.cells(moment), [self._contrasts(factor) for factor in self.factors])

    def aliases(self, moment: str) -> dict[str, str]:
        """Return effects that equal another effect for every seed, with the first of the equal effects.

        NLA and TLA do nothing at session 0 if GPIL is off, so each equals its interaction with GPIL.
        """
        names: dict[tuple[float, ...], str] = {}
        found = {}
        for name, values in self.contrasts(moment).items():
            seen = names.setdefault(tuple(values.round(DIGITS) + 0.0), name)
            if seen != name:
                found[name] = seen
        return found

    def _contrasts(self, factor: str) -> Factor:
        if factor != "training":
            return switch(factor.upper())
        there = [level for level in TRAINING if level in set(self.runs["training"])]
        pairs = itertools.combinations(there, 2)
        by_name = {f"{CALLED[one]} minus {CALLED[other]}": (one, other) for one, other in pairs}
        return dict(sorted(by_name.items(), key=lambda item: item[1] == ("GPIL", "nothing")))


def place(level: bool | str) -> int:
    """Return the sort key of a level: 0 for the level that the paper uses."""
    return TRAINING.index(level) if isinstance(level, str) else int(not level)


@lru_cache(maxsize=64)
def factorials(panel: Panel) -> list[Factorial]:
    """Return the factorials of all methods with switches, one for each pre-training.

    A method has none if another setting varies, a combination is missing, or no seed has all combinations.
    """
    switched = panel.runs[[has_switches(run) for run in rows_of(panel.runs)]]
    several = switched["method"].nunique() > 1
    return [
        each
        for _, runs in switched.groupby("method", sort=False)
        for each in _factorials(panel, runs, runs["traits"].iloc[0].title if several else "")
    ]


def _factorials(panel: Panel, runs: pd.DataFrame, title: str) -> list[Factorial]:
    """Return the factorials of one method; `title` names it if several methods have some."""
    differ = varied_settings(runs.drop_duplicates("config_hash"), panel.keys, panel.scopes)
    if set(differ) - {*SWITCHES, *REPEATED_FOR}:
        return []
    others = [key for key in differ if key in REPEATED_FOR]
    called = across(runs, others, panel.scopes, SWITCHES) if others else pd.Series("", index=runs.index)
    runs = runs.assign(training=[training(run) for run in rows_of(runs)])
    groups = runs.groupby(called, sort=False)
    found = [_factorial(panel, ", ".join(filter(None, (title, str(name)))), group) for name, group in groups]
    return [each for each in found if each is not None] if all(found) else []


def _factorial(panel: Panel, name: str, runs: pd.DataFrame) -> Factorial | None:
    first = "training" if "supervised" in set(runs["training"]) else "gpil"
    factors = [key for key in (first, "nla", "tla") if key in runs and runs[key].nunique() > 1]
    combinations = len(runs[factors].drop_duplicates()) if factors else 0
    if not combinations or combinations != runs[factors].nunique().prod():
        return None
    if not (runs.groupby("seed").size() == combinations).any():
        return None  # effects need a seed with all combinations
    sessions = panel.sessions[panel.sessions["run"].isin(runs["run"])]
    return Factorial(replace(panel, runs=runs, sessions=sessions), name, factors)


@dataclass(frozen=True)
class Star:
    """A configuration, and for each setting the configurations that differ only in that setting."""

    centre: str  # configuration hashes
    arms: dict[str, list[str]]

    @property
    def neighbours(self) -> int:
        return sum(map(len, self.arms.values()))


def star_of_most_arms(panel: Panel) -> Star:
    """Return the star around the configuration with most neighbours."""
    stars = _Stars(panel)
    return stars.around(int(np.argmax([stars.neighbours(centre).sum() for centre in range(stars.count)])))


def one_at_a_time(panel: Panel) -> dict[str, list[str]]:
    """Return labels by the single setting (not the method) in which each differs from the reference."""
    labels = panel.runs.drop_duplicates("config_hash").set_index("config_hash")["label"]
    centre = list(labels).index(panel.reference)
    return {key: list(labels[arm]) for key, arm in _Stars(panel).around(centre).arms.items()}


class _Stars:
    """The configurations of a panel by number; each can be the centre of a star."""

    def __init__(self, panel: Panel) -> None:
        configs = panel.runs.drop_duplicates("config_hash")
        self.count = len(configs)
        self._hashes = configs["config_hash"].to_numpy()
        self._keys = ["method", *(key for key in panel.varied() if key != "method")]
        # (keys, configurations): equal numbers mean equal settings; absent settings are equal
        self._values = np.stack([pd.factorize(configs[key].map(str))[0] for key in self._keys])
        # Tables of factorials already show the switches.
        elsewhere = ("method", *(SWITCHES if factorials(panel) else ()))
        self._arms = np.array([key not in elsewhere for key in self._keys])

    def around(self, centre: int) -> Star:
        """Return the star of one configuration; it may have no arms."""
        near, apart = self.neighbours(centre), self._apart(centre)
        arms = {
            key: list(self._hashes[near & differs]) for key, differs in zip(self._keys, apart, strict=True)
        }
        return Star(str(self._hashes[centre]), {key: arm for key, arm in arms.items() if arm})

    def neighbours(self, centre: int) -> np.ndarray:
        """Return (configurations,): whether each differs in exactly one setting, and that one is an arm."""
        apart = self._apart(centre)
        return (apart.sum(axis=0) == 1) & apart[self._arms].any(axis=0)

    def _apart(self, centre: int) -> np.ndarray:
        return self._values != self._values[:, [centre]]  # (keys, configurations)


@dataclass(frozen=True)
class ProtocolSetting:
    """Runs in one setting under either protocol, and the names of configurations with both."""

    words: str
    runs: pd.DataFrame  # with a column `name`: the configuration
    pairs: list[str]


@lru_cache(maxsize=1)  # tables, figures and findings use the same
def protocol_settings(results: Results) -> list[ProtocolSetting]:
    """Return the settings whose configurations ran under both protocols."""
    if not set(BOTH) <= set(results.runs["protocol"]):
        return []
    keys = [key for key in results.task if key not in ("protocol", *OF_THE_PROTOCOL)]
    found, differ = [], results.varied()
    under_both = results.runs[results.runs["protocol"].isin(BOTH)]
    for values, runs in under_both.groupby(keys, dropna=False, sort=False):
        words = _setting_words(dict(zip(keys, values, strict=True)), differ, results.sessions_apart)
        named = runs.assign(name=across(runs, differ, results.scopes, results.task))
        sides = [_variants(named[named["protocol"] == protocol], results.keys) for protocol in BOTH]
        for (more, strict), (other, released) in itertools.product(*sides):
            together = pd.concat([strict, released])
            pairs = [str(one["name"].iloc[0]) for one, _ in _under_both(together, ["name"])]
            if pairs:
                found.append(ProtocolSetting(", ".join([words, *more, *other]), together, pairs))
    return found


def _variants(runs: pd.DataFrame, keys: Sequence[str]) -> list[tuple[list[str], pd.DataFrame]]:
    """Return (words, runs) for each combination of the settings that may differ between protocols.

    The words name the settings that also differ within the protocol of `runs`.
    """
    own = [key for key in OF_THE_PROTOCOL if key in keys and runs[key].nunique(dropna=False) > 1]
    if not own:
        return [([], runs)]
    return [
        ([f"{key} {readable(value)}" for key, value in zip(own, values, strict=True)], alike)
        for values, alike in runs.groupby(own, dropna=False, sort=False)
    ]


def protocol_pairs(results: Results) -> list[tuple[str, str, pd.DataFrame, pd.DataFrame]]:
    """Return (where, name, strict runs, released runs) by seed, for configurations with both protocols."""
    pairs = []
    for setting in protocol_settings(results):
        for name in setting.pairs:
            runs = setting.runs[setting.runs["name"] == name]
            strict, released = (runs[runs["protocol"] == which] for which in BOTH)
            if not strict["seed"].duplicated().any() and not released["seed"].duplicated().any():
                pairs.append((setting.words, name, strict.set_index("seed"), released.set_index("seed")))
    return pairs


def _under_both(runs: pd.DataFrame, same: Sequence[str]) -> Iterator[tuple[pd.DataFrame, pd.DataFrame]]:
    """Yield (strict runs, released runs) for each group with equal values in the columns `same`."""
    for _, alike in runs.groupby(list(same), sort=False, dropna=False):
        strict, released = (alike[alike["protocol"] == name] for name in BOTH)
        if len(strict) and len(released):
            yield strict, released


def _setting_words(setting: dict[str, object], differ: Sequence[str], sessions_apart: bool) -> str:
    told = [f"{setting['dataset']}, {setting['n_way']}-way {setting['k_shot']}-shot"]
    aside = ("dataset", "n_way", "k_shot", *(() if sessions_apart else ("sessions",)))
    others = [key for key in setting if key in differ and key not in aside]
    return ", ".join(told + [f"{key} {setting[key]}" for key in others])


def shapes(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the combinations of N and K in `runs`, in order."""
    return runs[["n_way", "k_shot"]].drop_duplicates().sort_values(["n_way", "k_shot"])


@lru_cache(maxsize=1)
def grids(results: Results) -> list[tuple[str, pd.DataFrame]]:
    """Return (where, runs) for settings with several N or K; the column `name` is the configuration."""
    keys = [key for key in results.task if key not in ("n_way", "k_shot", "sessions")]
    if results.sessions_apart:
        keys.append("sessions")
    differ = results.varied()
    told = [key for key in keys if key in differ or key in ("dataset", "protocol")]
    labels = [key for key in results.scopes.labels if key in differ]
    found = []
    for values, alike in results.runs.groupby(keys, dropna=False, sort=False):
        if len(shapes(alike)) < 2:
            continue
        first = dict(zip(keys, values, strict=True))
        words = [str(first[key]) if key in ("dataset", "protocol") else f"{key} {first[key]}" for key in told]
        named = alike.assign(name=across(alike, differ, results.scopes, results.task))
        for runs in results.comparable(named):
            if len(shapes(runs)) > 1:
                found.append((", ".join([*words, *common_words(runs, labels)]), runs))
    return found


@lru_cache(maxsize=1)
def maps(results: Results) -> list[tuple[str, str, pd.DataFrame]]:
    """Return (where, label, runs) where N and K vary and one method can be compared with others.

    `label` is the first proposed method, or the first method if none is proposed. Oracles are left out.
    """
    found = []
    for where, grid in grids(results):
        runs = grid[~grid["oracle"] | grid["leaks"]]
        if all(runs[key].nunique() > 1 for key in ("n_way", "k_shot", "method")):
            own = runs[[traits.role == PROPOSED for traits in runs["traits"]]]
            label = str((own if len(own) else runs)["label"].iloc[0])
            cells = runs.assign(own=runs["label"] == label).groupby(["n_way", "k_shot"])
            whole = runs[cells["own"].transform("any") & (cells["label"].transform("nunique") > 1)]
            if len(shapes(whole)) > 1:
                found.append((where, label, whole))
    return found


def shots(results: Results) -> Iterator[tuple[str, str, int, int, int, pd.Series]]:
    """Yield (where, configuration, N, smallest K, largest K, change by seed at the last session)."""
    for where, runs in grids(results):
        for (name, n_way), group in runs.groupby(["name", "n_way"], sort=False):
            few, many = (int(limit(group["k_shot"])) for limit in (min, max))
            ends = [group[group["k_shot"] == k] for k in (few, many)]
            if few < many and not any(end["seed"].duplicated().any() for end in ends):
                less, more = (end.set_index("seed")["last"] for end in ends)
                yield where, str(name), int(n_way), few, many, more - less


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


@lru_cache(maxsize=1)
def rankings(results: Results) -> list[Ranking]:
    """Return a ranking for each setting that several methods vary around their defaults.

    A setting of the labels needs one method only, if it separates panels: no panel compares its values then.
    """
    found = []
    for where, key, fewest, runs in _around_defaults(results):
        scores = _methods(runs, key, fewest)
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
