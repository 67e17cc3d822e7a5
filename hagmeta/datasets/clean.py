"""The door: whatever a source holds becomes a checked NodeDataset here, or one line that says why not."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse

from hagmeta.common.errors import UserError, shown
from hagmeta.common.files import reason, require_readable
from hagmeta.datasets.base import NodeDataset

Features: TypeAlias = scipy.sparse.csr_matrix | np.ndarray


MOST_FEATURES = 10**6  # each takes a row of an encoder's weights
LARGEST = 1e15  # of a feature: sums of squares stay within 32 bits


def make_dataset(
    name: str,
    edges: Any,
    labels: Any,
    features: Any,
    class_names: Sequence[str] | None = None,
    *,
    source: str,
) -> NodeDataset:
    """Check and tidy a graph as its source gives it.

    Directed and repeated edges are merged, self-loops dropped, and labels made consecutive in the order of
    the source's numbers. ``class_names[label]`` names the source's labels; without it the names are those
    numbers. Errors begin with ``source``, the file or dataset the arrays came from.
    """
    labels = whole_numbers(labels, source=source, key="labels", dimensions=1)
    if len(labels) == 0:
        raise UserError(f"{source}: 'labels' is empty; a graph needs at least one node.")
    features = _clean_features(features, num_nodes=len(labels), source=source)
    edges = whole_numbers(edges, source=source, key="edges", dimensions=2)
    edges = _clean_edges(edges, num_nodes=len(labels), source=source)

    present, labels = np.unique(labels, return_inverse=True)
    if class_names is None:
        names = tuple(str(label) for label in present)
    elif present[-1] >= len(class_names):
        row = int(np.argmax(labels == len(present) - 1))
        raise UserError(
            f"{source}: 'labels' holds {present[-1]} in row {row}; with {len(class_names)} class names "
            f"valid are 0 to {len(class_names) - 1}."
        )
    else:
        names = tuple(str(class_names[label]) for label in present)
        for class_name in names:
            if not _is_unicode(class_name):
                raise UserError(f"{source}: 'class_names' holds {shown(class_name)}; valid is Unicode text.")
    return NodeDataset(name, edges, labels.astype(np.int64).ravel(), features, names)


def whole_numbers(values: Any, *, source: str, key: str, dimensions: int) -> np.ndarray:
    """Return ``values`` as int64, if they are whole numbers from 0 in an array of so many dimensions."""
    array = np.asarray(values)
    if array.ndim != dimensions:
        classes = " (of one-hot labels take argmax(axis=1))" if key == "labels" and array.ndim == 2 else ""
        raise UserError(
            f"{source}: {key!r} has shape {array.shape}; valid are {dimensions} dimensions{classes}."
        )
    if array.dtype.kind not in "iuf":
        raise UserError(f"{source}: {key!r} has type {array.dtype}; valid are whole numbers from 0.")
    if array.dtype.kind == "f":
        bad = ~np.isfinite(array) | (array != np.floor(array)) | (array < 0) | (array > 2**53)
    else:
        bad = (array < 0) | (array > np.iinfo(np.int64).max)
    if bad.any():
        position = np.argwhere(bad)[0]
        raise UserError(
            f"{source}: {key!r} holds {array[tuple(position)]} in {place(*position)}; "
            f"valid are whole numbers from 0."
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


def _clean_edges(edges: np.ndarray, *, num_nodes: int, source: str) -> np.ndarray:
    """Every pair once, smaller node first, sorted, without self-loops."""
    if edges.shape[1] != 2:
        raise UserError(f"{source}: 'edges' has shape {edges.shape}; valid is (edges, 2).")
    if len(edges) and edges.max() >= num_nodes:
        row, column = np.argwhere(edges >= num_nodes)[0]
        raise UserError(
            f"{source}: 'edges' holds node {edges[row, column]} in {place(row, column)}; "
            f"with {num_nodes} nodes valid are 0 to {num_nodes - 1}."
        )
    lower, upper = edges.min(axis=1), edges.max(axis=1)
    pairs = sorted_unique((lower * num_nodes + upper)[lower != upper])
    if len(pairs) == 0:
        raise UserError(f"{source}: 'edges' holds no pair of two different nodes; at least one is needed.")
    return np.stack([pairs // num_nodes, pairs % num_nodes], axis=1)


def _clean_features(features: Any, *, num_nodes: int, source: str) -> Features:
    if not scipy.sparse.issparse(features):
        features = np.asarray(features)
    if features.ndim != 2 or features.shape[0] != num_nodes or features.shape[1] == 0:
        raise UserError(
            f"{source}: 'features' has shape {features.shape}; "
            f"valid is ({num_nodes}, features), a row for each label."
        )
    if features.shape[1] > MOST_FEATURES:
        raise UserError(
            f"{source}: there are {features.shape[1]:,} features; valid are at most {MOST_FEATURES:,}. "
            "Leave out those that few nodes have."
        )
    if features.dtype.kind not in "biuf":
        raise UserError(f"{source}: 'features' has type {features.dtype}; valid are real numbers.")
    if scipy.sparse.issparse(features):
        # A copy, and a fresh one: the in-place tidying below must not change what the caller holds.
        matrix = scipy.sparse.csr_matrix(features, dtype=np.float32, copy=True)
        matrix.sum_duplicates()
        matrix.eliminate_zeros()
        _require_valid(matrix.data, features=matrix, source=source)
        return matrix
    dense = np.ascontiguousarray(features, dtype=np.float32)
    _require_valid(dense, features=dense, source=source)
    return dense


def entry_place(indptr: np.ndarray, indices: np.ndarray, entry: int) -> tuple[int, int]:
    """The row and the column of a sparse matrix's entry."""
    return int(np.searchsorted(indptr, entry, side="right")) - 1, int(indices[entry])


def _require_valid(values: np.ndarray, *, features: Features, source: str) -> None:
    if values.min(initial=0) >= -LARGEST and values.max(initial=0) <= LARGEST:  # NaN is not
        return
    first = int(np.argmin(np.abs(values.ravel()) <= LARGEST))
    if isinstance(features, np.ndarray):
        row, column = divmod(first, features.shape[1])
    else:
        row, column = entry_place(features.indptr, features.indices, first)
    raise UserError(
        f"{source}: 'features' holds {values.ravel()[first]} in {place(row, column)}; "
        f"valid are finite numbers from {-LARGEST:g} to {LARGEST:g}."
    )


def _is_unicode(text: str) -> bool:
    """Whether text can be written to a file; half a surrogate pair cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
