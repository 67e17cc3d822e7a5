"""Read labels of any type: numbers or strings, with several ways to say that a node has none."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np

from hagmeta.common.errors import UserError, shown
from hagmeta.datasets.clean import UNLABELLED, as_array, place, whole_numbers


def clean_labels(
    values: Any, class_names: Sequence[str] | None = None, *, source: str, key: str
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return labels (nodes,) from 0 without gaps, -1 for none, and the names of the classes.

    Args:
        values: Strings or whole numbers from 0, as (nodes,) or (nodes, 1). None, NaN, -1 and the empty string
            mean no label.
        class_names: The name of each number. By default, the labels are the names.
        source: The file or function that the labels came from.
        key: The name of the labels in error messages.
    """
    numbers, texts = _numbers_and_texts(values, source, key)
    if texts is not None and class_names is not None:
        raise UserError(
            f"{source}: {key!r} holds strings, which are already class names; "
            f"remove class_names, or use integer labels."
        )
    names = class_names if texts is None else texts
    labels = whole_numbers(numbers, source=source, key=key, dimensions=1, labels=True)
    if len(labels) == 0:
        raise UserError(f"{source}: {key!r} is empty; expected at least one node.")
    present = np.unique(labels[labels != UNLABELLED])
    if names is not None and present.size and present[-1] >= len(names):
        row = int(np.argmax(labels == present[-1]))
        raise UserError(
            f"{source}: {key!r} holds {present[-1]} in row {row}; "
            f"expected 0 to {len(names) - 1}, since there are {len(names)} class names."
        )
    called = tuple(str(label if names is None else names[label]) for label in present)
    for name in called:
        if not is_unicode(name):
            raise UserError(f"{source}: 'class_names' holds {shown(name)}; expected Unicode text.")
    return np.where(labels == UNLABELLED, UNLABELLED, np.searchsorted(present, labels)), called


def is_no_label(text: str) -> bool:
    """Return whether ``text`` means no label: it is blank or -1."""
    return text.strip() in ("", str(UNLABELLED))


def in_order(class_names: Iterable[str]) -> list[str]:
    """Sort class names: by value if all are numbers, otherwise alphabetically."""
    names = set(class_names)
    if all(name.isdecimal() for name in names):
        return sorted(names, key=lambda name: (Decimal(name), name))  # int() limits the number of digits
    return sorted(names)


def _numbers_and_texts(labels: Any, source: str, key: str) -> tuple[Any, list[str] | None]:
    """Return labels as numbers, with UNLABELLED for none; and the class names if labels are strings."""
    if isinstance(labels, list | tuple) and not any(isinstance(label, list | tuple) for label in labels[:1]):
        held = np.empty(len(labels), dtype=object)  # numpy would turn a NaN among strings into a string
        held[:] = labels
        labels = held
    values = as_array(labels, source, key)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.dtype.kind == "b":
        values = values.astype(np.int64)
    if values.dtype.kind == "f":
        return np.where(np.isnan(values), UNLABELLED, values), None
    if values.dtype.kind not in "OU" or values.ndim != 1:
        return values, None
    given = [None if is_missing(value) else value for value in values.tolist()]
    for row, value in enumerate(given):
        if not isinstance(value, str | Real | None):
            raise UserError(
                f"{source}: {key!r} holds {shown(value)} in {place(row)}; "
                f"expected strings or whole numbers from 0, and None, NaN or -1 for no label."
            )
    texts = in_order(value for value in given if isinstance(value, str))
    if not texts:
        return [UNLABELLED if value is None else value for value in given], None
    for row, value in enumerate(given):
        if value is not None and not isinstance(value, str):
            raise UserError(
                f"{source}: {key!r} holds the number {value} in {place(row)}, and strings such as "
                f"{shown(texts[0])}; expected only numbers or only strings."
            )
    position = {text: number for number, text in enumerate(texts)}
    return [UNLABELLED if value is None else position[value] for value in given], texts


def is_missing(value: Any) -> bool:
    """Return whether ``value`` means no label: None, NaN, -1 or blank text."""
    if value is None or isinstance(value, str):
        return value is None or is_no_label(value)
    try:
        return bool(value != value) or bool(value == UNLABELLED)
    except (TypeError, ValueError):  # pandas.NA and arrays have no truth value
        return type(value).__name__ == "NAType"


def is_unicode(text: str) -> bool:
    """Return whether ``text`` can be encoded. A lone surrogate cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
