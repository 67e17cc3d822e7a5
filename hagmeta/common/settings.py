"""Settings, declared where they are used: each with its type, default, range, choices and help.

A group of settings is a frozen dataclass that inherits from `Settings`. Groups that belong together inherit
from each other, and RunConfig from all of them, so that whoever needs a few is handed the whole.
"""

from __future__ import annotations

import dataclasses
import math
import operator
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from functools import lru_cache
from typing import Any

from hagmeta.common.errors import UserError, choose, shown


class _Mark(Enum):
    """Values that no user gives."""

    BY_METHOD = "the method's default"
    ALWAYS = "always there"

    def __repr__(self) -> str:
        return f"<{self.value}>"


BY_METHOD: Any = _Mark.BY_METHOD  # the default of a setting that methods have their own for
ALWAYS: Any = _Mark.ALWAYS  # the birth value of a setting that was there from the start


PLAIN = (bool, int, float, str, type(None))  # types whose equal values are checked once
MOST_NODES = 10**9  # that a setting may ask for; no graph here is as large
MOST_STEPS = 10**6  # of training, or between two looks at it
HIGHEST_RATE = 100  # of an optimizer; its weight decay too
HIGHEST_WEIGHT = 10**6  # of a part of a loss or of an answer
HOLDS = {"at least": operator.ge, "at most": operator.le, "above": operator.gt, "below": operator.lt}
_BOOLEANS = {"true": True, "yes": True, "on": True, "1": True}
_BOOLEANS |= {"false": False, "no": False, "off": False, "0": False}


def setting(
    default: Any,
    help: str,
    *,
    choices: Collection[str] | None = None,
    words: tuple[str, ...] | None = None,
    fractions: bool = False,
    at_least: float | None = None,
    at_most: float | None = None,
    above: float | None = None,
    below: float | None = None,
    recorded_idle: bool = True,
    kept_with: str | None = None,
    birth: Any = ALWAYS,
) -> Any:
    """Declare a setting: a dataclass field with its default, its help text and its range.

    Args:
        default: the value without a word from the user. `BY_METHOD` stands for the method's own default
            (`Method.defaults`), ``None`` for one that the dataset decides; both are filled in when a
            configuration is resolved.
        help: what the setting does, in a line.
        choices: the valid texts; a registry's are its names and references.
        words: texts that are valid in place of a number.
        fractions: with ``words``, whether numbers may have fractions.
        at_least, at_most, above, below: the range of a number.
        recorded_idle: whether a record has its default where it has no effect (`Settings.without_effect`),
            or does not have it at all.
        kept_with: the setting next to which it stays as given although it has no effect. Only for settings
            that were recorded so from the start: a new one would change hashes.
        birth: of a setting that came later, the value that says what was done before it existed. A
            configuration with that value has the hash that it had then, so that older records stay valid.
    """
    limits = {"at least": at_least, "at most": at_most, "above": above, "below": below}
    metadata: dict[str, Any] = {"help": help, "choices": choices, "words": words, "limits": limits}
    metadata |= {"fractions": fractions, "recorded_idle": recorded_idle, "kept_with": kept_with}
    metadata["birth"] = birth
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """A group of settings; values of any origin become their types, or are refused in one line."""

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if value is BY_METHOD:
                if item.default is not BY_METHOD:
                    raise UserError(f"{item.name} has no method-specific default; give it a value.")
                continue
            checked = _known if type(value) in PLAIN else _checked
            object.__setattr__(self, item.name, checked(item, value))
        for group in type(self).__mro__:
            if "check" in vars(group):
                vars(group)["check"](self)

    def check(self) -> None:
        """Refuse values that do not go together; every group checks its own."""

    @classmethod
    def unused_by(cls, method: Any) -> str:
        """Say why a method has no use for this group of settings; empty where it has one."""
        return ""

    def without_effect(self) -> Mapping[str, str]:
        """Name the settings that have no effect next to the others, each with the setting that is why.

        Every group names its own, and is asked where the method uses the group.
        """
        return {}


