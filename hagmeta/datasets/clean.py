"""The door: whatever a source holds becomes the checked arrays of a graph, or one line that says why not."""

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

UNLABELLED = -1  # the label of a node without a class
MOST_FEATURES = 10**6  # each takes a row of an encoder's weights
LARGEST = 1e15  # of a feature: sums of squares stay within 32 bits


class Keys(NamedTuple):
    """What errors call the three arrays of a graph."""

    edges: str = "edges"
    labels: str = "labels"
    features: str = "features"


CALLED = Keys()


class GraphArrays(NamedTuple):
    """A graph as ``Dataset`` holds it, which says what each is."""

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
) -> GraphArrays:
    """Check and tidy a graph as its source gives it.

    Directed and repeated edges are merged, self-loops dropped, and labels made consecutive in the order of
    the source's numbers; -1 stays, for nodes without a label. ``class_names[label]`` names the source's
    labels; without it the names are those numbers. Errors begin with ``source``, the file or dataset the
    arrays came from, and call the arrays by ``keys``.
    """
    labels = label_numbers(labels, source=source, key=keys.labels)
    if len(labels) == 0:
        raise UserError(f"{source}: {keys.labels!r} is empty; a graph needs at least one node.")
    features = _clean_features(features, num_nodes=len(labels), source=source, key=keys.features)
    edges = whole_numbers(edges, source=source, key=keys.edges, dimensions=2)
    edges = _clean_edges(edges, num_nodes=len(labels), source=source, key=keys.edges)
    present = np.unique(labels[labels != UNLABELLED])
    if len(present) == 0:
        raise UserError(f"{source}: {keys.labels!r} holds no label at all; at least one class is needed.")
    if class_names is not None and present[-1] >= len(class_names):
        row = int(np.argmax(labels == present[-1]))
        raise UserError(
            f"{source}: {keys.labels!r} holds {present[-1]} in row {row}; "
            f"with {len(class_names)} class names valid are 0 to {len(class_names) - 1}."
        )
    names = tuple(str(label if class_names is None else class_names[label]) for label in present)
    for class_name in names:
        if not _is_unicode(class_name):
            raise UserError(f"{source}: 'class_names' holds {shown(class_name)}; valid is Unicode text.")
    consecutive = np.where(labels == UNLABELLED, UNLABELLED, np.searchsorted(present, labels))
    return GraphArrays(edges, consecutive, features, names)


def label_numbers(labels: Any, *, source: str, key: str = CALLED.labels) -> np.ndarray:
    """Return labels (nodes,) as int64, if they are whole numbers from 0, or -1 for none."""
    return whole_numbers(labels, source=source, key=key, dimensions=1, labels=True)


def is_no_label(text: str) -> bool:
    """Tell whether a text stands for no label: it is blank, or -1."""
    return text.strip() in ("", str(UNLABELLED))


def in_order(class_names: Iterable[str]) -> list[str]:
    """Sort names of classes: by their numbers if all are numbers, by the alphabet if not."""
    names = set(class_names)
    if all(name.isdecimal() for name in names):
        return sorted(names, key=lambda name: (Decimal(name), name))  # of any length, as int is not
    return sorted(names)


def whole_numbers(values: Any, *, source: str, key: str, dimensions: int, labels: bool = False) -> np.ndarray:
    """Return ``values`` as int64, if they are whole numbers from 0 (labels: from -1) of that dimension."""
    array = np.asarray(values)
    least, valid = 0, "whole numbers from 0"
    if labels:
        least, valid = UNLABELLED, f"{valid}, or {UNLABELLED} for no label"
    if array.ndim != dimensions:
        classes = " (of one-hot labels take argmax(axis=1))" if labels and array.ndim == 2 else ""
        raise UserError(
            f"{source}: {key!r} has shape {array.shape}; valid are {dimensions} dimensions{classes}."
        )
    if array.dtype.kind not in "iuf":
        raise UserError(f"{source}: {key!r} has type {array.dtype}; valid are {valid}.")
    if array.dtype.kind == "f":
        bad = ~np.isfinite(array) | (array != np.floor(array)) | (array < least) | (array > 2**53)
    else:
        bad = (array < least) | (array > np.iinfo(np.int64).max)
    if bad.any():
        position = np.argwhere(bad)[0]
        raise UserError(
            f"{source}: {key!r} holds {array[tuple(position)]} in {place(*position)}; valid are {valid}."
        )
    return array.astype(np.int64)


