"""Which experiments the results hold: factorials of switches, one setting at a time, both protocols, N and K.

What tables and figures show of a design is theirs; whether it is there is decided here.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd

from analysis.frame import Panel, Results
from analysis.inference import DIGITS
from analysis.labels import (
    SETTING,
    SWITCHES,
    TRAINING,
    across,
    has_switches,
    readable,
    slug,
    training,
    transductive_words,
    varied_settings,
)
from analysis.statistics import Factor, adjusted_means, contrasts, rank_correlation, ranks_of, switch
from hagmeta.common.differences import sort_key

BOTH = ("strict", "released")
ABOUT_TRAINING = (
    "Training between pre-training and sessions is by GPIL, supervised on the same labels, or none. GPIL "
    "less supervised is what GPIL itself is worth; supervised less nothing is what the labels are, where "
    "pre-training did not have them. Interactions of training are those of GPIL less supervised."
)
REPEATED_FOR = ("pretrain_on",)  # an ablation is one for each of its values
SHAPE = ("dataset", "protocol", "n_way", "k_shot")
PROPOSED = "proposed"  # the role of a method of our own
FEWEST_METHODS = 3  # to have an order
OF_THE_PROTOCOL = ("protocol", "queries_per_class", "revision")  # it draws test nodes of its own


@dataclass(frozen=True, eq=False)
class Factorial:
    """Runs that differ in switches and training only, every combination of which is there."""

    panel: Panel  # of these runs alone
    name: str  # of what the combinations share, where the setting has more
    factors: list[str]  # `training` where that has supervised among its levels, `gpil` where it has not

    @property
    def title(self) -> str:
        return f"{self.panel.title}; {self.name}" if self.name else self.panel.title

    @property
    def slug(self) -> str:
        """For file names."""
        return slug(self.panel.slug, self.name)

    @property
    def names(self) -> list[str]:
        """Of the factors, for readers."""
        return [factor if factor == "training" else factor.upper() for factor in self.factors]

    @property
    def about_training(self) -> str:
        """What a caption must say of its levels, where it has any that the paper has not."""
        return f" {ABOUT_TRAINING}" if "training" in self.factors else ""

    @property
    def runs(self) -> pd.DataFrame:
        return self.panel.runs

    def parts(self, cell: tuple[Any, ...]) -> list[str]:
        """The parts that a combination has."""
        levels = zip(self.names, cell, strict=True)
        named = [level if isinstance(level, str) else name for name, level in levels if level]
        return [part for part in named if part != "nothing"]

    def cells(self, moment: str) -> dict[tuple[Any, ...], pd.Series]:
        """For each combination the accuracies by seed, at the `first` or the `last` session."""
        return {
            tuple(cell): runs.set_index("seed")[moment].sort_index()
            for cell, runs in self.runs.groupby(self.factors, sort=False)
        }

    @lru_cache(maxsize=256)  # noqa: B019
    def contrasts(self, moment: str) -> dict[str, pd.Series]:
        """By seed, the effects of the factors and their interactions at the `first` or the `last` session."""
        return contrasts(self.cells(moment), [self._contrasts(factor) for factor in self.factors])

    def aliases(self, moment: str) -> dict[str, str]:
        """Effects that are another one's under another name, seed by seed, and the first of their names.

        NLA and TLA do nothing at session 0 where GPIL is off: each is the same as its interaction with it.
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
        by_name = {f"{more} less {less}": (more, less) for more, less in pairs}
        return dict(sorted(by_name.items(), key=lambda item: item[1] == ("GPIL", "nothing")))


def place(level: bool | str) -> int:
    """Orders the levels of a factor: what the paper has on comes first, and has 0."""
    return TRAINING.index(level) if isinstance(level, str) else int(not level)


@lru_cache(maxsize=64)
def factorials(panel: Panel) -> list[Factorial]:
    """Those that all configurations with switches make, one for each pre-training; other methods are aside.

    None of a method where something else varies, a combination is missing, or no seed has them all.
    """
    switched = panel.runs[[has_switches(run) for run in panel.runs.to_dict("records")]]
    several = switched["method"].nunique() > 1
    return [
        each
        for _, runs in switched.groupby("method", sort=False)
        for each in _factorials(panel, runs, runs["traits"].iloc[0].title if several else "")
    ]


def _factorials(panel: Panel, runs: pd.DataFrame, title: str) -> list[Factorial]:
    """Those of one method, whose ``title`` is named where others have some, too."""
    differ = varied_settings(runs.drop_duplicates("config_hash"), panel.keys)
    if set(differ) - {*SWITCHES, *REPEATED_FOR}:
        return []
    others = [key for key in differ if key in REPEATED_FOR]
    called = across(runs, others, SWITCHES) if others else pd.Series("", index=runs.index)
    runs = runs.assign(training=[training(run) for run in runs.to_dict("records")])
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
        return None  # an effect is of seeds that have all combinations
    sessions = panel.sessions[panel.sessions["run"].isin(runs["run"])]
    return Factorial(replace(panel, runs=runs, sessions=sessions), name, factors)


