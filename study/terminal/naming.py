"""Short names for datasets, settings and seeds, so that terminal output fits 80 columns."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import Any

from hagmeta.common.plugins.identity import without_hash
from hagmeta.common.records.differences import sort_key

FILES = ("npz:", "mat:")
ALWAYS_LISTED = ("dataset", "method")  # no value of these is a common one: readers look for each of them
MOST_IN_FULL = 3  # settings; where more vary, a name lists only those that differ from the common values


def counted(count: int, noun: str) -> str:
    """Return ``1 seed`` or ``2 seeds``."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def short_names(names: Iterable[str]) -> dict[str, str]:
    """Map each name to a short one: a file by its file name, a plug-in without its hash.

    Names that would become equal keep what tells them apart: parent folders, or the hash.
    """
    full = list(dict.fromkeys(names))
    short = {name: _short(name, 1) for name in full}
    for parts in range(2, max((len(_path(name).parts) for name in full), default=0) + 1):
        count = Counter(short.values())
        short = {name: _short(name, parts) if count[short[name]] > 1 else short[name] for name in full}
    count = Counter(short.values())
    return {name: short[name] if count[short[name]] == 1 else name for name in full}


def _path(name: str) -> PurePath:
    return PurePath(name.partition(":")[2] if name.startswith(FILES) else name)


def _is_file(name: str) -> bool:
    return name.startswith(FILES) or name.endswith(".npz")


def _short(name: str, parts: int) -> str:
    return str(PurePath(*_path(name).parts[-parts:])) if _is_file(name) else without_hash(name)


def seeds_text(seeds: Sequence[int]) -> str:
    """Return ``seed 3``, ``seeds 0-9`` or ``seeds 1,4,7``."""
    if len(seeds) == 1:
        return f"seed {seeds[0]}"
    if list(seeds) == list(range(seeds[0], seeds[0] + len(seeds))):
        return f"seeds {seeds[0]}-{seeds[-1]}"
    return f"seeds {','.join(map(str, seeds))}"


def value_text(value: object, names: Mapping[str, str] | None = None) -> str:
    """Return the value of a setting as tables show it, by its short name where `names` has one."""
    if isinstance(value, str):
        return (names or {}).get(value, value)
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return "none" if value is None else str(value)


def common_values(configs: Sequence[Mapping[str, Any]], keys: Iterable[str]) -> dict[str, Any]:
    """Return the most frequent value of each setting in `keys`, over the `configs` that have it."""
    found = {}
    for key in keys:
        values = {value_text(config[key]): config[key] for config in configs if key in config}
        count = Counter(value_text(config[key]) for config in configs if key in config)
        if values and key not in ALWAYS_LISTED:
            found[key] = min(values.values(), key=lambda v: (-count[value_text(v)], sort_key(v)))
    return found


def differences(
    config: Mapping[str, Any], keys: Iterable[str], common: Mapping[str, Any], names: Mapping[str, str]
) -> list[str]:
    """Return ``key value`` for each setting in `keys` whose value is not the one in `common`.

    Args:
        config: The settings of a configuration; those that do not apply to it are missing.
        keys: The settings to compare, in the order of the result.
        common: Values that are not repeated, by setting.
        names: Short names of datasets and plug-ins.
    """
    apart = [key for key in keys if key in config and not (key in common and config[key] == common[key])]
    return [f"{key} {value_text(config[key], names)}" for key in apart]


def wrapped(head: str, parts: Sequence[str], width: int, indent: str = "  ") -> str:
    """Return `head` and `parts`, joined by commas, in lines of at most `width` columns.

    Lines do not break within a part, such as ``hidden 32``. This is much faster than printing through rich: a
    plan may have thousands of lines.
    """
    whole = head + ", ".join(part.replace(" ", "\u00a0") for part in parts)
    lines = textwrap.wrap(
        whole,
        width,
        initial_indent=indent,
        subsequent_indent=f"{indent}    ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join(lines).replace("\u00a0", " ")


def settings_text(values: Mapping[str, Any]) -> str:
    """Return settings in one line: ``hidden 16, dropout 0.5``."""
    return ", ".join(f"{key} {value_text(value)}" for key, value in values.items())


def _brief(value: object) -> str:
    """Return a sampled value, which may have many digits, with three of them."""
    return f"{value:.3g}" if isinstance(value, float) else value_text(value)


class TrialNames:
    """Names trials by what sets them apart: method, dataset, the settings that vary, and seeds.

    A method or a dataset that all trials share is left out if the other one varies.
    """

    def __init__(self, configs: Sequence[Mapping[str, Any]], keys: Iterable[str]) -> None:
        """Prepare the names of all trials.

        Args:
            configs: The settings of every configuration.
            keys: The settings that vary.
        """
        self._keys = [key for key in keys if key not in ALWAYS_LISTED]
        many = len(self._keys) > MOST_IN_FULL
        self.common = common_values(configs, self._keys) if many else {}
        self._short = short_names(str(config[key]) for config in configs for key in ALWAYS_LISTED)
        both = ("method", "dataset")
        self._first = tuple(key for key in both if len({config[key] for config in configs}) > 1) or both

    def of(
        self,
        configs: Sequence[Mapping[str, Any]],
        seeds: Sequence[int],
        settings: Mapping[str, Any] | None = None,
    ) -> list[str]:
        """Return the parts of a name such as ``hag-meta on debian, hidden 32, seeds 0-9``.

        Args:
            configs: The settings of each configuration of the trial.
            seeds: Its seeds.
            settings: What to show instead of the settings that vary, such as the values of a sample.
        """
        config = configs[0]
        what = " on ".join(value_text(config[key], self._short) for key in self._first)
        if settings is None:
            alike = [key for key in self._keys if all(other.get(key) == config.get(key) for other in configs)]
            shown = differences(config, alike, self.common, self._short)
        else:
            shown = [f"{key} {_brief(value)}" for key, value in settings.items()]
        many = [f"{len(configs)} configurations"] if len(configs) > 1 else []
        return [what, *shown, *many, seeds_text(seeds)]