def require_data_file(path: Path, more: str = "") -> None:
    """Refuse a file that is not there, or that is no file."""
    try:
        require_readable(path)
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(f"{path}: there is no such file{more}.") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({reason(error)}){more}.") from None


def place(*position: int) -> str:
    """Where in an array; rows and columns count from 0, as the array's own do."""
    return ", ".join(f"{axis} {number}" for axis, number in zip(("row", "column"), position, strict=False))


def sorted_unique(values: np.ndarray) -> np.ndarray:
    """As np.unique, which hashes first: five times slower on millions of numbers that are mostly distinct."""
    values = np.sort(values)
    first = np.ones(len(values), dtype=bool)
    first[1:] = values[1:] != values[:-1]
    return np.asarray(values[first])


def one_line(error: BaseException) -> str:
    """What a library said, fit to be quoted inside a UserError."""
    return " ".join(str(error).split())[:200] or type(error).__name__


def _clean_edges(edges: np.ndarray, *, num_nodes: int, source: str, key: str) -> np.ndarray:
    """Every pair once, smaller node first, sorted, without self-loops."""
    if edges.shape[1] != 2:
        raise UserError(f"{source}: {key!r} has shape {edges.shape}; valid is (edges, 2).")
    if len(edges) and edges.max() >= num_nodes:
        row, column = np.argwhere(edges >= num_nodes)[0]
        raise UserError(
            f"{source}: {key!r} holds node {edges[row, column]} in {place(row, column)}; "
            f"with {num_nodes} nodes valid are 0 to {num_nodes - 1}."
        )
    lower, upper = edges.min(axis=1), edges.max(axis=1)
    pairs = sorted_unique((lower * num_nodes + upper)[lower != upper])
    if len(pairs) == 0:
        raise UserError(f"{source}: {key!r} holds no pair of two different nodes; at least one is needed.")
    return np.stack([pairs // num_nodes, pairs % num_nodes], axis=1)


def _clean_features(features: Any, *, num_nodes: int, source: str, key: str) -> Features:
    if not scipy.sparse.issparse(features):
        features = np.asarray(features)
    if features.ndim != 2 or features.shape[0] != num_nodes or features.shape[1] == 0:
        raise UserError(
            f"{source}: {key!r} has shape {features.shape}; "
            f"valid is ({num_nodes}, features), a row for each label."
        )
    if features.shape[1] > MOST_FEATURES:
        raise UserError(
            f"{source}: there are {features.shape[1]:,} features; valid are at most {MOST_FEATURES:,}. "
            "Leave out those that few nodes have."
        )
    if features.dtype.kind not in "biuf":
        raise UserError(f"{source}: {key!r} has type {features.dtype}; valid are real numbers.")
    if scipy.sparse.issparse(features):
        # A copy, and a fresh one: the in-place tidying below must not change what the caller holds.
        matrix = scipy.sparse.csr_matrix(features, dtype=np.float32, copy=True)
        matrix.sum_duplicates()
        matrix.eliminate_zeros()
        _require_valid(matrix.data, features=matrix, source=source, key=key)
        return matrix
    dense = np.ascontiguousarray(features, dtype=np.float32)
    _require_valid(dense, features=dense, source=source, key=key)
    return dense


def entry_place(indptr: np.ndarray, indices: np.ndarray, entry: int) -> tuple[int, int]:
    """The row and the column of a sparse matrix's entry."""
    return int(np.searchsorted(indptr, entry, side="right")) - 1, int(indices[entry])


def _require_valid(values: np.ndarray, *, features: Features, source: str, key: str) -> None:
    if values.min(initial=0) >= -LARGEST and values.max(initial=0) <= LARGEST:  # NaN is not
        return
    first = int(np.argmin(np.abs(values.ravel()) <= LARGEST))
    if isinstance(features, np.ndarray):
        row, column = divmod(first, features.shape[1])
    else:
        row, column = entry_place(features.indptr, features.indices, first)
    raise UserError(
        f"{source}: {key!r} holds {values.ravel()[first]} in {place(row, column)}; "
        f"valid are finite numbers from {-LARGEST:g} to {LARGEST:g}."
    )


def _is_unicode(text: str) -> bool:
    """Whether text can be written to a file; half a surrogate pair cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
