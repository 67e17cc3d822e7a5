"""What configurations are called in figures, and when runs in different settings are of the same one."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pandas as pd

from analysis.frame import Panel
from analysis.labels import describe, readable, slug
from hagmeta.config import RELEASED_QUERIES

__all__ = ["across", "shown", "slug", "text"]
LONGEST = 70  # characters


def shown(panel: Panel) -> dict[str, str]:
    """The panel's labels as they are drawn: shorter, where they list what the panel has in common."""
    first = panel.runs.drop_duplicates("label")
    names = dict(zip(first["label"], across(first, panel.varied()), strict=True))
    if len(set(names.values())) < len(names):
        return {label: label for label in panel.labels}
    shorter = {label: _cut(min(name, label, key=len)) for label, name in names.items()}
    return shorter if len(set(shorter.values())) == len(names) else names


def _cut(name: str) -> str:
    """Of a long list of settings the first ones."""
    parts = name.split(", ")
    if len(name) <= LONGEST or len(parts) < 4:
        return name
    return f"{', '.join(parts[:2])} and {len(parts) - 2} more changes"


def across(runs: pd.DataFrame, keys: Collection[str], apart: Collection[str] = ()) -> pd.Series:
    """A name a run, the same for runs that differ only in settings ``apart`` and what follows from them."""
    configs = _without_derived(runs.drop_duplicates("config_hash"))
    names = describe(configs, [key for key in keys if key not in apart])
    return runs["config_hash"].map(dict(zip(configs["config_hash"], names, strict=True)))


def _without_derived(configs: pd.DataFrame) -> pd.DataFrame:
    """With ``query_shot`` empty where K or the protocol has decided it."""
    if "query_shot" not in configs:
        return configs
    default = configs["k_shot"].where(configs["protocol"] != "released", RELEASED_QUERIES)
    return configs.assign(query_shot=configs["query_shot"].where(configs["query_shot"] != default))


def text(value: Any) -> str:
    """A setting's value on an axis."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:.3g}" if isinstance(value, float) else readable(value)
