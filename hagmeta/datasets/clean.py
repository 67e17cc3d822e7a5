"""Checks of arrays and files that all readers of graphs share. Errors are one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from hagmeta.common.errors import UserError
from hagmeta.common.files.files import reason, require_readable

UNLABELLED = -1  # label of a node without a class
NOT_GIVEN: Any = None  # default of a value that is found out from others


def as_array(values: Any, source: str, key: str, dtype: type | None = None) -> np.ndarray:
    """Return ``values`` as a numpy array. Tensors may be on any device, and of any precision."""
    try:
        if hasattr(values, "detach"):
            values = values.detach().cpu()
            values = values.float() if values.is_floating_point() and values.itemsize < 4 else values
        return np.asarray(values, dtype=dtype)
    except (TypeError, ValueError) as error:  # rows of different lengths, or an unknown type
        raise UserError(f"{source}: {key!r} is not an array of numbers ({one_line(error)}).") from None


def whole_numbers(values: Any, *, source: str, key: str, dimensions: int, labels: bool = False) -> np.ndarray:
    """Return ``values`` as int64. They must be integers from 0 (labels: from -1) in ``dimensions`` axes."""
    array = np.asarray(values)
    least, valid = 0, "whole numbers from 0"
    if labels:
        least, valid = UNLABELLED, f"{valid}, or {UNLABELLED} for no label"
    if array.ndim != dimensions:
        classes = " (for one-hot labels, use argmax(axis=1); of several label columns, pass one)"
        classes = classes if labels and array.ndim == 2 else ""
        axes = "1 dimension" if dimensions == 1 else f"{dimensions} dimensions"
        raise UserError(f"{source}: {key!r} has shape {array.shape}; expected {axes}{classes}.")
    if array.dtype.kind not in "iuf":
        raise UserError(f"{source}: {key!r} has type {array.dtype}; expected {valid}.")
    if array.dtype.kind == "f":
        bad = ~np.isfinite(array) | (array != np.floor(array)) | (array < least) | (array > 2**53)
    else:
        bad = (array < least) | (array > np.iinfo(np.int64).max)
    if bad.any():
        position = np.argwhere(bad)[0]
        raise UserError(
            f"{source}: {key!r} holds {array[tuple(position)]} in {place(*position)}; expected {valid}."
        )
    return array.astype(np.int64)


def require_data_file(path: Path, more: str = "") -> None:
    """Raise an error unless ``path`` is a readable file. ``more`` is appended to the message."""
    try:
        require_readable(path)
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(f"{path}: no such file{more}.") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({reason(error)}){more}.") from None


def place(*position: int) -> str:
    """Return a position in an array as text. Rows and columns count from 0, as in the array."""
    return ", ".join(f"{axis} {number}" for axis, number in zip(("row", "column"), position, strict=False))


def sorted_unique(values: np.ndarray) -> np.ndarray:
    """Return sorted unique values. On millions of mostly distinct numbers, np.unique is five times slower."""
    values = np.sort(values)
    first = np.ones(len(values), dtype=bool)
    first[1:] = values[1:] != values[:-1]
    return np.asarray(values[first])


def one_line(error: BaseException) -> str:
    """Return the message of a library's error on one line, to quote in a UserError."""
    return " ".join(str(error).split())[:200] or type(error).__name__
