"""Validate input arrays: return the clean arrays of a graph, or raise a one-line error."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import scipy.sparse

from hagmeta.common.errors import UserError, shown
from hagmeta.common.files import reason, require_readable

Features: TypeAlias = scipy.sparse.csr_matrix | np.ndarray

UNLABELLED = -1  # label of a node without a class
MOST_FEATURES = 10**6  # each needs a row of encoder weights
LARGEST = 1e15  # largest feature value; keeps sums of squares within the range of float32


class Keys(NamedTuple):
    """The names of the three arrays of a graph in error messages."""

    edges: str = "edges"
    labels: str = "labels"
    features: str = "features"


CALLED = Keys()


class GraphArrays(NamedTuple):
    """The arrays of a graph, as described in ``Dataset``."""

    edges: np.ndarray
    labels: np.ndarray
    features: Features
    class_names: tuple[str, ...]
    node_ids: tuple[Any, ...] | None = None
    feature_names: tuple[str, ...] | None = None


def clean_graph(
    edges: Any,
    labels: Any,
    features: Any,
    class_names: Sequence[str] | None = None,
    *,
    source: str,
    keys: Keys = CALLED,
    may_be_unlabelled: bool = False,
) -> GraphArrays:
    """Check the arrays of a graph and bring them into the form of `Dataset`.

    Directed and repeated edges are merged, and self-loops are dropped. Labels become consecutive numbers in
    the same order; -1 stays.

    Args:
        edges: The edges (edges, 2), as node numbers from 0.
        labels: The labels (nodes,), as integers from 0, or -1 for no label.
        features: The features (nodes, features), dense or sparse.
        class_names: ``class_names[label]`` is the name of a class. By default, the labels are the names.
        source: The file or function that the arrays came from. Error messages begin with it.
        keys: The names of the arrays in error messages.
        may_be_unlabelled: Whether a graph without any label is valid.

    Returns:
        The clean arrays.

    Raises:
        UserError: An array has an invalid shape, type or value.
    """
    labels = label_numbers(labels, source=source, key=keys.labels)
    if len(labels) == 0:
        raise UserError(f"{source}: {keys.labels!r} is empty; expected at least one node.")
    features = _clean_features(features, num_nodes=len(labels), source=source, key=keys.features)
    edges = whole_numbers(edges, source=source, key=keys.edges, dimensions=2)
    edges = _clean_edges(edges, num_nodes=len(labels), source=source, key=keys.edges)
    present = np.unique(labels[labels != UNLABELLED])
    if len(present) == 0 and not may_be_unlabelled:
        raise UserError(f"{source}: {keys.labels!r} holds no labels; expected at least one class.")
    if class_names is not None and present.size and present[-1] >= len(class_names):
        row = int(np.argmax(labels == present[-1]))
        raise UserError(
            f"{source}: {keys.labels!r} holds {present[-1]} in row {row}; "
            f"expected 0 to {len(class_names) - 1}, since there are {len(class_names)} class names."
        )
    names = tuple(str(label if class_names is None else class_names[label]) for label in present)
    for class_name in names:
        if not _is_unicode(class_name):
            raise UserError(f"{source}: 'class_names' holds {shown(class_name)}; expected Unicode text.")
    consecutive = np.where(labels == UNLABELLED, UNLABELLED, np.searchsorted(present, labels))
    return GraphArrays(edges, consecutive, features, names)


def label_numbers(labels: Any, *, source: str, key: str = CALLED.labels) -> np.ndarray:
    """Return labels (nodes,) as int64. They must be integers from 0, or -1 for no label."""
    return whole_numbers(labels, source=source, key=key, dimensions=1, labels=True)


def is_no_label(text: str) -> bool:
    """Return whether ``text`` means no label: it is blank or -1."""
    return text.strip() in ("", str(UNLABELLED))


def in_order(class_names: Iterable[str]) -> list[str]:
    """Sort class names: by value if all are numbers, otherwise alphabetically."""
    names = set(class_names)
    if all(name.isdecimal() for name in names):
        return sorted(names, key=lambda name: (Decimal(name), name))  # int() limits the number of digits
    return sorted(names)


def whole_numbers(values: Any, *, source: str, key: str, dimensions: int, labels: bool = False) -> np.ndarray:
    """Return ``values`` as int64. They must be integers from 0 (labels: from -1) in ``dimensions`` axes."""
    array = np.asarray(values)
    least, valid = 0, "whole numbers from 0"
    if labels:
        least, valid = UNLABELLED, f"{valid}, or {UNLABELLED} for no label"
    if array.ndim != dimensions:
        classes = " (for one-hot labels, use argmax(axis=1))" if labels and array.ndim == 2 else ""
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


def _clean_edges(edges: np.ndarray, *, num_nodes: int, source: str, key: str) -> np.ndarray:
    """Return each pair once, smaller node first, sorted, without self-loops."""
    if edges.shape[1] != 2:
        raise UserError(f"{source}: {key!r} has shape {edges.shape}; expected (edges, 2).")
    if len(edges) and edges.max() >= num_nodes:
        row, column = np.argwhere(edges >= num_nodes)[0]
        raise UserError(
            f"{source}: {key!r} holds node {edges[row, column]} in {place(row, column)}; "
            f"expected 0 to {num_nodes - 1}, since there are {num_nodes} nodes."
        )
    lower, upper = edges.min(axis=1), edges.max(axis=1)
    pairs = sorted_unique((lower * num_nodes + upper)[lower != upper])
    if len(pairs) == 0:
        raise UserError(f"{source}: {key!r} has no edge between two different nodes; expected at least one.")
    return np.stack([pairs // num_nodes, pairs % num_nodes], axis=1)


def _clean_features(features: Any, *, num_nodes: int, source: str, key: str) -> Features:
    if not scipy.sparse.issparse(features):
        features = np.asarray(features)
    if features.ndim != 2 or features.shape[0] != num_nodes or features.shape[1] == 0:
        raise UserError(
            f"{source}: {key!r} has shape {features.shape}; "
            f"expected ({num_nodes}, features), one row per label."
        )
    if features.shape[1] > MOST_FEATURES:
        raise UserError(
            f"{source}: there are {features.shape[1]:,} features; expected at most {MOST_FEATURES:,}. "
            "Leave out features that few nodes have."
        )
    if features.dtype.kind not in "biuf":
        raise UserError(f"{source}: {key!r} has type {features.dtype}; expected real numbers.")
    if scipy.sparse.issparse(features):
        # Copy, because the next lines change the matrix in place and the caller still owns the original.
        matrix = scipy.sparse.csr_matrix(features, dtype=np.float32, copy=True)
        matrix.sum_duplicates()
        matrix.eliminate_zeros()
        _require_valid(matrix.data, features=matrix, source=source, key=key)
        return matrix
    dense = np.ascontiguousarray(features, dtype=np.float32)
    _require_valid(dense, features=dense, source=source, key=key)
    return dense


def entry_place(indptr: np.ndarray, indices: np.ndarray, entry: int) -> tuple[int, int]:
    """Return the row and the column of an entry of a sparse matrix."""
    return int(np.searchsorted(indptr, entry, side="right")) - 1, int(indices[entry])


def _require_valid(values: np.ndarray, *, features: Features, source: str, key: str) -> None:
    if values.min(initial=0) >= -LARGEST and values.max(initial=0) <= LARGEST:  # False for NaN
        return
    first = int(np.argmin(np.abs(values.ravel()) <= LARGEST))
    if isinstance(features, np.ndarray):
        row, column = divmod(first, features.shape[1])
    else:
        row, column = entry_place(features.indptr, features.indices, first)
    raise UserError(
        f"{source}: {key!r} holds {values.ravel()[first]} in {place(row, column)}; "
        f"expected finite numbers from {-LARGEST:g} to {LARGEST:g}."
    )


def _is_unicode(text: str) -> bool:
    """Return whether ``text`` can be encoded. A lone surrogate cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
