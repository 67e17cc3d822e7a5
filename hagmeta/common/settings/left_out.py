"""Which settings a configuration's hash leaves out, and the names in it, so that no earlier hash changes.

Hashes name records, and those of searches seed their proposals. So this table is closed: an entry never
changes. A new setting that many methods share adds one entry, the value that describes all earlier runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

LEFT_OUT_AT: Mapping[str, Any] = {
    "split": "drawn",
    "scored_on": "test",
    "visibility": "arriving",
    "mislabelled": 0,
    "unlabelled_nodes": "all",
    "pretrain_on": "base",
    "rehearsal": "all",
    "inputs": "raw",
    "normalisation": "visible",
    "classifier": "linear",
    "self_training": 0,
    "double_prototypes": True,
    "smoothing": 0.0,
    "logit_adjustment": 0.0,
    "prior": "equal",
    "instead_of_gpil": "nothing",
    "nla_degree": "visible",
    "nla_weights": "softmax",
    "nla_rate": "common",
    "nla_decay": "common",
    "tla_weights": "learnt",
    "tla_layers": "three",
    "tla_tasks": "transposed",
    "tla_vectors": "linear",
    "tla_gradients": "fresh",
    "refitted": False,
    "tukey": 1.0,
    "random_features": 0,
    "played": False,
    "background": False,
    "limited_penalty": False,
    "faithful": True,
    "spread": "smoothing",
}
# The names in hashes of settings that were renamed. The table above has these names.
HASHED_AS: Mapping[str, str] = {
    "unlabelled_weight": "unlabelled",
    "propagation_weight": "coupling",
    "simulated_sessions": "played",
    "outlier_class": "background",
    "capped_penalty": "limited_penalty",
}
# Settings that were replaced by `faithful`. Archives have them at the values that hashes leave out.
REPLACED = frozenset(
    {
        *("normalisation", "double_prototypes", "nla_degree"),
        *("tla_layers", "tla_tasks", "tla_vectors", "tla_gradients"),
    }
)
# Settings that no method has any more. Archives show them by these names.
REMOVED: Mapping[str, str] = {"outlier_class": "posterior-means has no outlier class since its revision 12"}
LAST_WITH_OLD_NAMES = "065c05b"  # the last commit that knew them
OLD_NAMES = REPLACED | {*HASHED_AS.values()}  # no record of today has one
# A setting without effect is recorded with its default, but there are two exceptions. They never change.
KEPT_IF_IDLE: Mapping[str, str] = {"heads": "encoder"}  # keeps its value if the other setting makes it idle
ABSENT_IF_IDLE = frozenset({"instead_of_gpil"})


def hashed_as(setting: str) -> str:
    """Return the name of a setting in hashes."""
    return HASHED_AS.get(setting, setting)


def named_today(settings: Iterable[str]) -> dict[str, str]:
    """Return the names of today for the `settings` of an archive, without those that were replaced."""
    today = {old: new for new, old in HASHED_AS.items()}
    return {name: today.get(name, name) for name in settings if name not in REPLACED}


def why_gone(setting: str) -> str:
    """Return what became of the setting with an old name."""
    if setting in REPLACED:
        return f"the setting {setting} is gone; under released, faithful: false turns it off."
    name = named_today([setting])[setting]
    if name in REMOVED:
        return f"the setting {name} is gone; {REMOVED[name]}."
    return f"the setting {setting} is called {name} today."


def left_out(config: Mapping[str, Any]) -> list[str]:
    """Return the settings of `config` that its hash leaves out."""
    hashed = {name: hashed_as(name) for name in config}
    return [n for n, known in hashed.items() if known in LEFT_OUT_AT and LEFT_OUT_AT[known] == config[n]]
