"""Read YAML, or a Python mapping, and keep the place of every value for error messages.

The loader of PyYAML keeps no places, silently accepts repeated keys, and follows aliases that grow without
limit or contain themselves.
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

# Far above any hand-written file; they stop a mistaken or hostile one.
MOST_BYTES = 100_000
MOST_NODES = 20_000  # an alias counts as all its content, each time
MOST_LEVELS = 20
LARGEST_NUMBER = 2**63 - 1
EXPONENT = re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d{1,3}")  # 1e-3, which YAML 1.1 reads as text


@dataclass(frozen=True)
class Node:
    """A value in a YAML file or a mapping, and its place."""

    value: Any  # a scalar, a list of nodes or a dict of nodes by name
    file: str  # empty for a mapping
    place: str  # a line number; in a mapping the path of keys, such as grid.hidden

    def error(self, text: str) -> UserError:
        """Return an error that begins with this place."""
        return UserError(f"{self.file}:{self.place}: {text}" if self.file else f"{self.place}: {text}")

    @property
    def spot(self) -> str:
        """The place within its file or mapping."""
        return f"line {self.place}" if self.file else self.place

    @contextlib.contextmanager
    def located(self, prefix: str = "") -> Iterator[None]:
        """Add this place, and `prefix`, to errors raised inside."""
        try:
            yield
        except UserError as error:
            raise self.error(f"{prefix}{error}") from None

    def mapping(self, name: str) -> dict[str, Node]:
        if not isinstance(self.value, dict):
            raise self.error(f"{name} is {self.shown()}; expected a mapping of names to values.")
        return self.value

    def items(self, name: str) -> list[Node]:
        if not isinstance(self.value, list):
            raise self.error(f"{name} is {self.shown()}; expected a list in square brackets.")
        if not self.value:
            raise self.error(f"{name} is an empty list; expected at least one value.")
        return self.value

    def text(self, name: str) -> str:
        if not isinstance(self.value, str):
            raise self.error(f"{name} is {self.shown()}; expected text.")
        return self.value

    def whole(self, name: str, least: int, most: int) -> int:
        if type(self.value) is not int or not least <= self.value <= most:
            raise self.error(f"{name} is {self.shown()}; expected a whole number from {least} to {most:,}.")
        return self.value

    def plain(self) -> Any:
        """Return the value without places."""
        if isinstance(self.value, dict):
            return {key: node.plain() for key, node in self.value.items()}
        if isinstance(self.value, list):
            return [node.plain() for node in self.value]
        return self.value

    def shown(self) -> str:
        """Return the value as text for an error."""
        text = "empty" if self.value is None else repr(self.plain())
        return text if len(text) <= 60 else f"{text[:60]}..."


def read(path: Path) -> Node:
    """Read the file at `path`; anything but plain YAML with names as keys is an error."""
    return _Reader(path).root()


def of_mapping(mapping: Mapping[str, Any]) -> Node:
    """Convert a mapping with the content of a file; errors name keys instead of lines."""
    return _marked(mapping, "")


def _marked(value: Any, place: str) -> Node:
    where = Node(None, "", place or "the space")
    if place.count(".") > MOST_LEVELS:
        raise where.error("too deeply nested.")
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise where.error(f"the key is {shown(key)}; expected a name.")
        parts = {key: _marked(each, f"{place}.{key}" if place else key) for key, each in value.items()}
        return replace(where, value=parts)
    if isinstance(value, list | tuple | range):
        return replace(where, value=[_marked(each, place) for each in value])
    if not isinstance(value, str | int | float | None):
        raise where.error(f"the value is {shown(value)}; expected text or a number.")
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
        except Exception as error:  # PyYAML does not catch all, such as an escape out of range
            raise self._error(f"not YAML: {' '.join(str(error).split())}.") from None
        if composed is None:
            raise self._error("the file is empty; expected a search space.")
        return self._node(composed, 0)

    def _text(self) -> str:
        try:
            with self._path.open("rb") as file:
                content = file.read(MOST_BYTES + 1)
        except OSError as error:
            raise UserError(f"cannot read {self._path}: {error.strerror or error}.") from None
        if len(content) > MOST_BYTES:
            raise self._error(f"the file is too large; expected at most {MOST_BYTES:,} bytes.")
        try:
            return content.decode()
        except UnicodeDecodeError:
            raise self._error("the file is not UTF-8 text; save it as UTF-8.") from None

    def _error(self, text: str, mark: yaml.Mark | None = None) -> UserError:
        return UserError(f"{self._path}:{mark.line + 1 if mark else 1}: {text}")

    def _node(self, node: yaml.Node, level: int) -> Node:
        self._left -= 1
        if self._left < 0 or level > MOST_LEVELS:
            raise self._error("too many values, or too deeply nested; check the aliases.", node.start_mark)
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
                raise self._error("a key is a list or a mapping; expected a name.", key.start_mark)
            if key.value in found:
                line = found[key.value].place
                raise self._error(f"{key.value!r} is given twice, first in line {line}.", key.start_mark)
            # Readers look for an error about a value in the line of its key.
            found[key.value] = replace(self._node(value, level + 1), place=str(key.start_mark.line + 1))
        return found

    def _scalar(self, node: yaml.ScalarNode) -> Any:
        shown, mark = repr(node.value[:60]), node.start_mark
        try:
            value = yaml.constructor.SafeConstructor().construct_object(node)
        except Exception:  # int(), float() and datetime() raise different ones
            raise self._error(f"{shown} cannot be read as {node.tag}.", mark) from None
        if isinstance(value, str) and node.style is None and EXPONENT.fullmatch(value):
            return float(value)
        if not isinstance(value, str | int | float | None):
            raise self._error(f"the value is {shown}; expected text or a number.", mark)
        if isinstance(value, str) and not " ".join(value.split()).isprintable():
            raise self._error(f"{shown} contains unprintable characters; remove them.", mark)
        if isinstance(value, int) and abs(value) > LARGEST_NUMBER:
            raise self._error(f"the number {shown} is too large.", mark)
        return value
