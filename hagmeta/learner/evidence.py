"""The labels of a learner by node id, and the order in which it met the classes."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hagmeta.common.errors import UserError, shown
from hagmeta.learner.table import NodeId

MOST_NAMED = 5  # names in a message


@dataclass
class Evidence:
    """Labels by node id. Classes have numbers in the order in which the learner met them."""

    class_names: list[str] = field(default_factory=list)
    class_of: dict[NodeId, int] = field(default_factory=dict)
    held_out: set[NodeId] = field(default_factory=set)  # labels that validate the training
    base: list[int] = field(default_factory=list)  # classes known since `fit`
    played: list[int] = field(default_factory=list)  # the others known since `fit`; they play new classes
    sessions: list[int] = field(default_factory=list)  # number of classes in each session after `fit`

    @property
    def known(self) -> int:
        """Return the number of classes known since `fit`."""
        return len(self.base) + len(self.played)

    def copy(self) -> Evidence:
        """Return a copy, to change it and to discard it if something fails."""
        return Evidence(
            [*self.class_names],
            {**self.class_of},
            {*self.held_out},
            [*self.base],
            [*self.played],
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

    def tell(self, labels: Mapping[str, Sequence[NodeId]]) -> tuple[list[str], bool]:
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
    if not hasattr(labels, "items"):
        raise UserError(
            f"{argument} is of type {type(labels).__name__}; expected a mapping from class names to node ids."
        )
    found: dict[str, list[NodeId]] = {}
    owner: dict[NodeId, str] = {}
    for name, nodes in labels.items():
        if isinstance(nodes, str) or not isinstance(nodes, Iterable):
            raise UserError(
                f"{argument} holds {shown(nodes)} for class {shown(name)}; expected a list of node ids."
            )
        listed = list(dict.fromkeys(plain(node) for node in nodes))
        if not listed:
            raise UserError(
                f"{argument} holds no node for class {shown(name)}; a class needs at least one label."
            )
        for node in listed:
            if owner.setdefault(node, str(name)) != str(name):
                raise UserError(
                    f"{argument} holds node {shown(node)} for {shown(owner[node])} and {shown(str(name))}; "
                    "expected one class."
                )
        found[str(name)] = listed
    return found


def labels_by_node(labels: Any, *, argument: str) -> dict[NodeId, str]:
    """Return a mapping from node ids to class names, given one. Skip nodes with None or NaN."""
    if not hasattr(labels, "items"):
        raise UserError(
            f"{argument} is of type {type(labels).__name__}; expected a mapping from node ids to class names."
        )
    pairs = {plain(node): name for node, name in labels.items()}
    return {node: str(name) for node, name in pairs.items() if name is not None and name == name}


def plain(node: Any) -> NodeId:
    """Return a node id as a Python value."""
    value = node.item() if hasattr(node, "item") and getattr(node, "size", 1) == 1 else node
    if not isinstance(value, Hashable):
        raise UserError(f"a node id is {shown(value)}; expected a string or a whole number.")
    return value
