"""Find configurations that ran under the strict and the released protocol."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pandas as pd

from analysis.data.labels import across, readable
from analysis.data.results import Results

BOTH = ("strict", "released")
OF_THE_PROTOCOL = ("queries_per_class", "revision")  # each protocol draws different test nodes


@dataclass(frozen=True)
class ProtocolSetting:
    """Runs in one setting under either protocol, and the names of configurations with both."""

    words: str
    runs: pd.DataFrame  # with a column `name`: the configuration
    pairs: list[str]


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


def protocol_pairs(
    settings: Sequence[ProtocolSetting],
) -> list[tuple[str, str, pd.DataFrame, pd.DataFrame]]:
    """Return (where, name, strict runs, released runs) by seed, for configurations with both protocols."""
    pairs = []
    for setting in settings:
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
