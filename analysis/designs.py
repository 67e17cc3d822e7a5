"""Which experiments the results hold: factorials of switches, one setting at a time, both protocols, N and K.

What tables and figures show of a design is theirs; whether it is there is decided here.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from analysis.frame import Panel, Results
from analysis.labels import SETTING, SWITCHES, TRAINING, across, slug, training
from analysis.statistics import Difference, Factor, factorial_effects, switch

BOTH = ("strict", "released")
ABOUT_TRAINING = (
    "Training between pre-training and sessions is by GPIL, supervised on the same labels, or none. GPIL "
    "less supervised is what GPIL itself is worth; supervised less nothing is what the labels are, where "
    "pre-training did not have them. Interactions of training are those of GPIL less supervised."
)
REPEATED_FOR = ("pretrain_on",)  # an ablation is one for each of its values
OF_THE_PROTOCOL = ("protocol", "queries_per_class", "revision")  # it draws test nodes of its own


@dataclass(frozen=True)
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

    def effects(self, moment: str) -> dict[str, Difference]:
        """Of the factors and their interactions, at the `first` or the `last` session."""
        return factorial_effects(self.cells(moment), [self._contrasts(factor) for factor in self.factors])

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


def factorials(panel: Panel) -> Iterator[Factorial]:
    """Those of any number of factors among HAG-Meta's runs, one for each state of all other settings."""
    runs = panel.runs[panel.runs["method"] == "hag-meta"]
    others = [key for key in panel.varied() if key not in (*SWITCHES, "method")]
    called = across(runs, others, SWITCHES) if others else pd.Series("", index=runs.index)
    runs = runs.assign(training=[training(run) for run in runs.to_dict("records")])
    for name, group in runs.groupby(called, sort=False):
        first = "training" if "supervised" in set(group["training"]) else "gpil"
        factors = [key for key in (first, "nla", "tla") if key in group and group[key].nunique() > 1]
        if factors and len(group[factors].drop_duplicates()) == group[factors].nunique().prod():
            sessions = panel.sessions[panel.sessions["run"].isin(group["run"])]
            yield Factorial(replace(panel, runs=group, sessions=sessions), str(name), factors)


def whole_factorials(panel: Panel) -> list[Factorial]:
    """Those that all of a panel's configurations make, if they do and nothing else varies that counts."""
    if set(panel.varied()) - {*SWITCHES, *REPEATED_FOR}:
        return []
    found = list(factorials(panel))
    return found if sum(len(each.panel.labels) for each in found) == len(panel.labels) else []


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
        elsewhere = ("method", *(SWITCHES if any(factorials(panel)) else ()))
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


def protocol_pairs(results: Results) -> list[tuple[str, str, pd.DataFrame, pd.DataFrame]]:
    """(where, label, strict runs, released runs), both by seed, for what was run under both protocols.

    Training queries are the protocol's own by default, so that they may differ; so may what one of the two
    decides by itself, which its runs do not have.
    """
    absent = results.runs[results.keys].isna().groupby(results.runs["protocol"]).all().any()
    same = [key for key in results.keys if key not in (*OF_THE_PROTOCOL, "query_shot") and not absent[key]]
    pairs = []
    for strict, released in _under_both(results.runs, same):
        if strict["seed"].duplicated().any() or released["seed"].duplicated().any():
            continue
        first = strict.iloc[0]
        where = f"{first['dataset']}, {first['n_way']}-way {first['k_shot']}-shot"
        pairs.append((where, str(first["label"]), strict.set_index("seed"), released.set_index("seed")))
    return pairs


@dataclass(frozen=True)
class ProtocolSetting:
    """Runs in one setting, under either protocol, and the names of what was run under both."""

    words: str
    runs: pd.DataFrame  # with a column `name`: the configuration
    pairs: list[str]


def protocol_settings(results: Results) -> list[ProtocolSetting]:
    """Where configurations were run under both protocols; training queries that were given are alike."""
    keys = [key for key in SETTING if key in results.keys and key not in OF_THE_PROTOCOL]
    found, varied = [], results.varied()
    for values, runs in results.runs.groupby(keys, dropna=False, sort=False):
        named = runs.assign(name=across(runs, varied, SETTING))
        pairs = [str(strict["name"].iloc[0]) for strict, _ in _under_both(named, ["name"])]
        if pairs:
            words = _setting_words(dict(zip(keys, values, strict=True)), varied)
            found.append(ProtocolSetting(words, named, pairs))
    return found


def _under_both(runs: pd.DataFrame, same: Sequence[str]) -> Iterator[tuple[pd.DataFrame, pd.DataFrame]]:
    """(strict runs, released runs) of those that are alike in these columns."""
    for _, alike in runs.groupby(list(same), sort=False, dropna=False):
        strict, released = (alike[alike["protocol"] == name] for name in BOTH)
        if len(strict) and len(released):
            yield strict, released


def _setting_words(setting: dict[str, object], varied: Sequence[str]) -> str:
    told = [f"{setting['dataset']}, {setting['n_way']}-way {setting['k_shot']}-shot"]
    others = [
        key for key in setting if key in varied and key not in ("dataset", "n_way", "k_shot", "sessions")
    ]
    return ", ".join(told + [f"{key} {setting[key]}" for key in others])


def shapes(runs: pd.DataFrame) -> pd.DataFrame:
    """The N and K that runs were made with, in order."""
    return runs[["n_way", "k_shot"]].drop_duplicates().sort_values(["n_way", "k_shot"])


def grids(results: Results) -> Iterator[tuple[str, pd.DataFrame]]:
    """Runs of several N or K that share the rest of a setting, with a column `name`: the configuration."""
    keys = [key for key in SETTING if key in results.keys and key not in ("n_way", "k_shot", "sessions")]
    varied = results.varied()
    told = [key for key in keys if key in varied or key in ("dataset", "protocol")]
    for values, runs in results.runs.groupby(keys, dropna=False, sort=False):
        if len(shapes(runs)) < 2:
            continue
        first = dict(zip(keys, values, strict=True))
        words = [str(first[key]) if key in ("dataset", "protocol") else f"{key} {first[key]}" for key in told]
        yield ", ".join(words), runs.assign(name=across(runs, varied, SETTING))
