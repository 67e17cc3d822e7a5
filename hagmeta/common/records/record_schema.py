"""Check records against the JSON schema in this folder."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from hagmeta.common.records.metrics import BUILT_IN, DERIVED

FORMAT = 1  # format of new records; increase it when older readers would misread them
FILE = Path(__file__).with_name(f"record-{FORMAT}.schema.json")
NOT_BY_SESSION = {"given", "unhashed", *(each.name for each in BUILT_IN if not each.by_session)}
ROUNDED = 1e-6  # a larger difference between two ways to compute a value is no rounding
MOST_SHOWN = 60  # characters of an invalid value

KINDS: dict[str, set[type]] = {"number": {int, float}, "integer": {int}, "null": {type(None)}}
KINDS |= {"string": {str}, "boolean": {bool}}
_KIND = {True: "by session", False: "as one value"}
OF_VALUES = {"type", "minimum", "maximum", "description"}  # keywords that the fast check below supports
OF_LISTS = {"type", "minItems", "items", "description"}
OF_OBJECTS = {"type", "minProperties", "required", "properties", "additionalProperties", "description"}


def problem_of(record: Mapping[str, Any]) -> str | None:
    """Return what is wrong with a record and where, or None."""
    missing = [key for key in schema()["required"] if key not in record]
    if missing:
        return f"keys are missing: {', '.join(missing)}"
    error = next(_errors(record), None)
    if error is not None:
        place = "".join(f"[{part}]" if isinstance(part, int) else f" {part}" for part in error.absolute_path)
        return f"its{place or ' content'} is {_shown(error.instance)}"
    return _unequal(record)


@cache
def schema() -> dict[str, Any]:
    """Return the schema with all references replaced by their definitions."""
    content = json.loads(FILE.read_text())
    return dict(_inlined(content, content.pop("$defs")))


def _inlined(part: Any, definitions: Mapping[str, Any]) -> Any:
    if isinstance(part, list):
        return [_inlined(item, definitions) for item in part]
    if not isinstance(part, dict):
        return part
    name = str(part.get("$ref", "")).removeprefix("#/$defs/")
    there = {key: _inlined(value, definitions) for key, value in part.items() if key != "$ref"}
    return {**definitions[name], **there} if name else there


def _errors(record: Mapping[str, Any]) -> Any:
    """Return the errors of jsonschema. It takes 8 ms per record, so it checks only doubtful values."""
    known, others = schema()["properties"], schema()["additionalProperties"]
    doubtful = {key: value for key, value in record.items() if not _holds(value, known.get(key, others))}
    return _validator().iter_errors(doubtful) if doubtful else iter(())


def _holds(value: Any, wanted: Mapping[str, Any]) -> bool:
    """Return True if ``value`` certainly matches ``wanted``; False if only jsonschema can tell."""
    kind = wanted.get("type")
    if isinstance(kind, list) and "array" in kind:  # a list, or a single value
        plain = [other for other in kind if other != "array"]
        return _holds(value, {**wanted, "type": "array"} if type(value) is list else {"type": plain})
    if kind == "array":
        return (
            wanted.keys() <= OF_LISTS
            and type(value) is list
            and len(value) >= wanted.get("minItems", 0)
            and _all_hold(value, wanted["items"])
        )
    if kind == "object":
        known, others = wanted.get("properties", {}), wanted.get("additionalProperties")
        return (
            wanted.keys() <= OF_OBJECTS
            and type(value) is dict
            and len(value) >= wanted.get("minProperties", 0)
            and value.keys() >= set(wanted.get("required", ()))
            and all(_holds(value[key], known[key]) for key in value.keys() & known.keys())
            and (others is None or all(_holds(value[key], others) for key in value.keys() - known.keys()))
        )
    if "pattern" in wanted:
        return type(value) is str and re.search(wanted["pattern"], value) is not None
    if "const" in wanted:
        return type(value) is type(wanted["const"]) and value == wanted["const"]
    return _all_hold([value], wanted)


def _all_hold(values: Iterable[Any], wanted: Mapping[str, Any]) -> bool:
    kind = wanted.get("type")
    if kind == "array":
        return all(_holds(value, wanted) for value in values)
    names: list[str] = kind if isinstance(kind, list) else [str(kind)]
    if not wanted.keys() <= OF_VALUES or not all(name in KINDS for name in names):
        return False
    kinds = set[type]().union(*(KINDS[name] for name in names))
    if "minimum" not in wanted and "maximum" not in wanted:
        return all(type(value) in kinds for value in values)
    low, high = wanted.get("minimum", -float("inf")), wanted.get("maximum", float("inf"))
    return all(type(value) in kinds and (value is None or low <= value <= high) for value in values)


@cache
def _validator() -> Any:
    import jsonschema  # slow to import (0.1 s), so only when a value is doubtful

    parts = {key: value for key, value in schema().items() if key != "required"}  # already checked
    return jsonschema.Draft202012Validator(parts)


def _unequal(record: Mapping[str, Any]) -> str | None:
    """Check what a schema cannot express: equal numbers of sessions, and a triangular matrix."""
    config, sessions = record["config"], len(record["accuracy"])
    for key in ("dataset", "method"):
        if not isinstance(config.get(key), str):
            return f"its config has no {key}"
    for key, value in record.items():
        if isinstance(value, list) and key not in NOT_BY_SESSION and len(value) != sessions:
            return f"its {key} has {len(value)} sessions, but its accuracy has {sessions}"
    if any(len(row) != number for number, row in enumerate(record["matrix"], start=1)):
        return "its matrix is not triangular"
    return _undeclared(record) or _contradicted(record)


def _undeclared(record: Mapping[str, Any]) -> str | None:
    """Return where additional values contradict the declarations of metrics, or None."""
    declared = record.get("metrics", {})
    for name, metric in declared.items():
        if name in schema()["properties"]:
            return f"its {name} is a built-in value, but is declared as an additional metric"
        if name not in record:
            return f"its {name} is declared as a metric, but is missing"
        if isinstance(record[name], list) != metric["by_session"]:
            return f"its {name} is {_shown(record[name])}, but is declared {_KIND[metric['by_session']]}"
    for name in record.keys() - schema()["properties"].keys() - declared.keys():
        if not isinstance(record[name], list):
            return f"its {name} is {_shown(record[name])}, but no metric of this name is declared"
    return None


def _contradicted(record: Mapping[str, Any]) -> str | None:
    """Return which value differs from what other values give, or None."""
    undefined = any(None in row for row in record["matrix"])
    for name, (sources, derive) in DERIVED.items():
        given = [record.get(source) for source in sources]
        if name not in record or None in given or (sources == ("matrix",) and undefined):
            continue
        expected = derive(*given)
        if not _is_close(record[name], expected):
            known = " and ".join(sources)
            return f"its {name} is {_shown(record[name])}; expected {_shown(expected)}, given its {known}"
    return None


def _is_close(value: Any, other: Any) -> bool:
    if isinstance(value, list):
        return len(value) == len(other) and all(map(_is_close, value, other))
    if value is None or other is None:
        return value is other
    return math.isclose(value, other, rel_tol=0, abs_tol=ROUNDED)


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}..."
