"""Constant matrices, each with the product that is fastest on its device."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse
import torch
import torch.nn.functional as F
from torch import Tensor

from hagmeta.device import gpu_usable

if TYPE_CHECKING or gpu_usable():
    from hagmeta import kernels


class SparseMatrix:
    """A constant sparse matrix, multiplied by what is fastest on its device."""

    def __init__(
        self, matrix: scipy.sparse.csr_matrix, device: torch.device, transposed: SparseMatrix | None = None
    ) -> None:
        matrix.sort_indices()
        self._source = matrix
        self.shape: tuple[int, int] = matrix.shape
        self.device = device
        self._offsets = torch.from_numpy(matrix.indptr.astype(np.int32)).to(device)
        self._columns = torch.from_numpy(matrix.indices.astype(np.int32)).to(device)
        weighted = bool((matrix.data != 1).any())
        self._values = torch.from_numpy(matrix.data.astype(np.float32)).to(device) if weighted else None
        if transposed is not None:
            self.transposed = transposed
        if self.on_gpu:  # all of it now: made in the middle of a vmap or a capture, it would not outlast that
            self._segments = kernels.cut(matrix.indptr, device)
            _ = self.transposed

    @property
    def on_gpu(self) -> bool:
        return self.device.type == "cuda"

    @cached_property
    def transposed(self) -> SparseMatrix:
        return SparseMatrix(self._source.T.tocsr(), self.device, transposed=self)

    def product(self, dense: Tensor) -> Tensor:
        """(columns, width) to (rows, width)."""
        if self.on_gpu:
            parts = (self._segments, self._columns, self._values)
            return kernels.product(*parts, dense.unsqueeze(1), self.shape[0]).squeeze(1)
        # On a CPU three times as fast as `csr @ dense` (benchmarks/sparse_kernels.py).
        return F.embedding_bag(
            self._columns,
            dense,
            self._offsets,
            mode="sum",
            include_last_offset=True,
            per_sample_weights=self._values,
        )

    def row_maximum(self, values: Tensor) -> Tensor:
        """The largest entry that each row would sum: (columns, width) to (rows, width)."""
        if self.on_gpu:
            return kernels.largest(self._offsets, self._columns, values)
        gathered = values[self._columns]
        return torch.segment_reduce(gathered, "max", offsets=self._offsets.long(), axis=0)


class _OnDevice(SparseMatrix):
    """A sparse matrix from arrays that lie on the device."""

    def __init__(self, rows: Tensor, columns: Tensor, values: Tensor, shape: tuple[int, int]) -> None:
        self.shape, self.device = shape, rows.device
        counts = torch.bincount(rows, minlength=shape[0])
        self._offsets = F.pad(counts.cumsum(0), (1, 0)).int()
        self._columns, self._values = columns.int(), values
        self._segments = kernels.cut(self._offsets.cpu().numpy(), self.device)


class SymmetricMatrix(SparseMatrix):
    """A sparse matrix that is its own transpose."""

    def __init__(self, matrix: scipy.sparse.csr_matrix, device: torch.device) -> None:
        super().__init__(matrix, device, transposed=self)

    def scaled_product(self, scale: Tensor, dense: Tensor, finish: kernels.Finish | None = None) -> Tensor:
        """diag(scale) @ self @ diag(scale) @ dense: (pack, rows) and (rows, pack, width) to the latter.

        On a GPU, in one pass; ``finish`` is what a hidden layer does after it.
        """
        parts = (self._segments, self._columns, self._values)
        return kernels.product(*parts, dense, self.shape[0], scale.contiguous(), finish)

    @cached_property
    def attention(self) -> tuple[Tensor, Tensor, Tensor]:
        """What the kernels of attention go by: where rows begin, their entries, the longest rows first."""
        length = self._offsets[1:] - self._offsets[:-1]
        return self._offsets, self._columns, length.argsort(descending=True, stable=True).int()

    def rows(self, chosen: Tensor, weights: Tensor) -> RowSlice | _RowsOnDevice:
        """For each seed of a pack its chosen rows (pack, rows), entries weighed by column (pack, columns)."""
        if self.on_gpu:
            return _RowsOnDevice(self._offsets, self._columns, weights.contiguous(), chosen)
        pack, count = chosen.shape
        chosen = chosen.flatten()
        start = self._offsets[chosen].long()
        length = self._offsets[chosen + 1].long() - start
        end = length.cumsum(0)
        row = torch.repeat_interleave(length)
        entry = torch.arange(len(row), device=self.device) + (start - end + length)[row]
        column, seed = self._columns[entry].long(), row // count
        shape = (pack * count, self.shape[1] * pack)
        return RowSlice(row, end - length, column * pack + seed, weights[seed, column], shape)


@dataclass(frozen=True)
class RowSlice:
    """Some rows of a sparse matrix, chosen anew in every step; column c of seed s is c * pack + s."""

    row: Tensor  # (entries,)
    start: Tensor  # (rows,) where each row's entries begin
    column: Tensor  # (entries,)
    value: Tensor  # (entries,)
    shape: tuple[int, int]

    @property
    def transposed(self) -> _RowSliceTransposed:
        return _RowSliceTransposed(self)

    def product(self, dense: Tensor) -> Tensor:
        return F.embedding_bag(self.column, dense, self.start, mode="sum", per_sample_weights=self.value)


@dataclass(frozen=True)
class _RowSliceTransposed:
    transposed: RowSlice

    def product(self, dense: Tensor) -> Tensor:
        part = self.transposed
        result = dense.new_zeros(part.shape[1], dense.shape[1])
        return result.index_add_(0, part.column, dense[part.row] * part.value.unsqueeze(-1))


@dataclass(frozen=True)
class _RowsOnDevice:
    """The same on a GPU, without looking at how many entries there are."""

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
    """A constant dense matrix behind the same two operations."""

    def __init__(self, matrix: Tensor) -> None:
        self._matrix = matrix
        self.shape = (matrix.shape[0], matrix.shape[1])

    @property
    def transposed(self) -> DenseMatrix:
        return DenseMatrix(self._matrix.T)

    def product(self, dense: Tensor) -> Tensor:
        return self._matrix @ dense


class SeedwiseMatrix:
    """One sparse matrix a seed of the pack, all of one shape, multiplied in one product."""

    def __init__(self, matrices: list[scipy.sparse.csr_matrix], device: torch.device) -> None:
        pack = len(matrices)
        rows, columns = matrices[0].shape
        blocks = []
        for seed, matrix in enumerate(matrices):
            # Column c of seed s stands at c * pack + s: the pack axis lies beside the columns.
            indices = matrix.indices.astype(np.int64) * pack + seed
            blocks.append(
                scipy.sparse.csr_matrix((matrix.data, indices, matrix.indptr), shape=(rows, columns * pack))
            )
        self.rows, self.columns, self.pack = rows, columns, pack
        self.stacked = SparseMatrix(scipy.sparse.vstack(blocks, format="csr"), device)

    @classmethod
    def from_transposed(cls, dense: Tensor) -> SeedwiseMatrix:
        """From each seed's transposed matrix (columns, pack, rows), dense and on the device."""
        matrix = cls.__new__(cls)
        matrix.columns, matrix.pack, matrix.rows = dense.shape
        flat = dense.flatten(0, 1)
        column, row = flat.nonzero().unbind(1)
        value = flat[column, row]
        row = row + (column % matrix.pack) * matrix.rows
        shape = (matrix.pack * matrix.rows, len(flat))
        by_row = row.argsort(stable=True)
        matrix.stacked = _OnDevice(row[by_row], column[by_row], value[by_row], shape)
        matrix.stacked.transposed = _OnDevice(column, row, value, shape[::-1])
        return matrix
