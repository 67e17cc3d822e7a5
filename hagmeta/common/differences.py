"""Which settings tell configurations apart, and in which order the values of a setting stand."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from numbers import Real
from typing import Any

Config = Mapping[str, Any]
# What a task is made of, and who solves it: any difference counts.
TASK = (
    *("dataset", "method", "protocol", "n_way", "k_shot"),
    *("queries_per_class", "drop_small", "val_classes", "visibility", "mislabelled"),
)
DECIDED_BY = {"sessions": ("n_way",), "query_shot": ("k_shot", "protocol")}  # unless they are given


def differing(configs: Sequence[Config], given: Sequence[Collection[str]] | None = None) -> list[str]:
    """The settings that tell configurations apart: the task's, and those that differ within a method.

    Classes count where they differ within a dataset, which decides them. Sessions follow from N, and
    training queries from K and the protocol: they count where they were ``given``, by name for each
    configuration. Where that is not known, they count unless what decides them differs as well.
    """
    if given is not None:
        configs = [_as_given(config, names) for config, names in zip(configs, given, strict=True)]
    keys = dict.fromkeys(key for config in configs for key in config)
    found = [key for key in keys if _differs(key, configs)]
    if given is not None:
        return found
    return [key for key in found if not set(DECIDED_BY.get(key, ())) & set(found)]


def _as_given(config: Config, given: Collection[str]) -> Config:
    """With nothing in the place of what the task has decided."""
    return {**config, **{key: config.get(key) if key in given else None for key in DECIDED_BY}}


def _differs(key: str, configs: Sequence[Config]) -> bool:
    within = "dataset" if key == "classes" else "method"
    values: dict[Any, set[Any]] = {}
    for config in configs:
        if key in config:
            group = None if key in TASK else config[within]
            values.setdefault(group, set()).add(_hashable(config[key]))
    return any(len(found) > 1 for found in values.values())


def _hashable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def sort_key(value: Any) -> tuple[bool, float, str]:
    """Orders the values of a setting: numbers by size, NumPy's too, then names; what is absent comes last."""
    number = isinstance(value, Real) and value == value
    return (not number, float(value) if number else 0.0, str(value))
