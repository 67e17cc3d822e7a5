"""Complete older records: settings that were set explicitly, leaks, and settings that came later."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import PurePath
from typing import Any

from hagmeta.common.left_out import LEFT_OUT_AT
from hagmeta.common.records import OpenRecord
from hagmeta.common.scopes import scopes_in

# The defaults when those records were written. They must never change.
# Settings that HAG-Meta did not use (memory, selection, ...) had no usual value in reports.
DEFAULTS_BEFORE_GIVEN: dict[str, Any] = {
    "drop_small": False,
    "gpil": True,
    "nla": True,
    "tla": True,
    "encoder": "gcn",
    "hidden": 32,
    "embedding": 16,
    "heads": 4,
    "dropout": 0.5,
    "learning_rate": 0.005,
    "weight_decay": 0.0005,
    "pretrain_epochs": 2000,
    "pretrain_patience": 10,
    "episodes": 1000,
    "validate_every": 25,
    "patience": 10,
    "loss": "categorical",
    "finetune_steps": 20,
    "finetune_rate": 0.005,
    "queries_per_class": 50,
    "val_classes": 0,
}
REVISED = ("dataset", "method", "protocol")
REVISION = "revision"  # separates results of different code, as a setting of the task does
RELEASED_QUERIES = 20  # queries per class under the released protocol
# Always named, or defaults of the dataset, which records do not contain.
NEVER_GIVEN = ("dataset", "method", "protocol", "classes", "n_way", "k_shot")


def completed(record: OpenRecord) -> OpenRecord:
    """Return the record with the fields that it would have today."""
    config = record["config"]
    unknown = [None] * len(record["accuracy"]) if isinstance(record["accuracy"], list) else None
    younger = {"leaks": config.get("protocol") == "released", "given": given_before(config)}
    said = record.get("traits", {})
    younger["oracle"] = said.get("oracle", False) or config.get("nla_weights") == "oracle"
    younger |= dict.fromkeys(("base_accuracy", "novel_accuracy", "new_accuracy", "harmonic"), unknown)
    told = {"validation": record["validation"] or {}, "config": {"val_classes": 0} | config}
    return younger | record | told


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
    there = {name for record in records for name in record["config"]}
    fixed = {name: value for name, value in LEFT_OUT_AT.items() if name in there}
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
    found = [(name, n) for name, n in sorted((record.get("revisions") or {}).items()) if name in REVISED]
    return " and ".join(f"{name} {number}" for name, number in found) or "first"


def given_before(config: dict[str, Any]) -> list[str]:
    """Return the settings that differ from the defaults of that time."""
    default = DEFAULTS_BEFORE_GIVEN | _decided(config)
    return [key for key, value in config.items() if key not in NEVER_GIVEN and value != default.get(key)]


def _decided(config: dict[str, Any]) -> dict[str, Any]:
    """Return the settings that classes, N, K and the protocol decided."""
    classes, n_way, k_shot = (config.get(key) for key in ("classes", "n_way", "k_shot"))
    sessions = max(classes[-1] // n_way, 1) if classes and n_way else None
    queries = RELEASED_QUERIES if config.get("protocol") == "released" else k_shot
    return {"sessions": sessions, "query_shot": queries}
