"""Find the settings in which configurations differ, and sort the values of a setting."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from numbers import Real
from typing import Any

from hagmeta.common.settings.scopes import Scopes

Config = Mapping[str, Any]
OF_THE_DATASET = ("classes", "sessions")  # other datasets have other classes
DECIDED_BY = {"sessions": ("n_way",), "query_shot": ("k_shot", "protocol")}  # unless set explicitly


def differing(
    configs: Sequence[Config], scopes: Scopes, given: Sequence[Collection[str]] | None = None
) -> list[str]:
    """Return the settings in which configurations differ: those of the method count within a method.

    The settings ``classes`` and ``sessions`` count only if they differ within a dataset. The defaults of
    ``sessions`` and ``query_shot`` follow from other settings. These two count if they were set explicitly.

    Args:
        configs: The configurations.
        scopes: The settings that count wherever they differ.
        given: For each configuration, the settings that were set explicitly. If this is unknown, ``sessions``
            and ``query_shot`` count unless the settings that decide them also differ.
    """
    if given is not None:
        configs = [_as_given(config, names) for config, names in zip(configs, given, strict=True)]
    keys = dict.fromkeys(key for config in configs for key in config)
    found = [key for key in keys if _differs(key, configs, scopes)]
    if given is not None:
        return found
    return [key for key in found if not set(DECIDED_BY.get(key, ())) & set(found)]


def _as_given(config: Config, given: Collection[str]) -> Config:
    """Return ``config`` with None for values that follow from the task."""
    return {**config, **{key: config.get(key) if key in given else None for key in DECIDED_BY}}


def _differs(key: str, configs: Sequence[Config], scopes: Scopes) -> bool:
    everywhere = key == "method" or (key in scopes.both and key not in OF_THE_DATASET)
    within = "dataset" if key in OF_THE_DATASET else "method"
    values: dict[Any, set[Any]] = {}
    for config in configs:
        if key in config:
            group = None if everywhere else config[within]
            values.setdefault(group, set()).add(_hashable(config[key]))
    return any(len(found) > 1 for found in values.values())


def _hashable(value: Any) -> Any:
    """Return a value that equals others as `value` does. A damaged record can have lists within lists."""
    if isinstance(value, Mapping):
        return tuple((key, _hashable(item)) for key, item in sorted(value.items(), key=str))
    return tuple(map(_hashable, value)) if isinstance(value, list) else value


def sort_key(value: Any) -> tuple[bool, float, str]:
    """Return a sort key for the values of a setting: numbers by size, then names, then missing values."""
    number = isinstance(value, Real) and value == value
    return (not number, float(value) if number else 0.0, str(value))
