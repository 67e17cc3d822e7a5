"""Which experiments the results hold: a factorial of switches, one setting at a time, both protocols."""

from __future__ import annotations

import pandas as pd

from analysis.frame import Panel, Results
from analysis.labels import TOGGLES, is_absent
from analysis.statistics import Difference, factorial_effects


def toggles_of(panel: Panel) -> list[str]:
    """The parts of HAG-Meta that are on in some runs and off in others."""
    return [key for key in TOGGLES if key in panel.varied()]


def factorial_cells(panel: Panel) -> dict[tuple[bool, ...], str]:
    """Labels by the states of the switches, if all combinations are there and nothing else varies."""
    toggles = toggles_of(panel)
    if not toggles or set(panel.varied()) - set(toggles):
        return {}
    configs = panel.runs.drop_duplicates("label")
    cells = {tuple(bool(run[key]) for key in toggles): run["label"] for _, run in configs.iterrows()}
    return cells if len(cells) == 2 ** len(toggles) == len(configs) else {}


def effects(panel: Panel, moment: str) -> dict[str, Difference]:
    """Of the switches, at the first or the last session."""
    values = panel.by_seed(moment)
    cells = {state: values[label] for state, label in factorial_cells(panel).items()}
    return factorial_effects(cells, [key.upper() for key in toggles_of(panel)])


def one_at_a_time(panel: Panel) -> dict[str, list[str]]:
    """Labels by the one setting in which each differs from the reference; switches and methods aside."""
    found: dict[str, list[str]] = {}
    keys = [key for key in panel.varied() if key not in (*TOGGLES, "method")]
    configs = panel.runs.drop_duplicates("label").set_index("label")
    reference = configs.loc[panel.reference]
    for label, config in configs.iterrows():
        different = [
            key for key in [*keys, *TOGGLES, "method"] if _differ(config.get(key), reference.get(key))
        ]
        if len(different) == 1 and different[0] in keys:
            found.setdefault(different[0], []).append(str(label))
    return {key: found[key] for key in keys if key in found}


def protocol_pairs(results: Results) -> list[tuple[str, str, pd.DataFrame, pd.DataFrame]]:
    """(where, label, strict runs, released runs), both by seed, for what was run under both protocols.

    Training queries are the protocol's own by default, so that they may differ.
    """
    apart = ("protocol", "query_shot", "queries_per_class")
    same = [key for key in results.keys if key not in apart]
    pairs = []
    for _, runs in results.runs.groupby(same, sort=False, dropna=False):
        by_protocol = {name: group for name, group in runs.groupby("protocol")}
        if len(by_protocol) < 2 or any(group["seed"].duplicated().any() for group in by_protocol.values()):
            continue
        first = runs.iloc[0]
        where = f"{first['dataset']}, {first['n_way']}-way {first['k_shot']}-shot"
        strict, released = (by_protocol[name].set_index("seed") for name in ("strict", "released"))
        pairs.append((where, str(strict["label"].iloc[0]), strict, released))
    return pairs


def _differ(one: object, other: object) -> bool:
    if is_absent(one) or is_absent(other):
        return is_absent(one) != is_absent(other)
    return one != other
