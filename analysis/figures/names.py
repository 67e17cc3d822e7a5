"""What a configuration is called in a figure, and when two runs in different settings are of the same one."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pandas as pd

from analysis.frame import NAMES, TOGGLES, Panel, varied
from hagmeta.config import RELEASED_QUERIES, RunConfig

ALL_OFF = "none of the three"


def shown(panel: Panel) -> dict[str, str]:
    """The panel's labels as they are drawn: shorter, where they list what the panel has in common."""
    first = panel.runs.drop_duplicates("label")
    names = dict(zip(first["label"], describe(first, panel.keys), strict=True))
    if len(set(names.values())) < len(names):
        return {label: label for label in panel.labels}
    return {label: min(name, label, key=len) for label, name in names.items()}


def describe(runs: pd.DataFrame, keys: Collection[str], apart: Collection[str] = ()) -> pd.Series:
    """A name a run, from the settings in which runs differ, those in ``apart`` left aside.

    Runs of different settings get one name if they are of the same configuration. Where several settings
    differ, only what departs from the default (or else from the most frequent value) is named.
    """
    plain = without_derived(runs)
    different = [key for key in varied(plain, keys) if key not in apart and key != "method"]
    others = [key for key in different if key not in TOGGLES]
    switched = any(key in TOGGLES for key in different)
    several = plain["method"].nunique() > 1
    usual = {key: _usual(plain[key], key) for key in others}

    def name(run: Any) -> str:
        departs = [
            f"{key} {text(run[key])}"
            for key in others
            if not pd.isna(run[key]) and (len(others) == 1 or run[key] != usual[key])
        ]
        on = [key.upper() for key in TOGGLES if run.get(key) is True]
        if switched and run["method"] == "hag-meta" and not (several and len(on) == len(TOGGLES)):
            departs.insert(0, " + ".join(on) or ALL_OFF)
        method = NAMES.get(run["method"], run["method"])
        if several or not departs:
            return f"{method} ({', '.join(departs)})" if departs else method
        return ", ".join(departs)

    columns = ["method", *TOGGLES, *others]
    kinds = plain.reindex(columns=list(dict.fromkeys(columns))).astype(object)
    once = kinds.drop_duplicates()
    names = {tuple(map(str, row)): name(dict(zip(kinds, row, strict=True))) for row in once.to_numpy()}
    return pd.Series([names[tuple(map(str, row))] for row in kinds.to_numpy()], index=runs.index)


def without_derived(runs: pd.DataFrame) -> pd.DataFrame:
    """The runs with ``query_shot`` empty where K or the protocol has decided it."""
    if "query_shot" not in runs:
        return runs
    default = runs["k_shot"].where(runs["protocol"] != "released", RELEASED_QUERIES)
    return runs.assign(query_shot=runs["query_shot"].where(runs["query_shot"] != default))


def text(value: Any) -> str:
    """A setting's value, as short as it can be told."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def slug(*parts: object) -> str:
    """For file names."""
    letters = "".join(c if c.isalnum() else "-" for c in "-".join(map(str, parts)).lower())
    return "-".join(word for word in letters.split("-") if word)


def _usual(values: pd.Series, key: str) -> Any:
    default = RunConfig().canonical().get(key)
    return default if (values == default).any() else values.mode().iloc[0]
