"""Short names for datasets, settings and seeds, so that terminal output fits 80 columns."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import Any

from hagmeta.common.plugins.identity import without_hash
from hagmeta.common.records.differences import differing, sort_key
from hagmeta.config.run_config import RunConfig, scopes_of

FILES = ("npz:", "mat:")
ALWAYS_LISTED = ("dataset", "method")  # no value of these is a common one: readers look for each of them
SWITCHES = ("gpil", "nla", "tla")  # abbreviations, which readers know in capitals
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


def _short(name: str, parts: int) -> str:
    is_file = name.startswith(FILES) or name.endswith(".npz")
    return str(PurePath(*_path(name).parts[-parts:])) if is_file else without_hash(name)


def seeds_text(seeds: Sequence[int]) -> str:
    """Return ``seed 3``, ``seeds 0-9`` or ``seeds 1,4,7``."""
    if len(seeds) == 1:
        return f"seed {seeds[0]}"
    if list(seeds) == list(range(seeds[0], seeds[0] + len(seeds))):
        return f"seeds {seeds[0]}-{seeds[-1]}"
    return f"seeds {','.join(map(str, seeds))}"


def value_text(value: object, names: Mapping[str, str] | None = None) -> str:
    """Return the value of a setting, by its short name where `names` has one."""
    if isinstance(value, str):
        return (names or {}).get(value, value)
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return "none" if value is None else str(value)


def setting_text(key: str, value: object, names: Mapping[str, str] | None = None) -> str:
    """Return a setting with its value: ``TLA off``, ``hidden 32``."""
    return f"{key.upper() if key in SWITCHES else key} {value_text(value, names)}"


def settings_text(values: Mapping[str, Any]) -> str:
    """Return settings in one line: ``hidden 16, dropout 0.5``."""
    return ", ".join(setting_text(key, value) for key, value in values.items())


def wrapped(head: str, parts: Sequence[str], width: int, indent: str = "  ", more: str = "    ") -> str:
    """Return `head` and `parts`, joined by commas, in lines of at most `width` columns.

    All lines begin with `indent`, and those after the first with `more`. Lines do not break within a part,
    such as ``hidden 32``. This is much faster than printing through rich: a plan may have thousands of lines.
    """
    whole = head + ", ".join(part.replace(" ", "\u00a0") for part in parts)
    lines = textwrap.wrap(
        whole,
        width,
        initial_indent=indent,
        subsequent_indent=indent + more,
        break_long_words=False,
    )
    return "\n".join(lines).replace("\u00a0", " ")


class Names:
    """Names configurations by what sets them apart: method, dataset and the settings that vary.

    Attributes:
        common: The values that names leave out, because most configurations have them. Empty if few settings
            vary: then names have all of them.
    """

    def __init__(self, configs: Sequence[Mapping[str, Any]], keys: Iterable[str]) -> None:
        """Prepare the names.

        Args:
            configs: The settings of every configuration.
            keys: The settings that vary.
        """
        self._keys = [key for key in keys if key not in ALWAYS_LISTED]
        texts = {value for config in configs for value in config.values() if isinstance(value, str)}
        self._short = short_names(sorted(texts))
        many = len(self._keys) > MOST_IN_FULL
        self.common = {key: _most_frequent(key, configs) for key in self._keys} if many else {}

    def where(self, config: Mapping[str, Any]) -> str:
        """Return ``hag-meta on debian``."""
        return f"{self.value(config, 'method')} on {self.value(config, 'dataset')}"

    def value(self, config: Mapping[str, Any], key: str) -> str:
        """Return the short value of a setting; nothing if it does not apply."""
        return value_text(config[key], self._short) if key in config else ""

    def settings(self, configs: Sequence[Mapping[str, Any]]) -> list[str]:
        """Return the settings that vary in the study and are the same in `configs`, without common values."""
        config = configs[0]
        alike = [k for k in self._keys if k in config and all(each.get(k) == config[k] for each in configs)]
        shown = [key for key in alike if not (key in self.common and config[key] == self.common[key])]
        return [setting_text(key, config[key], self._short) for key in shown]

    def of(self, configs: Sequence[Mapping[str, Any]], seeds: Sequence[int]) -> list[str]:
        """Return the parts of a name such as ``hag-meta on debian, hidden 32, seeds 0-9``."""
        many = [f"{len(configs)} configurations"] if len(configs) > 1 else []
        return [self.where(configs[0]), *self.settings(configs), *many, seeds_text(seeds)]


def names_of(configs: Iterable[RunConfig]) -> Names:
    """Return names for configurations, by the settings in which they differ."""
    unique = list(dict.fromkeys(configs))
    settings = [config.canonical() for config in unique]
    return Names(settings, differing(settings, scopes_of(unique)))


def _most_frequent(key: str, configs: Sequence[Mapping[str, Any]]) -> Any:
    """Return the most frequent value of a setting that some configurations have."""
    values = {value_text(config[key]): config[key] for config in configs if key in config}
    count = Counter(value_text(config[key]) for config in configs if key in config)
    return min(values.values(), key=lambda value: (-count[value_text(value)], sort_key(value)))