def written(value: Any) -> str:
    """Return a value as a user writes it in a file."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def check_settings(kind: str, owner: Any, base: type[Settings]) -> None:
    """Refuse a plug-in's ``own_settings`` unless they are a dataclass of settings that inherits ``base``."""
    own = owner.own_settings
    if own is None:
        return
    if not (isinstance(own, type) and issubclass(own, base)):
        raise UserError(
            f"the {kind} {owner.__name__}: own_settings is {shown(own)}; it must be a class that inherits "
            f"from {base.__name__}."
        )
    for name in vars(own).get("__annotations__", {}):
        item = own.__dataclass_fields__.get(name) if "__dataclass_fields__" in vars(own) else None
        if item is None or "help" not in item.metadata:
            raise UserError(
                f"the {kind} {owner.__name__}: the setting {name} of {own.__name__} is not declared; write "
                "@dataclass(frozen=True, kw_only=True) above the class, and give each setting the value "
                "setting(default, help)."
            )


def _checked(item: dataclasses.Field[Any], value: Any) -> Any:
    """``value`` as the field's type and within its range."""
    value = _typed(item, value)
    if value is not None:
        _check_range(item, value)
    return value


# A study makes thousands of configurations of the same few values. Typed: True and 1.0 are not 1.
_known = lru_cache(maxsize=100_000, typed=True)(_checked)


def _typed(item: dataclasses.Field[Any], value: Any) -> Any:
    """``value`` as the field's type, from text too (`--set KEY=VALUE`)."""
    # Annotations are text only where a module imports them from the future.
    kind = item.type if isinstance(item.type, str) else getattr(item.type, "__name__", str(item.type))
    if item.metadata["words"]:
        word = _word_or_number(item, value)
        return int(word) if kind.startswith("int") and word.isdigit() else word
    if value is None or (isinstance(value, str) and value.lower() in ("none", "null", "")):
        if "None" in kind:
            return None
        raise UserError(f"{item.name} has no value; it must be {_readable(kind)}.")
    try:
        if kind.startswith("tuple"):
            parts = value.replace(",", " ").split() if isinstance(value, str) else list(value)
            if len(parts) != 3:
                raise ValueError
            return tuple(_whole(part) for part in parts)
        if kind.startswith("bool"):
            return value if isinstance(value, bool) else _BOOLEANS[str(value).lower()]
        if isinstance(value, bool):
            raise ValueError
        if kind.startswith("int"):
            return _whole(value)
        if kind.startswith("float"):
            return _finite(value)
        if not isinstance(value, str):
            raise ValueError
        return value
    except (ValueError, TypeError, KeyError, OverflowError):
        raise UserError(f"{item.name} is {shown(value)}; it must be {_readable(kind)}.") from None


def _word_or_number(item: dataclasses.Field[Any], value: Any) -> str:
    """One of the field's words, or a number as text: both can stand in one column of a table."""
    words = item.metadata["words"]
    if isinstance(value, str) and value.lower() in words:
        return value.lower()
    try:
        number = _finite(value) if item.metadata["fractions"] else _whole(value)
        if any(not HOLDS[limit](number, bound) for limit, bound in _limits(item)):
            raise ValueError
        return str(number)
    except (ValueError, TypeError, OverflowError):
        kind = "a number" if item.metadata["fractions"] else "a whole number of"
        limits = " and ".join(f"{limit} {bound}" for limit, bound in _limits(item))
        raise UserError(
            f"{item.name} is {shown(value)}; it must be {', '.join(words)} or {kind} {limits}."
        ) from None


def _whole(value: Any) -> int:
    if isinstance(value, bool) or (isinstance(value, float) and not value.is_integer()):
        raise ValueError
    return int(value)


def _finite(value: Any) -> float:
    number = float(value)
    if isinstance(value, bool) or not math.isfinite(number):
        raise ValueError
    return number + 0.0  # no negative zero: equal settings have equal hashes


def _readable(kind: str) -> str:
    names = {"tuple": "three whole numbers B T E", "bool": "true or false", "int": "a whole number"}
    names |= {"float": "a number", "str": "text"}
    return next(text for start, text in names.items() if kind.startswith(start))


def _check_range(item: dataclasses.Field[Any], value: Any) -> None:
    if item.metadata["words"]:
        return  # looked at when the number was read
    if item.metadata["choices"]:
        choose(item.name, value, item.metadata["choices"])
    for words, limit in _limits(item):
        if not HOLDS[words](value, limit):
            raise UserError(f"{item.name} is {shown(value)}; it must be {words} {limit}.")


def _limits(item: dataclasses.Field[Any]) -> list[tuple[str, float]]:
    return [(words, limit) for words, limit in item.metadata["limits"].items() if limit is not None]
