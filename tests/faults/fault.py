"""Read the faults in ``faults.toml``, and put one into the source of a function."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FAULTS = Path(__file__).with_name("faults.toml")


class FaultError(Exception):
    """A fault that does not fit the code or the tests. Its message is one line."""


@dataclass(frozen=True)
class Fault:
    """A small change of one function that users would suffer from, and the tests that find it."""

    name: str
    why: str  # what a user would suffer
    where: str  # "package.module:Class.function", or "package.module:function"
    old: str  # text that occurs once in the function
    new: str
    tests: tuple[str, ...]  # files or ids of pytest, the fastest first

    @property
    def path(self) -> Path:
        """Return the path of the module, relative to the root."""
        module = self.where.partition(":")[0].replace(".", "/")
        path = Path(f"{module}.py")
        return Path(module, "__init__.py") if (ROOT / module).is_dir() else path

    def put_into(self, source: str) -> str:
        """Return the ``source`` of the module with this fault.

        Raises:
            FaultError: The function or the text is not there exactly once, or the result does not compile.
        """
        function, lines = self._function(_parsed(source)), source.splitlines(keepends=True)
        first, last = function.lineno - 1, function.end_lineno
        own = "".join(lines[first:last])
        if (times := own.count(self.old)) != 1:
            raise FaultError(f"{self.name}: {self.where} holds its old text {times} times; expected once.")
        changed = "".join([*lines[:first], own.replace(self.old, self.new), *lines[last:]])
        try:
            faulty = self._function(ast.parse(changed))
            compile(ast.Module([faulty], []), str(self.path), "exec")
        except SyntaxError as error:
            raise FaultError(f"{self.name}: {self.where} does not compile with it ({error}).") from None
        if ast.dump(faulty) == ast.dump(function):
            raise FaultError(f"{self.name}: its new text changes nothing in {self.where}.")
        return changed

    def _function(self, tree: ast.Module) -> ast.FunctionDef | ast.ClassDef:
        scope: ast.Module | ast.FunctionDef | ast.ClassDef = tree
        for name in self.where.partition(":")[2].split("."):
            inside = [
                node
                for node in ast.iter_child_nodes(scope)
                if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name
            ]
            if len(inside) != 1:
                raise FaultError(f"{self.name}: {self.path} has no {self.where.partition(':')[2]}.")
            (scope,) = inside
        assert isinstance(scope, ast.FunctionDef | ast.ClassDef)
        return scope


@cache
def _parsed(source: str) -> ast.Module:
    return ast.parse(source)


def read_faults() -> list[Fault]:
    """Return all faults in the order of the file."""
    entries = tomllib.loads(FAULTS.read_text())["fault"]
    return [Fault(**{**entry, "tests": tuple(entry["tests"])}) for entry in entries]


def problems(faults: list[Fault]) -> Iterator[str]:
    """Yield a line for each fault that cannot be put into the code of the working tree."""
    for fault in faults:
        try:
            fault.put_into((ROOT / fault.path).read_text())
        except FileNotFoundError:
            yield f"{fault.name}: there is no module {fault.where.partition(':')[0]}."
        except FaultError as error:
            yield str(error)
