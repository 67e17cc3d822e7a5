"""Read features of any type, and find out what they are.

Storage follows content, not type. These matrices are sparse: zeros and ones; small whole numbers of which at
most half are not 0; any numbers of which at most a quarter are not 0. All others are dense.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import numpy as np
import scipy.sparse

from hagmeta.common.errors import UserError
from hagmeta.datasets.clean import as_array, place

Features: TypeAlias = scipy.sparse.csr_matrix | np.ndarray
Kind: TypeAlias = Literal["counts", "values", "unchanged"]

MOST_FEATURES = 10**6  # each needs a row of encoder weights
LARGEST = 1e15  # largest feature value; keeps sums of squares within the range of float32
LARGEST_COUNT = 1000
SPARSE_SHARE, COUNTS_SHARE = 0.25, 0.5  # largest share of entries other than 0
ROUNDING = 1e-4  # relative error of the multiples of a normalised row


def clean_features(
    values: Any, num_nodes: int, *, counts: Literal[False] | None = None, source: str, key: str
) -> tuple[Features, Kind]:
    """Return features of any type as float32, and their kind.

    Args:
        values: The features (nodes, features): a dense or sparse array, tensor, matrix or data frame.
        num_nodes: The number of nodes.
        counts: Whether to look for counts. False means that the columns are used unchanged.
        source: The file or function that the features came from.
        key: The name of the features in error messages.

    Returns:
        A contiguous array, or a CSR matrix without duplicates and zeros, and the kind:

        - ``counts``: word counts, or rows of word counts divided by their sum or length;
        - ``values``: other numbers;
        - ``unchanged``: numbers whose columns must not be weighted or reduced.
    """
    if counts not in (None, False):
        raise UserError(
            f"{source}: counts is {counts!r}; expected None (find out), or False (use all columns unchanged)."
        )
    matrix = as_matrix(values, source, key)
    if matrix.ndim != 2 or matrix.shape[0] != num_nodes or matrix.shape[1] == 0:
        raise UserError(
            f"{source}: {key!r} has shape {matrix.shape}; "
            f"expected ({num_nodes}, features), one row per label."
        )
    if matrix.shape[1] > MOST_FEATURES:
        raise UserError(
            f"{source}: there are {matrix.shape[1]:,} features; expected at most {MOST_FEATURES:,}. "
            "Leave out features that few nodes have."
        )
    if matrix.dtype.kind not in "biuf":
        raise UserError(f"{source}: {key!r} has type {matrix.dtype}; expected real numbers.")
    if isinstance(matrix, np.ndarray):
        matrix = np.ascontiguousarray(matrix, dtype=np.float32)
        nonzeros = np.count_nonzero(matrix)
    else:  # copy, because the caller owns the original
        matrix = scipy.sparse.csr_matrix(matrix, dtype=np.float32, copy=True)
        matrix.sum_duplicates()
        matrix.eliminate_zeros()
        nonzeros = matrix.nnz
    _require_valid(matrix, source, key)
    share = nonzeros / np.prod(matrix.shape, dtype=float)
    if counts is None and (share <= COUNTS_SHARE or _is_binary(matrix)):
        sparse = scipy.sparse.csr_matrix(matrix)
        kind = kind_of(sparse)
        if kind == "counts" or share <= SPARSE_SHARE:
            return sparse, kind
    dense = matrix if isinstance(matrix, np.ndarray) else matrix.toarray()
    return dense, "values" if counts is None else "unchanged"


def as_matrix(values: Any, source: str, key: str) -> Any:
    """Return ``values`` as a dense numpy array, or as a scipy matrix if they are sparse."""
    if scipy.sparse.issparse(values):
        return values
    if hasattr(values, "to_torch_sparse_coo_tensor"):  # torch_sparse.SparseTensor
        values = values.to_torch_sparse_coo_tensor()
    if str(getattr(values, "layout", "torch.strided")) == "torch.strided":
        return as_array(values, source, key, dtype=float if hasattr(values, "columns") else None)
    values = values.detach().cpu().to_sparse_coo()
    if values.dense_dim():
        raise UserError(f"{source}: {key!r} is a sparse tensor with dense dimensions; expected a matrix.")
    # Half precision and booleans cannot be coalesced everywhere.
    values = (values if values.is_complex() else values.float()).coalesce()
    return scipy.sparse.coo_array(
        (values.values().numpy(), values.indices().numpy()), shape=tuple(values.shape)
    )


def kind_of(features: Features) -> Kind:
    """Return ``counts`` or ``values``, given clean features."""
    if isinstance(features, np.ndarray):  # counts are stored as a sparse matrix
        return "values"
    return "counts" if _are_counts(features.data) or is_normalised(features) else "values"


def _is_binary(features: Features) -> bool:
    values = features if isinstance(features, np.ndarray) else features.data
    return bool(((values == 0) | (values == 1)).all())


def _are_counts(values: np.ndarray) -> bool:
    within = values.min(initial=0) >= 0 and values.max(initial=0) <= LARGEST_COUNT
    return bool(within and np.array_equal(values, np.floor(values)))


def is_normalised(features: scipy.sparse.csr_matrix) -> bool:
    """Return whether rows are counts that were divided by their sum, or by their length.

    Then the other values of a row are whole multiples of its smallest value.
    """
    sizes = np.diff(features.indptr)
    starts = features.indptr[:-1][sizes > 0]
    values = features.data.astype(np.float64)
    if not len(values) or values.min() < 0 or values.max() > 1 + ROUNDING:
        return False
    sums, squares = np.add.reduceat(values, starts), np.add.reduceat(values**2, starts)
    if not any(np.allclose(totals, 1, rtol=0, atol=20 * ROUNDING) for totals in (sums, squares)):
        return False
    multiples = values / np.repeat(np.minimum.reduceat(values, starts), sizes[sizes > 0])
    counts = np.round(multiples)
    return bool(counts.max() <= LARGEST_COUNT and np.all(np.abs(multiples - counts) <= ROUNDING * counts))


def described(features: Features, kind: Kind) -> str:
    """Return what features are, such as "3,397 binary columns (1.0 % non-zero)"."""
    if isinstance(features, np.ndarray):
        return f"{features.shape[1]:,} real columns" + " (used unchanged)" * (kind == "unchanged")
    binary = kind == "counts" and bool((features.data == 1).all())
    called = "binary" if binary else "count" if kind == "counts" else "real"
    normalised = ", normalised by row" if kind == "counts" and not _are_counts(features.data) else ""
    share = features.nnz / np.prod(features.shape, dtype=float)
    return f"{features.shape[1]:,} {called} columns ({100 * share:.1f} % non-zero{normalised})"


def entry_place(indptr: np.ndarray, indices: np.ndarray, entry: int) -> tuple[int, int]:
    """Return the row and the column of an entry of a sparse matrix."""
    return int(np.searchsorted(indptr, entry, side="right")) - 1, int(indices[entry])


def _require_valid(features: Features, source: str, key: str) -> None:
    values = features if isinstance(features, np.ndarray) else features.data
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
