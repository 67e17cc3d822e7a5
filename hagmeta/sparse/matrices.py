"""Constant matrices with the fastest product on each device."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import scipy.sparse
import torch
import torch.nn.functional as F
from torch import Tensor

from hagmeta.packs.device import gpu_usable
from hagmeta.sparse.fixed import FixedInputsOnGpu

if TYPE_CHECKING or gpu_usable():
    from hagmeta.sparse import kernels
if TYPE_CHECKING:
    from hagmeta.sparse import cpu_kernels


DENSE_SHARE = 0.3  # of entries that are not 0; with more of them, a GPU multiplies dense matrices


class _Rows(NamedTuple):
    """The entries of a sparse matrix by row, on its device."""

    offsets: Tensor  # (rows + 1,)
    columns: Tensor  # (entries,)
    values: Tensor | None  # (entries,); None if all are 1
    segments: kernels.Segments | None  # on a GPU
    compiled: cpu_kernels.Rows | None = None  # on a CPU


def _rows_of(matrix: scipy.sparse.csr_matrix, device: torch.device) -> _Rows:
    matrix.sort_indices()
    weighted = bool((matrix.data != 1).any())
    rows = _Rows(
        torch.from_numpy(matrix.indptr.astype(np.int32)).to(device),
        torch.from_numpy(matrix.indices.astype(np.int32)).to(device),
        torch.from_numpy(matrix.data.astype(np.float32)).to(device) if weighted else None,
        kernels.cut(matrix.indptr, device) if device.type == "cuda" else None,
    )
    return rows._replace(compiled=_compiled(rows)) if device.type == "cpu" else rows


def _compiled(rows: _Rows) -> cpu_kernels.Rows:
    from hagmeta.sparse import cpu_kernels  # only where it is used: importing Numba takes time

    return cpu_kernels.rows_of(rows.offsets, rows.columns, rows.values)


def _rows_on_gpu(row: Tensor, column: Tensor, value: Tensor, rows: int) -> _Rows:
    """Build rows on the GPU from entries that are sorted by row."""
    offsets = F.pad(torch.bincount(row, minlength=rows).cumsum(0), (1, 0)).int()
    return _Rows(offsets, column.int(), value, kernels.cut(offsets.cpu().numpy(), row.device))


class SparseMatrix:
    """A constant sparse matrix."""

    def __init__(self, matrix: scipy.sparse.csr_matrix, device: torch.device) -> None:
        self._source = matrix
        self.shape: tuple[int, int] = matrix.shape
        self.device = device
        self._rows = _rows_of(matrix, device)
        if self.on_gpu:  # build it now: built inside a vmap or a capture, it would not outlive that
            _ = self._columns

    @cached_property
    def _columns(self) -> _Rows:
        """Return the rows of the transposed matrix."""
        return _rows_of(self._source.T.tocsr(), self.device)

    @property
    def on_gpu(self) -> bool:
        return self.device.type == "cuda"

    @property
    def compiled(self) -> cpu_kernels.Rows | None:
        """Return the rows for compiled products, on a CPU."""
        return self._rows.compiled

    @property
    def compiled_columns(self) -> cpu_kernels.Rows | None:
        """Return the rows of the transposed matrix for compiled products."""
        return self._columns.compiled

    @property
    def transposed(self) -> SparseMatrix:
        """Return the transposed matrix. It is not cached: a reference cycle would delay its release."""
        return _FromRows(self.shape[::-1], self._columns, self._rows)

    def product(self, dense: Tensor) -> Tensor:
        """Multiply: (columns, width) to (rows, width)."""
        if self.on_gpu:
            return _gpu_product(self._rows, dense.unsqueeze(1)).squeeze(1)
        from hagmeta.sparse import cpu_kernels

        assert self.compiled is not None
        return cpu_kernels.product(self.compiled, dense.unsqueeze(0)).squeeze(0)

    def row_maximum(self, values: Tensor) -> Tensor:
        """Return the maximum instead of the sum over each row: (columns, width) to (rows, width)."""
        if self.on_gpu:
            return kernels.largest(self._rows.offsets, self._rows.columns, values)
        gathered = values[self._rows.columns]
        return torch.segment_reduce(gathered, "max", offsets=self._rows.offsets.long(), axis=0)


def _gpu_product(
    rows: _Rows, dense: Tensor, scale: Tensor | None = None, finish: kernels.Finish | None = None
) -> Tensor:
    assert rows.segments is not None
    count = len(rows.offsets) - 1
    return kernels.product(rows.segments, rows.columns, rows.values, dense, count, scale, finish)


class _FromRows(SparseMatrix):
    """A sparse matrix whose rows and columns are already on the device."""

    def __init__(self, shape: tuple[int, int], rows: _Rows, columns: _Rows) -> None:
        self.shape, self.device = shape, rows.offsets.device
        self._rows, self._columns = rows, columns


class SymmetricMatrix(SparseMatrix):
    """A sparse matrix that is its own transpose."""

    @property
    def _columns(self) -> _Rows:
        return self._rows

    def scaled_product(self, scale: Tensor, dense: Tensor, finish: kernels.Finish | None = None) -> Tensor:
        """Return diag(scale) @ self @ diag(scale) @ dense, on a GPU in one pass.

        Args:
            scale: Weights (pack, rows).
            dense: Values (rows, pack, width). The result has the same shape.
            finish: What a hidden layer does after the product.
        """
        return _gpu_product(self._rows, dense, scale.contiguous(), finish)

    @cached_property
    def attention(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return row offsets, columns, and the order of rows by length for the attention kernels."""
        offsets, columns = self._rows.offsets, self._rows.columns
        length = offsets[1:] - offsets[:-1]
        return offsets, columns, length.argsort(descending=True, stable=True).int()

    def rows(self, chosen: Tensor, weights: Tensor) -> _RowsOnDevice:
        """Return the ``chosen`` rows (pack, rows) of each seed, weighted by column (pack, columns)."""
        return _RowsOnDevice(self._rows.offsets, self._rows.columns, weights.contiguous(), chosen)


