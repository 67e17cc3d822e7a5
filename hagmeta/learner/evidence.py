"""The labels of a learner by node id, and the order in which it met the classes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hagmeta.common.errors import UserError, shown
from hagmeta.datasets.base import UNLABELLED, Dataset
from hagmeta.datasets.labels import is_missing, is_unicode
from hagmeta.learner.table import NodeId, as_value, ids_of, listed_ids, plain

MOST_NAMED = 5  # names in a message
LARGEST = 10**100  # of classes that are whole numbers; Python does not print very large ones


@dataclass
class Evidence:
    """Labels by node id. Classes have numbers in the order in which the learner met them."""

    class_names: list[str] = field(default_factory=list)
    class_of: dict[NodeId, int] = field(default_factory=dict)
    held_out: set[NodeId] = field(default_factory=set)  # labels that validate the training
    base: list[int] = field(default_factory=list)  # classes known since `fit`
    simulated: list[int] = field(default_factory=list)  # the others known since `fit`; they play new classes
    sessions: list[int] = field(default_factory=list)  # number of classes in each session after `fit`

    @property
    def known(self) -> int:
        """Return the number of classes known since `fit`."""
        return len(self.base) + len(self.simulated)

    def copy(self) -> Evidence:
        """Return a copy, to change it and to discard it if something fails."""
        return Evidence(
            [*self.class_names],
            {**self.class_of},
            {*self.held_out},
            [*self.base],
            [*self.simulated],
            [*self.sessions],
        )

    def nodes_of(self, number: int) -> list[NodeId]:
        """Return the labelled nodes of a class, in the order in which they were given."""
        return [node for node, each in self.class_of.items() if each == number]

    def arriving(self) -> list[list[int]]:
        """Return the classes of each session after `fit`."""
        found, first = [], self.known
        for size in self.sessions:
            found.append(list(range(first, first + size)))
            first += size
        return found

    def add_labels(self, labels: Mapping[str, Sequence[NodeId]]) -> tuple[list[str], bool]:
        """Add labels by class. Return the new classes, and whether labels of known classes changed."""
        number = {name: each for each, name in enumerate(self.class_names)}
        changed = False
        for name, nodes in labels.items():
            c = number.setdefault(name, len(number))
            for node in nodes:
                before = self.class_of.get(node)
                if before != c:
                    changed = changed or before is not None or c < len(self.class_names)
                    self.class_of.pop(node, None)
                    self.class_of[node] = c
                    self.held_out.discard(node)
        new = list(number)[len(self.class_names) :]
        self.class_names += new
        return new, changed

    def check_present(self, nodes: Iterable[NodeId], graph: str) -> None:
        """Raise an error if a class has no label on any of `nodes`."""
        there = set(nodes)
        found = {c for node, c in self.class_of.items() if node in there and node not in self.held_out}
        gone = [name for c, name in enumerate(self.class_names) if c not in found]
        if gone:
            listed = ", ".join(shown(name) for name in gone[:MOST_NAMED])
            more = f" and {len(gone) - MOST_NAMED} more" if len(gone) > MOST_NAMED else ""
            raise UserError(
                f"{graph} has no labelled node of {listed}{more}; label nodes of each class with `learn`."
            )


def labels_by_class(labels: Any, *, argument: str) -> dict[str, list[NodeId]]:
    """Return a mapping from class names to node ids, given one. Check that each node has one class."""
    found: dict[str, dict[NodeId, None]] = {}
    owner: dict[NodeId, str] = {}
    for given, nodes in _items(labels, argument, "class names to node ids"):
        name = class_name(given, argument)
        if name is None:
            raise UserError(
                f"{argument} holds nodes for {shown(given)}, which means no label; expected a class name."
            )
        listed = listed_ids(nodes, f"{argument}[{shown(given)}]")
        if not listed:
            raise UserError(
                f"{argument} holds no node for class {shown(name)}; a class needs at least one label."
            )
        for node in listed:
            _own(owner, node, name, argument)
        found.setdefault(name, {}).update(dict.fromkeys(listed))
    return {name: list(nodes) for name, nodes in found.items()}


def labels_by_node(labels: Any, *, argument: str) -> dict[NodeId, str]:
    """Return a mapping from node ids to class names, given one. Skip nodes without a label."""
    found: dict[NodeId, str] = {}
    for node, given in _items(labels, argument, "node ids to class names"):
        name = class_name(given, argument)
        if name is not None:
            _own(found, plain(node), name, argument)
    return found


def _items(labels: Any, argument: str, expected: str) -> Iterable[tuple[Any, Any]]:
    if not hasattr(labels, "items"):
        raise UserError(f"{argument} is of type {type(labels).__name__}; expected a mapping from {expected}.")
    pairs: Iterable[tuple[Any, Any]] = labels.items()
    return pairs


def _own(owner: dict[NodeId, str], node: NodeId, name: str, argument: str) -> None:
    """Store that a node has a class. Raise an error if it has another one."""
    if owner.setdefault(node, name) != name:
        raise UserError(
            f"{argument} holds node {shown(node)} for {shown(owner[node])} and {shown(name)}; "
            "expected one class."
        )


def class_name(given: Any, argument: str) -> str | None:
    """Return the name of a class as text, or None if `given` means no label: None, NaN, -1 or blank text."""
    value = as_value(given)
    if getattr(value, "ndim", 0) == 0 and is_missing(value):
        return None
    if isinstance(value, float) and value.is_integer():  # pandas has no missing integers
        value = int(value)
    if not isinstance(value, str | int) or (isinstance(value, int) and abs(value) > LARGEST):
        raise UserError(
            f"{argument} holds the class {shown(given)} of type {type(given).__name__}; expected text or a "
            "whole number."
        )
    check_name(str(value), f"{argument} holds the class")
    return str(value)


def check_name(name: str, where: str) -> None:
    """Raise an error if files and arrays cannot keep `name` as it is. `where` begins the message."""
    if not is_unicode(name) or "\0" in name:  # numpy drops NUL characters at the end
        raise UserError(f"{where} {shown(name)}; expected Unicode text without NUL characters.")


def check_unknown(name: Any, classes: Sequence[str], argument: str) -> None:
    """Raise an error if `name` is no text, or the name of a known class."""
    if not isinstance(name, str):
        raise UserError(f"{argument} is {shown(name)}; expected a name, as text.")
    check_name(name, f"{argument} is")
    if name in classes:
        raise UserError(f"{argument} is {shown(name)}, a class that the learner knows; use another name.")


def own_labels(dataset: Dataset) -> dict[NodeId, str]:
    """Return the class names of the labelled nodes of a graph, by node id."""
    for name in dataset.class_names:
        check_name(name, f"{dataset.name} holds the class")
    pairs = zip(ids_of(dataset), dataset.labels.tolist(), strict=True)
    return {node: dataset.class_names[label] for node, label in pairs if label != UNLABELLED}