@dataclass(frozen=True)
class Star:
    """A configuration, and for each setting the configurations that differ from it in that one alone."""

    centre: str  # configuration hashes
    arms: dict[str, list[str]]

    @property
    def neighbours(self) -> int:
        return sum(map(len, self.arms.values()))


def star_of_most_arms(panel: Panel) -> Star:
    """Around the configuration with most neighbours, or the first of those."""
    stars = _Stars(panel)
    return stars.around(int(np.argmax([stars.neighbours(centre).sum() for centre in range(stars.count)])))


def one_at_a_time(panel: Panel) -> dict[str, list[str]]:
    """Labels by the one setting in which each differs from the reference; methods aside."""
    labels = panel.runs.drop_duplicates("config_hash").set_index("config_hash")["label"]
    centre = list(labels).index(panel.reference)
    return {key: list(labels[arm]) for key, arm in _Stars(panel).around(centre).arms.items()}


class _Stars:
    """The configurations of a panel, each of which may be the centre of a star; by number."""

    def __init__(self, panel: Panel) -> None:
        configs = panel.runs.drop_duplicates("config_hash")
        self.count = len(configs)
        self._hashes = configs["config_hash"].to_numpy()
        self._keys = ["method", *(key for key in panel.varied() if key != "method")]
        # (keys, configurations): equal numbers where settings are equal, absent ones too
        self._values = np.stack([pd.factorize(configs[key].map(str))[0] for key in self._keys])
        # Switches are told of where they make a factorial.
        elsewhere = ("method", *(SWITCHES if factorials(panel) else ()))
        self._arms = np.array([key not in elsewhere for key in self._keys])

    def around(self, centre: int) -> Star:
        """The star of one configuration; it may have no arms."""
        near, apart = self.neighbours(centre), self._apart(centre)
        arms = {
            key: list(self._hashes[near & differs]) for key, differs in zip(self._keys, apart, strict=True)
        }
        return Star(str(self._hashes[centre]), {key: arm for key, arm in arms.items() if arm})

    def neighbours(self, centre: int) -> np.ndarray:
        """(configurations,): whether each differs in one setting alone, and that is told of nowhere else."""
        apart = self._apart(centre)
        return (apart.sum(axis=0) == 1) & apart[self._arms].any(axis=0)

    def _apart(self, centre: int) -> np.ndarray:
        return self._values != self._values[:, [centre]]  # (keys, configurations)


@dataclass(frozen=True)
class ProtocolSetting:
    """Runs in one setting, under either protocol, and the names of what was run under both."""

    words: str
    runs: pd.DataFrame  # with a column `name`: the configuration
    pairs: list[str]


@lru_cache(maxsize=1)  # tables, figures and findings ask for the same
def protocol_settings(results: Results) -> list[ProtocolSetting]:
    """Where configurations were run under both protocols; training queries that were given are alike."""
    if not set(BOTH) <= set(results.runs["protocol"]):
        return []
    keys = [key for key in SETTING if key in results.keys and key not in OF_THE_PROTOCOL]
    found, differ = [], results.varied()
    for values, runs in results.runs.groupby(keys, dropna=False, sort=False):
        named = runs.assign(name=across(runs, differ, SETTING))
        pairs = [str(strict["name"].iloc[0]) for strict, _ in _under_both(named, ["name"])]
        if pairs:
            words = _setting_words(dict(zip(keys, values, strict=True)), differ, results.sessions_apart)
            found.append(ProtocolSetting(words, named, pairs))
    return found


def protocol_pairs(results: Results) -> list[tuple[str, str, pd.DataFrame, pd.DataFrame]]:
    """(where, name, strict runs, released runs), both by seed, for what was run under both protocols."""
    pairs = []
    for setting in protocol_settings(results):
        for name in setting.pairs:
            runs = setting.runs[setting.runs["name"] == name]
            strict, released = (runs[runs["protocol"] == which] for which in BOTH)
            if not strict["seed"].duplicated().any() and not released["seed"].duplicated().any():
                pairs.append((setting.words, name, strict.set_index("seed"), released.set_index("seed")))
    return pairs


def _under_both(runs: pd.DataFrame, same: Sequence[str]) -> Iterator[tuple[pd.DataFrame, pd.DataFrame]]:
    """(strict runs, released runs) of those that are alike in these columns."""
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
    """The N and K that runs were made with, in order."""
    return runs[["n_way", "k_shot"]].drop_duplicates().sort_values(["n_way", "k_shot"])


@lru_cache(maxsize=1)
def grids(results: Results) -> list[tuple[str, pd.DataFrame]]:
    """Runs of several N or K that share the rest of a setting, with a column `name`: the configuration."""
    keys = [key for key in SETTING if key in results.keys and key not in ("n_way", "k_shot", "sessions")]
    if results.sessions_apart:
        keys.append("sessions")
    differ = results.varied()
    told = [key for key in keys if key in differ or key in ("dataset", "protocol")]
    found = []
    for values, runs in results.runs.groupby(keys, dropna=False, sort=False):
        if len(shapes(runs)) < 2:
            continue
        first = dict(zip(keys, values, strict=True))
        words = [str(first[key]) if key in ("dataset", "protocol") else f"{key} {first[key]}" for key in told]
        found.append((", ".join(words), runs.assign(name=across(runs, differ, SETTING))))
    return found