@dataclass(frozen=True)
class _RowsOnDevice:
    """Some rows of a sparse matrix on a GPU, without knowing the number of entries."""

    offsets: Tensor
    columns: Tensor
    weights: Tensor  # (pack, columns)
    chosen: Tensor  # (pack, rows)

    @property
    def transposed(self) -> _RowsOnDeviceTransposed:
        return _RowsOnDeviceTransposed(self)

    def product(self, dense: Tensor) -> Tensor:
        by_seed = dense.unflatten(0, (-1, len(self.chosen)))  # (columns, pack, width)
        return kernels.at_rows(self.offsets, self.columns, self.weights, by_seed, self.chosen).flatten(0, 1)


@dataclass(frozen=True)
class _RowsOnDeviceTransposed:
    transposed: _RowsOnDevice

    def product(self, dense: Tensor) -> Tensor:
        of = self.transposed
        by_seed = dense.unflatten(0, of.chosen.shape)  # (pack, rows, width)
        return kernels.from_rows(of.offsets, of.columns, of.weights, by_seed, of.chosen).flatten(0, 1)


class DenseMatrix:
    """A constant dense matrix with the interface of ``SparseMatrix``."""

    def __init__(self, dense: Tensor) -> None:
        self.dense = dense
        self.shape = (dense.shape[0], dense.shape[1])

    @property
    def transposed(self) -> DenseMatrix:
        return DenseMatrix(self.dense.T)

    def product(self, dense: Tensor) -> Tensor:
        return self.dense @ dense


class SeedwiseMatrix:
    """One sparse matrix per seed of a pack, all of the same shape, multiplied in one product."""

    def __init__(self, matrices: list[scipy.sparse.csr_matrix], device: torch.device) -> None:
        pack = len(matrices)
        rows, columns = matrices[0].shape
        blocks = []
        self.seed_first = device.type == "cpu"
        for seed, matrix in enumerate(matrices):
            indices = matrix.indices.astype(np.int64)
            # On a GPU, column c of seed s is at c * pack + s, with the pack axis next to the columns.
            indices = seed * columns + indices if self.seed_first else indices * pack + seed
            blocks.append(
                scipy.sparse.csr_matrix((matrix.data, indices, matrix.indptr), shape=(rows, columns * pack))
            )
        self.rows, self.columns, self.pack = rows, columns, pack
        self.stacked = SparseMatrix(scipy.sparse.vstack(blocks, format="csr"), device)

    @staticmethod
    def from_transposed(dense: Tensor) -> SeedwiseMatrix | DenseSeedwiseMatrix:
        """Build it from the transposed matrices (columns, pack, rows) of all seeds, dense on the device."""
        used = dense.any(0).any(0).nonzero().squeeze(-1)
        if int(dense.count_nonzero()) > DENSE_SHARE * len(dense) * dense.shape[1] * len(used):
            return DenseSeedwiseMatrix(dense, used)
        matrix = SeedwiseMatrix.__new__(SeedwiseMatrix)
        matrix.columns, matrix.pack, matrix.rows = dense.shape
        matrix.seed_first = False
        flat = dense.flatten(0, 1)
        column, row = flat.nonzero().unbind(1)
        value = flat[column, row]
        row = row + (column % matrix.pack) * matrix.rows
        shape = (matrix.pack * matrix.rows, len(flat))
        by_row = row.argsort(stable=True)
        matrix.stacked = _FromRows(
            shape,
            _rows_on_gpu(row[by_row], column[by_row], value[by_row], shape[0]),
            _rows_on_gpu(column, row, value, shape[1]),
        )
        return matrix


class DenseSeedwiseMatrix:
    """One matrix per seed of a pack on a GPU, stored densely without empty rows.

    In a graph with many edges, most nodes have neighbours with labels of most classes.
    """

    def __init__(self, transposed: Tensor, used: Tensor) -> None:
        nodes, pack, self._rows = transposed.shape
        self._used = used  # (used,) rows that are not empty
        everyone = torch.arange(nodes, device=transposed.device)
        by_seed = transposed[..., used].unbind(1)
        self._transposed = FixedInputsOnGpu([everyone] * pack, by_seed, range(pack), nodes)

    def collect(self, dense: Tensor) -> Tensor:
        """Multiply: (columns, pack, width) to (pack, rows, width)."""
        product = dense.new_zeros(dense.shape[1], self._rows, dense.shape[2])
        return product.index_copy_(1, self._used, self._transposed.collect(dense))

    def spread(self, dense: Tensor) -> Tensor:
        """Multiply by the transposed matrix: (pack, rows, width) to (columns, pack, width)."""
        return self._transposed.spread(dense[:, self._used])
