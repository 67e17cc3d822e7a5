"""Which experiments the results hold: factorials of switches, one setting at a time, both protocols, N and K.

What tables and figures show of a design is theirs; whether it is there is decided here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.frame import Panel, Results
from analysis.labels import SETTING, TOGGLES, across, slug
from analysis.statistics import Difference, factorial_effects

BOTH = ("strict", "released")
OF_THE_PROTOCOL = ("protocol", "queries_per_class", "revision")  # it draws test nodes of its own


@dataclass(frozen=True)
class Factorial:
    """Runs that differ in switches only, every combination of which is there."""

    panel: Panel
    name: str  # of what the combinations share, where the panel has more
    factors: list[str]
    runs: pd.DataFrame

    @property
    def title(self) -> str:
        return f"{self.panel.title}; {self.name}" if self.name else self.panel.title

    @property
    def slug(self) -> str:
        """For file names."""
        return slug(self.panel.slug, self.name)

    def cells(self, moment: str) -> dict[tuple[bool, ...], pd.Series]:
        """For each combination the accuracies by seed, at the `first` or the `last` session."""
        return {
            tuple(map(bool, cell)): runs.set_index("seed")[moment].sort_index()
            for cell, runs in self.runs.groupby(self.factors, sort=False)
        }

    def effects(self, moment: str) -> dict[str, Difference]:
        """Of the switches and their interactions, at the `first` or the `last` session."""
        return factorial_effects(self.cells(moment), [factor.upper() for factor in self.factors])


def factorials(panel: Panel) -> Iterator[Factorial]:
    """Those of any number of switches among HAG-Meta's runs, one for each state of all other settings."""
    runs = panel.runs[panel.runs["method"] == "hag-meta"]
    others = [key for key in panel.varied() if key not in (*TOGGLES, "method")]
    called = across(runs, others, TOGGLES) if others else pd.Series("", index=runs.index)
    for name, group in runs.groupby(called, sort=False):
        factors = [key for key in TOGGLES if key in group and group[key].nunique() == 2]
        if factors and len(group[factors].drop_duplicates()) == 2 ** len(factors):
            yield Factorial(panel, str(name), factors, group)


def whole_factorial(panel: Panel) -> Factorial | None:
    """The one that all of a panel's configurations make, if they do and nothing else varies."""
    if set(panel.varied()) - set(TOGGLES):
        return None
    found = next(factorials(panel), None)
    return found if found and len(panel.labels) == 2 ** len(found.factors) else None


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
        elsewhere = ("method", *(TOGGLES if any(factorials(panel)) else ()))
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