@lru_cache(maxsize=1)  # claims leave to them who leads in their cells
def maps(results: Results) -> list[tuple[str, str, pd.DataFrame]]:
    """(where, whose, runs): where N and K both vary and one method is beside others in several cells.

    It is the first that is proposed, or else the first of all; oracles are aside.
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
    """(where, configuration, N, fewest K, most K, what that changes by seed at the last session)."""
    for where, runs in grids(results):
        for (name, n_way), group in runs.groupby(["name", "n_way"], sort=False):
            few, many = (int(limit(group["k_shot"])) for limit in (min, max))
            ends = [group[group["k_shot"] == k] for k in (few, many)]
            if few < many and not any(end["seed"].duplicated().any() for end in ends):
                less, more = (end.set_index("seed")["last"] for end in ends)
                yield where, str(name), int(n_way), few, many, more - less


@dataclass(frozen=True)
class Ranking:
    """Methods under two or more values of one setting, all else as it is by default."""

    where: str
    setting: str
    values: list[str]  # as they read
    scores: dict[str, pd.DataFrame]  # by method: (seeds, values), at the last session
    titles: dict[str, str]  # by method
    oracles: frozenset[str]
    leaks: bool
    notes: list[str]

    @property
    def rivals(self) -> list[str]:
        return [method for method in self.scores if method not in self.oracles]

    def under(self, value: str) -> pd.DataFrame:
        """(seeds, methods that are no oracles): their scores under one value."""
        return pd.DataFrame({method: self.scores[method][value] for method in self.rivals})

    def ranks(self, value: str) -> dict[str, int]:
        """1 is the best; an oracle has none, nor has who shares no seed with the others."""
        return {str(method): int(rank) for method, rank in ranks_of(self.under(value)).dropna().items()}

    def changes(self, value: str) -> dict[str, pd.Series]:
        """By method and seed: a value less the first."""
        return {method: table[value] - table[self.values[0]] for method, table in self.scores.items()}

    def agreement(self, value: str) -> float:
        """Kendall's tau of the order under a value with that under the first."""
        means = pd.DataFrame({each: adjusted_means(self.under(each)) for each in (self.values[0], value)})
        known = means.dropna()
        return rank_correlation(*(known[each] for each in known))


@lru_cache(maxsize=1)
def rankings(results: Results) -> list[Ranking]:
    """One for each setting that was varied for several methods, around what each has by default."""
    runs = results.runs
    found = []
    differ = [key for key in results.varied() if key not in (*SHAPE, "method", "sessions", "classes")]
    classes_apart = bool(runs.groupby("dataset")["classes"].nunique().max() > 1)
    for shape, group in runs.groupby([*SHAPE, "classes", "sessions"], sort=False, dropna=False):
        dataset, protocol, n_way, k_shot, classes, sessions = shape
        configs = group.drop_duplicates("config_hash")
        for key in differ:
            others = {other for other in differ if other != key}
            there = configs[configs["given"].map(others.isdisjoint)]
            if there["method"].nunique() < FEWEST_METHODS or there[key].nunique() < 2:
                continue
            centre = group[group["config_hash"].isin(there["config_hash"])]
            scores = _methods(centre, key)
            if scores:
                where = f"{dataset}, {protocol}, {n_way}-way {k_shot}-shot"
                where += (
                    f", classes {classes}" * classes_apart + f", sessions {sessions}" * results.sessions_apart
                )
                leaks = bool(centre["leaks"].any())  # all know as much then
                oracles = centre.loc[centre["oracle"] & (not leaks), "method"]
                notes = transductive_words(centre)
                titles = {
                    method: traits.title
                    for method, traits in zip(centre["method"], centre["traits"], strict=True)
                }
                found.append(Ranking(where, key, *scores, titles, frozenset(oracles), leaks, notes))
    return found


def _methods(runs: pd.DataFrame, key: str) -> tuple[list[str], dict[str, pd.DataFrame]] | None:
    """The values that several methods have, and each such method's scores under them."""
    runs = runs[runs[key].notna()]
    if runs.duplicated(["method", key, "seed"]).any():
        return None  # something else tells them apart
    values = sorted(set(runs[key]), key=sort_key)
    if len(values) < 2:
        return None
    by_method = runs.groupby("method", sort=False)
    groups = {method: each for method, each in by_method if each[key].nunique() == len(values)}
    if len(groups) < FEWEST_METHODS:
        return None
    tables = {
        str(method): each.pivot(index="seed", columns=key, values="last") for method, each in groups.items()
    }
    names = [readable(value) for value in values]
    return names, {method: table[values].set_axis(names, axis=1) for method, table in tables.items()}
