"""Check the optional arrays of a fixed split: the order of classes, and their supports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hagmeta.common.errors import UserError, shown
from hagmeta.datasets.clean import UNLABELLED, place, whole_numbers

ORDER, SUPPORTS = "class_order", "supports"


def clean_order(values: Any, *, present: np.ndarray, names: Sequence[str], source: str) -> np.ndarray:
    """Return the classes in order of arrival, as positions in ``present``.

    Args:
        values: Class numbers as in the labels of the source, or class names.
        present: The class numbers that have nodes, ascending.
        names: Their names.
        source: The file or function that the values came from.
    """
    array, known = np.asarray(values), dict[Any, int]()
    if array.dtype.kind == "U":
        if array.ndim != 1:
            raise UserError(f"{source}: {ORDER!r} has shape {array.shape}; expected 1 dimension.")
        _require_one_meaning(array, names, source)
        known = {name: position for position, name in enumerate(names)}
    else:
        array = whole_numbers(array, source=source, key=ORDER, dimensions=1)
        known = {int(number): position for position, number in enumerate(present)}
    first: dict[Any, int] = {}
    for row, value in enumerate(array.tolist()):
        if value not in known:
            raise UserError(
                f"{source}: {ORDER!r} holds {shown(value)} in {place(row)}; "
                "expected the number or the name of a class that has nodes."
            )
        if value in first:
            raise UserError(
                f"{source}: {ORDER!r} holds {shown(value)} in row {first[value]} and row {row}; "
                "expected each class once."
            )
        first[value] = row
    return np.array([known[value] for value in array.tolist()], dtype=np.int64)


def clean_supports(
    values: Any, *, order: np.ndarray | None, labels: np.ndarray, names: Sequence[str], source: str
) -> np.ndarray:
    """Return the supports (classes, shots) of classes that arrive.

    Args:
        values: Node numbers. All nodes of a row belong to one class, and each class has at most one row.
        order: The classes in order of arrival, or None.
        labels: The class of each node.
        names: The names of the classes.
        source: The file or function that the values came from.
    """
    nodes = whole_numbers(values, source=source, key=SUPPORTS, dimensions=2)
    if order is None:
        raise UserError(f"{source}: there is {SUPPORTS!r} without {ORDER!r}; expected both.")
    if nodes.size == 0:
        raise UserError(f"{source}: {SUPPORTS!r} has shape {nodes.shape}; expected (classes, shots).")

    def refuse(bad: np.ndarray, why: str) -> None:
        if bad.any():
            row, column = np.argwhere(bad)[0]
            node = nodes[row, column]
            raise UserError(f"{source}: {SUPPORTS!r} holds {node} in {place(row, column)}; {why}.")

    refuse(nodes >= len(labels), f"expected 0 to {len(labels) - 1}, since there are {len(labels)} nodes")
    refuse(labels[nodes] == UNLABELLED, "expected a node with a label")
    classes = labels[nodes[:, 0]]
    refuse(labels[nodes] != classes[:, None], "expected a node of the same class as in column 0")
    repeated = [[node in row[:column] for column, node in enumerate(row)] for row in nodes.tolist()]
    refuse(np.array(repeated), "expected each node once")
    for row, c in enumerate(classes.tolist()):
        if c not in order:
            raise UserError(
                f"{source}: {SUPPORTS!r} holds nodes of class {names[c]!r} in {place(row)}; "
                f"expected a class of {ORDER!r}."
            )
        if c in classes[:row]:
            other = int(np.argmax(classes == c))
            raise UserError(
                f"{source}: {SUPPORTS!r} holds nodes of class {names[c]!r} in row {other} and row {row}; "
                "expected one row per class."
            )
    return nodes


def _require_one_meaning(array: np.ndarray, names: Sequence[str], source: str) -> None:
    for row, name in enumerate(array.tolist()):
        same = list(names).count(name)
        if same > 1:
            raise UserError(
                f"{source}: {ORDER!r} holds {shown(name)} in {place(row)}, the name of {same} classes; "
                "expected class numbers."
            )
