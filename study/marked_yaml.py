"""YAML that remembers where everything stands, so that an error can name its line; or a mapping of Python's.

PyYAML's own loader keeps no places, lets the second of two equal keys win, and follows aliases that repeat
or contain themselves.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from hagmeta.common.errors import UserError, shown

# What a hand-written file never reaches, and a mistaken or hostile one must not exceed.
MOST_BYTES = 100_000
MOST_NODES = 20_000  # an alias counts as all that it stands for, each time
MOST_LEVELS = 20
LARGEST_NUMBER = 2**63 - 1
EXPONENT = re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d{1,3}")  # a number to everyone but YAML 1.1: 1e-3


@dataclass(frozen=True)
class Node:
    """A piece of YAML, or of a mapping, and where it stands."""

    value: Any  # a scalar, a list of nodes or a dict of nodes by name
    file: str  # empty for a mapping
    place: str  # a line's number; in a mapping the keys that lead there, such as grid.hidden

    def error(self, text: str) -> UserError:
        return UserError(f"{self.file}:{self.place}: {text}" if self.file else f"{self.place}: {text}")

    @property
    def spot(self) -> str:
        """Where it stands within its file or mapping."""
        return f"line {self.place}" if self.file else self.place

    @contextlib.contextmanager
    def located(self, prefix: str = "") -> Iterator[None]:
        """Errors from inside get this place."""
        try:
            yield
        except UserError as error:
            raise self.error(f"{prefix}{error}") from None

    def mapping(self, name: str) -> dict[str, Node]:
        if not isinstance(self.value, dict):
            raise self.error(f"{name} is {self.shown()}; it must be a mapping of names to values.")
        return self.value

    def items(self, name: str) -> list[Node]:
        if not isinstance(self.value, list):
            raise self.error(f"{name} is {self.shown()}; it must be a list in square brackets.")
        if not self.value:
            raise self.error(f"{name} is an empty list; give at least one value.")
        return self.value

    def text(self, name: str) -> str:
        if not isinstance(self.value, str):
            raise self.error(f"{name} is {self.shown()}; it must be text.")
        return self.value

    def whole(self, name: str, least: int, most: int) -> int:
        if type(self.value) is not int or not least <= self.value <= most:
            raise self.error(f"{name} is {self.shown()}; it must be a whole number, {least} to {most:,}.")
        return self.value

    def plain(self) -> Any:
        """The value without its places."""
        if isinstance(self.value, dict):
            return {key: node.plain() for key, node in self.value.items()}
        if isinstance(self.value, list):
            return [node.plain() for node in self.value]
        return self.value

    def shown(self) -> str:
        """The value, for an error."""
        text = "empty" if self.value is None else repr(self.plain())
        return text if len(text) <= 60 else f"{text[:60]}..."


def read(path: Path) -> Node:
    """The file's content; what is not plain YAML with names for keys is an error."""
    return _Reader(path).root()


def of_mapping(mapping: Mapping[str, Any]) -> Node:
    """Return a mapping as if it were a file's content; its errors name keys in place of lines."""
    return _marked(mapping, "")


def _marked(value: Any, place: str) -> Node:
    where = Node(None, "", place or "the space")
    if place.count(".") > MOST_LEVELS:
        raise where.error("too deeply nested.")
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise where.error(f"the key {shown(key)} must be a name.")
        parts = {key: _marked(each, f"{place}.{key}" if place else key) for key, each in value.items()}
        return replace(where, value=parts)
    if isinstance(value, list | tuple | range):
        return replace(where, value=[_marked(each, place) for each in value])
    if not isinstance(value, str | int | float | None):
        raise where.error(f"{shown(value)} is neither text nor a number.")
    return replace(where, value=value)


class _Reader:
    def __init__(self, path: Path) -> None:
        self._path, self._left = path, MOST_NODES

    def root(self) -> Node:
        text = self._text()
        try:
            composed = yaml.compose(text, Loader=yaml.SafeLoader)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            raise self._error(f"not YAML: {error.problem or error.context}.", mark) from None
        except yaml.reader.ReaderError as error:
            line = text.count("\n", 0, error.position) + 1
            raise UserError(f"{self._path}:{line}: not YAML: {error.reason}.") from None
        except RecursionError:
            raise self._error("too deeply nested.") from None
        except Exception as error:  # PyYAML lets some through, such as chr()'s of an escape out of range
            raise self._error(f"not YAML: {' '.join(str(error).split())}.") from None
        if composed is None:
            raise self._error("the file is empty.")
        return self._node(composed, 0)

    def _text(self) -> str:
        try:
            with self._path.open("rb") as file:
                content = file.read(MOST_BYTES + 1)
        except OSError as error:
            raise UserError(f"{self._path} cannot be read: {error.strerror or error}.") from None
        if len(content) > MOST_BYTES:
            raise self._error(f"the file is larger than {MOST_BYTES:,} bytes.")
        try:
            return content.decode()
        except UnicodeDecodeError:
            raise self._error("the file is not UTF-8 text.") from None

    def _error(self, text: str, mark: yaml.Mark | None = None) -> UserError:
        return UserError(f"{self._path}:{mark.line + 1 if mark else 1}: {text}")

    def _node(self, node: yaml.Node, level: int) -> Node:
        self._left -= 1
        if self._left < 0 or level > MOST_LEVELS:
            raise self._error("too much, or too deeply nested (by aliases?).", node.start_mark)
        value: Any
        if isinstance(node, yaml.MappingNode):
            value = self._mapping(node, level)
        elif isinstance(node, yaml.SequenceNode):
            value = [self._node(item, level + 1) for item in node.value]
        else:
            assert isinstance(node, yaml.ScalarNode)
            value = self._scalar(node)
        return Node(value, str(self._path), str(node.start_mark.line + 1))

    def _mapping(self, node: yaml.MappingNode, level: int) -> dict[str, Node]:
        found: dict[str, Node] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise self._error("a key must be a name.", key.start_mark)
            if key.value in found:
                line = found[key.value].place
                raise self._error(f"{key.value!r} is given twice, first in line {line}.", key.start_mark)
            # An error about a key or its value is looked for where the key stands.
            found[key.value] = replace(self._node(value, level + 1), place=str(key.start_mark.line + 1))
        return found

    def _scalar(self, node: yaml.ScalarNode) -> Any:
        shown, mark = repr(node.value[:60]), node.start_mark
        try:
            value = yaml.constructor.SafeConstructor().construct_object(node)
        except Exception:  # whatever int(), float() and datetime() raise
            raise self._error(f"{shown} cannot be read as {node.tag}.", mark) from None
        if isinstance(value, str) and node.style is None and EXPONENT.fullmatch(value):
            return float(value)
        if not isinstance(value, str | int | float | None):
            raise self._error(f"{shown} is neither text nor a number.", mark)
        if isinstance(value, str) and not " ".join(value.split()).isprintable():
            raise self._error(f"{shown} has unprintable characters.", mark)
        if isinstance(value, int) and abs(value) > LARGEST_NUMBER:
            raise self._error(f"{shown} is too large a number.", mark)
        return value
