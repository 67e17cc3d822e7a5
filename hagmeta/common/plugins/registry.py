"""Find methods, encoders, protocols, datasets and metrics: built-in ones by name, plug-ins by reference."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, TypeVar

from hagmeta.common.errors import UserError, choose, shown
from hagmeta.common.plugins import plugins
from hagmeta.common.plugins.identity import is_identity

Entry = TypeVar("Entry")


class Registry(MutableMapping[str, Entry], Generic[Entry]):
    """The entries of one kind, by name.

    In addition to built-in names, a registry finds plug-ins: an entry point of the group ``hagmeta.<kind>s``,
    an import path ``package.module:Name``, a file ``my.py:Name``, or a class. It registers a plug-in under
    its identity, ``Name@<hash of its source>``.
    """

    def __init__(
        self,
        kind: str,
        entries: Mapping[str, Entry],
        *,
        base: type | None = None,
        check: Callable[[Entry], None] = lambda entry: None,
        forms: Mapping[str, Callable[[Any], Entry]] | None = None,
    ) -> None:
        """Create a registry.

        Args:
            kind: The kind of the entries, such as ``method``.
            entries: The built-in entries by name.
            base: The class that plug-ins must inherit from.
            check: A function that raises an error if an entry is invalid.
            forms: Prefixes of references, such as ``pyg``, and functions that make an entry from the object.
        """
        self.kind, self._base, self._check, self._forms = kind, base, check, dict(forms or {})
        self._entries: dict[str, Entry] = dict(entries)
        self._own = tuple(entries)

    @property
    def group(self) -> str:
        """Return the name of the group of entry points."""
        return f"hagmeta.{self.kind}s"

    def __getitem__(self, name: str) -> Entry:
        form, _, identity = name.rpartition(":")
        if name not in self._entries and is_identity(identity):
            plugin = plugins.find(identity)
            if plugin is not None and (not form or form in self._forms):
                self._add(plugin, form)
        return self._entries[name]

    def __setitem__(self, name: str, entry: Entry) -> None:
        self._entries[name] = entry

    def __delitem__(self, name: str) -> None:
        del self._entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def names(self) -> list[str]:
        """Return the names of built-in entries and of entry points of installed packages."""
        return [*self._own, *(name for name in self._points() if name not in self._own)]

    def knows(self, reference: str) -> bool:
        """Return whether ``reference`` is a name, an entry point or a reference."""
        return reference in self._entries or plugins.is_reference(reference) or reference in self._points()

    def find(self, reference: Any) -> Entry:
        """Return the entry for a name, a reference or a class."""
        return self[self.name_of(reference)]

    def name_of(self, reference: Any) -> str:
        """Return the name of an entry in configurations. This loads and checks plug-ins."""
        if not isinstance(reference, str):
            return self._name_of_value(reference)
        if reference in self:
            return reference
        form, _, rest = reference.partition(":")
        if rest and form in self._forms:
            return self._add(plugins.load(rest, self.kind), form)
        points = self._points()
        if reference in points:
            return self._add(plugins.load(points[reference].value, self.kind))
        if plugins.is_reference(reference):
            return self._add(plugins.load(reference, self.kind))
        if reference.endswith(".py"):
            raise UserError(f"{self.kind} {shown(reference)} names a file; expected {reference}:Name.")
        plain = ["package.module:Name", "file.py:Name"]
        forms = [f"{form}:{each}" for form in self._forms for each in plain]
        return choose(self.kind, reference, [*self.names(), *plain, *forms])

    def __contains__(self, name: object) -> bool:
        if not isinstance(name, str):
            return False
        try:
            self[name]
        except KeyError:
            return False
        return True

    def _name_of_value(self, value: Any) -> str:
        for name, entry in self._entries.items():
            if entry is value:
                return name
        if not inspect.isclass(value) and not inspect.isfunction(value):
            raise UserError(f"{self.kind} is {shown(value)}; expected a name, a reference or a class.")
        return self._add(plugins.of_class(value, self.kind))

    def _add(self, plugin: plugins.Plugin, form: str = "") -> str:
        """Check a plug-in, register it and return its name. ``form`` is the prefix of the reference."""
        if form:
            identity = f"{form}:{plugin.identity}"
            self._entries[identity] = self._forms[form](plugin.value)
            return identity
        for name, entry in self._entries.items():
            if entry is plugin.value:  # a built-in entry, given by its import path
                return name
        value, name = plugin.value, plugin.name
        if self._base is not None:
            if not inspect.isclass(value) or not issubclass(value, self._base):
                what = f"class {name}" if inspect.isclass(value) else f"{name} is not a class, so it"
                base = f"hagmeta.{self._base.__name__}"
                raise UserError(f"{what} is not a valid {self.kind}; expected a subclass of {base}.")
            lacking = sorted(getattr(value, "__abstractmethods__", ()))
            if lacking:
                raise UserError(
                    f"{self.kind} {name} does not define {', '.join(lacking)}; see "
                    f"hagmeta.{self._base.__name__} for what each must do."
                )
        elif not callable(value):
            raise UserError(
                f"{name} is not a valid {self.kind}; expected a function or class that returns one."
            )
        self._check(value)
        self._entries[plugin.identity] = value
        return plugin.identity

    def _points(self) -> dict[str, EntryPoint]:
        return {point.name: point for point in entry_points(group=self.group)}
