"""Detect plug-ins whose code has changed since a study began: old and new runs are not comparable."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from hagmeta.common.errors import UserError
from hagmeta.common.plugins.identity import is_identity, without_hash
from hagmeta.common.records.records import StudyFolder
from hagmeta.config.run_config import REGISTRIES, RunConfig
from hagmeta.datasets import DATASETS


def check_unchanged(store: StudyFolder, configs: Iterable[RunConfig]) -> None:
    """Refuse to mix runs of two versions of a plug-in in one folder.

    Metrics may change, because they are computed again from stored predictions.

    Args:
        store: The folder of the study, with earlier launches and records.
        configs: The configurations to run.
    """
    now = {plugin for config in configs for plugin in plugins_of(config)}
    # The hash of a graph in memory is of its content: another graph is not a change of code.
    now -= {(kind, name) for kind, name in now if kind == "dataset" and name not in DATASETS}
    if not now:
        return
    for kind, before in _used_before(store):
        for _, name in sorted(each for each in now if each[0] == kind):
            title = without_hash(name)
            if name != before and title == without_hash(before):
                raise UserError(
                    f"the {kind} {title} has changed: {store.folder} has runs of {before}, but the code is "
                    f"now {name}. Use another --results folder, or restore the old code."
                )


def plugins_of(config: RunConfig) -> Iterator[tuple[str, str]]:
    """Yield the plug-ins of a configuration, as pairs of kind and identity."""
    yield from _plugins_of(config.canonical())


def _plugins_of(config: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the plug-ins among the settings of a configuration, as pairs of kind and identity."""
    for kind in (*REGISTRIES, "dataset"):
        if is_identity(str(config.get(kind, ""))):
            yield kind, config[kind]


def _used_before(store: StudyFolder) -> Iterator[tuple[str, str]]:
    for path in sorted(store.launches.glob("*.json")):
        for config in _content(path).get("configs", {}).values():
            yield from _plugins_of(config)
    for folder in sorted(store.runs.glob("*")):
        record = next(folder.glob("*.json"), None)
        if record is not None:  # all records of a folder have the same configuration
            yield from _plugins_of(_content(record).get("config", {}))


def _content(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):  # damaged: a scan moves it aside
        return {}
    return found if isinstance(found, dict) else {}
