"""The header of a learner file: its keys, and the values that each of them may have."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, get_args

import numpy as np

from hagmeta.common.errors import shown
from hagmeta.datasets.features import MOST_FEATURES, Kind
from hagmeta.datasets.labels import is_unicode
from hagmeta.learner.table import MOST_SLOTS

LARGEST = 2**53  # of numbers that count something
Holds = Callable[[Any], bool]  # whether a value is valid


class Key(NamedTuple):
    """The values of one key."""

    expected: str  # for messages
    holds: Holds


def check_header(header: Mapping[str, Any]) -> None:
    """Raise a ValueError if a key is missing or unknown, or has a value of another form."""
    for name in [*HEADER.keys() - header.keys(), *header.keys() - HEADER.keys()]:
        raise ValueError(f"{shown(name)} is {'missing' if name in HEADER else 'unknown'}")
    for name, key in HEADER.items():
        if not key.holds(header[name]):
            raise ValueError(f"{name!r} is {shown(header[name])}; expected {key.expected}")


def parsed(content: bytes) -> Any:
    """Parse strict JSON: no NaN, and no extreme nesting. Raise a ValueError if it is invalid."""
    try:
        return json.loads(content, parse_constant=_no_number)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is not a number")


def _whole(least: int = 0, most: float = math.inf) -> Holds:
    return lambda value: type(value) is int and least <= value <= most


def _number(above: float = -math.inf) -> Holds:
    return lambda value: type(value) is float and above < value < math.inf


def _list(holds: Holds) -> Holds:
    return lambda value: type(value) is list and all(map(holds, value))


def _row(*columns: Holds) -> Holds:
    def holds(value: Any) -> bool:
        return (
            type(value) is list
            and len(value) == len(columns)
            and all(column(cell) for column, cell in zip(columns, value, strict=True))
        )

    return holds


def _distinct(holds: Holds, *places: int) -> Holds:
    """Return whether a list is valid, and its entries differ, or the cells of its rows at all `places`."""

    def different(value: Any) -> bool:
        columns = [[row[place] for row in value] for place in places] or [value]
        return all(len(set(column)) == len(column) for column in columns)

    return lambda value: _list(holds)(value) and different(value)


def _is_text(value: Any) -> bool:
    return type(value) is str and is_unicode(value)


def _is_name(value: Any) -> bool:
    return _is_text(value) and "\0" not in value


def _is_flag(value: Any) -> bool:
    return type(value) is bool


def _is_id(value: Any) -> bool:
    return type(value) is int or _is_text(value)


def _are_slots(value: Any) -> bool:
    rows = _distinct(_row(_is_id, _whole(), _whole(most=1)), 0, 1)
    return rows(value) and len(value) > 0 and max(slot for _, slot, _ in value) < MOST_SLOTS * len(value)


def _are_columns(value: Any) -> bool:
    names = _distinct(lambda name: type(name) is str)
    return _row(
        _whole(1, MOST_FEATURES),
        lambda given: given is None or (names(given) and len(given) == value[0]),
        _is_flag,
        lambda kind: kind in get_args(Kind) and (value[2] or kind != "counts"),  # counts are sparse
    )(value)


def _is_generator(value: Any) -> bool:
    try:
        np.random.default_rng(0).bit_generator.state = value
    except (ArithmeticError, LookupError, TypeError, ValueError):
        return False
    return True


_LABELS = _distinct(_row(_is_id, _whole(), _whole(most=1)), 0)
_CLASSES = "a list of different class numbers"
HEADER = {
    "kind": Key("the kind of the file", _is_text),
    "version": Key("a whole number from 1", _whole(1)),
    "hagmeta": Key("a version", _is_text),
    "method": Key("a method", _is_text),
    "revision": Key("a whole number from 1", _whole(1, LARGEST)),
    "settings": Key("settings by name", lambda value: type(value) is dict),
    "seed": Key("a whole number from 0", _whole()),
    "class_names": Key("a list of different names", _distinct(_is_name)),
    "labels": Key("rows of a node id, a class number, and 0 or 1", _LABELS),
    "base": Key(_CLASSES, _distinct(_whole())),
    "played": Key(_CLASSES, _distinct(_whole())),
    "sessions": Key("numbers of classes", _list(_whole(1))),
    "columns": Key(
        "the number of features, their names or null, whether they are sparse, and their kind", _are_columns
    ),
    "slots": Key(f"rows of a node id, a place up to {MOST_SLOTS} times their number, and 0 or 1", _are_slots),
    "nodes": Key("a number of nodes", _whole(1, LARGEST)),
    "memory": Key("node ids by session and class", _list(_list(_list(_is_id)))),
    "draws": Key("states of random generators", _list(_is_generator)),
    "step": Key("a whole number from 0", _whole(0, LARGEST)),
    "temperature": Key("a number above 0", _number(above=0)),
    "novelty": Key("a number, a number above 0, and a flag", _row(_number(), _number(above=0), _is_flag)),
}
