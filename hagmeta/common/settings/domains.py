"""Domains of settings. A domain parses a value, checks it, and describes what is valid."""

from __future__ import annotations

import math
import operator
from abc import ABC, abstractmethod
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar

from hagmeta.common.errors import UserError, choose, shown

MOST_NODES = 10**9  # maximum of settings that count nodes; all graphs are smaller
MOST_STEPS = 10**6  # maximum of settings that count training steps
HIGHEST_RATE = 100  # maximum of learning rates and weight decays
HIGHEST_WEIGHT = 10**6  # maximum weight of a term in a loss or a score
_HOLDS = {"at least": operator.ge, "at most": operator.le, "above": operator.gt, "below": operator.lt}
_FLAGS = {"true": True, "yes": True, "on": True, "1": True}
_FLAGS |= {"false": False, "no": False, "off": False, "0": False}


class Domain(ABC):
    """The valid values of a setting. ``str`` describes them, as in "expected a number above 0"."""

    def parse(self, name: str, value: Any) -> Any:
        """Return a value of the setting `name`, which may be given as text (`--set KEY=VALUE`).

        Raises:
            UserError: The value is not valid.
        """
        try:
            return self.convert(value)
        except (ValueError, TypeError, KeyError, OverflowError):
            raise UserError(f"{name} is {shown(value)}; expected {self}.") from None

    @abstractmethod
    def convert(self, value: Any) -> Any:
        """Return the value. Raise a ValueError, TypeError, KeyError or OverflowError if it is not valid."""

    @abstractmethod
    def __str__(self) -> str: ...


@dataclass(frozen=True)
class Number(Domain):
    """A number within limits, or one of some words."""

    at_least: float | None = None
    at_most: float | None = None
    above: float | None = None
    below: float | None = None
    words: tuple[str, ...] = ()
    as_text: bool = False  # keep numbers as text, like the words: a column then has one type
    kind: ClassVar[str] = "a number"

    @property
    def limits(self) -> dict[str, float]:
        """The limits, by the words that describe them."""
        low = {"at least": self.at_least, "above": self.above}
        high = {"at most": self.at_most, "below": self.below}
        return {words: limit for words, limit in (low | high).items() if limit is not None}

    def convert(self, value: Any) -> float | int | str:
        if isinstance(value, str) and value.lower() in self.words:
            return value.lower()
        number = self._number(value)
        if not all(_HOLDS[words](number, limit) for words, limit in self.limits.items()):
            raise ValueError
        return str(number) if self.as_text else number

    def _number(self, value: Any) -> float:
        number = float(value)
        if isinstance(value, bool) or not math.isfinite(number):
            raise ValueError
        return number + 0.0  # turns -0.0 into 0.0, so that equal settings have equal hashes

    def __str__(self) -> str:
        limits = " and ".join(f"{words} {limit}" for words, limit in self.limits.items())
        number = f"{self.kind} {'of ' * limits.startswith('at ')}{limits}".strip()
        return f"{', '.join(self.words)} or {number}" if self.words else number


@dataclass(frozen=True)
class Whole(Number):
    """A whole number within limits, or one of some words."""

    kind: ClassVar[str] = "a whole number"

    def _number(self, value: Any) -> int:
        return whole(value)


def whole(value: Any) -> int:
    """Return a whole number, which may be given as text, or raise an error."""
    if isinstance(value, bool) or (isinstance(value, float) and not value.is_integer()):
        raise ValueError
    return int(value)


@dataclass(frozen=True)
class Flag(Domain):
    """True or false."""

    def convert(self, value: Any) -> bool:
        return value if isinstance(value, bool) else _FLAGS[str(value).lower()]

    def __str__(self) -> str:
        return "true or false"


@dataclass(frozen=True)
class Text(Domain):
    """Any text."""

    def convert(self, value: Any) -> str:
        if not isinstance(value, str):
            raise ValueError
        return value

    def __str__(self) -> str:
        return "text"


@dataclass(frozen=True)
class Value(Domain):
    """Any value: true, false, none, a number or text. It keeps the type of a default like 1.0."""

    default: Any

    def convert(self, value: Any) -> Any:
        if isinstance(value, str):
            value = self._read(value)
        if not isinstance(value, (bool, int, float, str, type(None))):
            raise ValueError
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError
        return float(value) if type(value) is int and type(self.default) is float else value

    @staticmethod
    def _read(text: str) -> Any:
        for kind in (int, float):
            with suppress(ValueError):
                return kind(text)
        words = {"true": True, "false": False, "none": None}
        return words.get(text.lower(), text)

    def __str__(self) -> str:
        return "true, false, none, a number or text"


@dataclass(frozen=True)
class Choice(Domain):
    """One of some names."""

    names: Collection[str]

    def parse(self, name: str, value: Any) -> str:
        return choose(name, value, self.names)

    def convert(self, value: Any) -> str:
        return choose("value", value, self.names)

    def __str__(self) -> str:
        return " or ".join(self.names)
