"""Complete the configurations of records, so that those of different methods and studies can be compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import PurePath
from typing import Any

from hagmeta.common.records.records import OpenRecord
from hagmeta.common.settings.left_out import LEFT_OUT_AT, hashed_as
from hagmeta.common.settings.scopes import scopes_in

REVISED = ("dataset", "method", "protocol")
REVISION = "revision"  # separates results of different code, as a setting of the task does


def with_short_names(records: Sequence[OpenRecord]) -> list[OpenRecord]:
    """Return the records with file names instead of paths as datasets, if the file names are unique."""
    names = {str(record["config"]["dataset"]) for record in records}
    short = {name: PurePath(name.removeprefix("mat:")).name for name in names}
    shared = Counter(short.values())
    called = {name: each if shared[each] == 1 else name for name, each in short.items()}
    return [
        record | {"config": record["config"] | {"dataset": called[str(record["config"]["dataset"])]}}
        for record in records
    ]


def with_fixed_settings(records: Sequence[OpenRecord]) -> list[OpenRecord]:
    """Return the records with the settings of the task and of the labels that a protocol or a method fixes.

    Records lack such settings. Oracles get none of the labels, because these do not limit them.
    If a configuration ran before and after a revision, the setting `revision` separates the two.
    """
    task, labels = scopes_in(records)
    there = {hashed_as(name): name for record in records for name in record["config"]}
    fixed = {there[name]: value for name, value in LEFT_OUT_AT.items() if name in there}
    revisions: dict[tuple[Any, ...], set[str]] = {}
    for record in records:
        revisions.setdefault((record["config"].get("dataset"), *_system(record)), set()).add(
            _revision(record)
        )
    revised = any(len(found) > 1 for found in revisions.values())
    return [
        record
        | {
            "config": {
                name: value
                for name, value in fixed.items()
                if name in record["config"] or name in task or (name in labels and not record["oracle"])
            }
            | record["config"]
            | ({REVISION: _revision(record)} if revised else {})
        }
        for record in records
    ]


def _system(record: OpenRecord) -> tuple[Any, Any]:
    return record["config"].get("method"), record["config"].get("protocol")


def _revision(record: OpenRecord) -> str:
    """Return the revisions of dataset, method and protocol. Those of settings differ with their values."""
    found = [(name, n) for name, n in sorted(record["revisions"].items()) if name in REVISED]
    return " and ".join(f"{name} {number}" for name, number in found) or "first"
