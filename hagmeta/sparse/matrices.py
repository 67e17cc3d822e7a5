"""Constant matrices with the fastest product on each device."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from hagmeta.sparse.backend import Backend
from hagmeta.sparse.fixed import FixedInputsOnGpu
from hagmeta.sparse.plain_matrix import PlainSparseMatrix

DENSE_SHARE = 0.3  # of entries that are not 0; with more of them, a GPU multiplies dense matrices


def _compiled(matrix: scipy.sparse.csr_matrix, device: torch.device) -> Backend:
    """Return the rows of ``matrix`` for the products of ``device``."""
    # Imported only where they are used: Numba takes time, and Triton needs a GPU.
    if device.type == "cpu":
        from hagmeta.sparse.numba.backend import NumbaBackend

        return NumbaBackend(matrix)
    from hagmeta.sparse.triton.backend import TritonBackend

    return TritonBackend.of(matrix, device)


class SparseMatrix:
    """A constant sparse matrix."""

    def __init__(self, matrix: scipy.sparse.csr_matrix, device: torch.device) -> None:
        self._source = matrix
        self.shape: tuple[int, int] = matrix.shape
        self.device = device
        self.rows = _compiled(matrix, device)
        self.seed_axis = self.rows.seed_axis
        if self.on_gpu:  # build it now: built inside a vmap or a capture, it would not outlive that
            _ = self.columns

    @cached_property
    def columns(self) -> Backend:
        """Return the rows of the transposed matrix."""
        return _compiled(self._source.T.tocsr(), self.device)

    @property
    def on_gpu(self) -> bool:
        return self.device.type == "cuda"

    @property
    def leaves_out_rows(self) -> bool:
        """Return whether products compute only the rows that are needed."""
        return self.rows.leaves_out_rows

    @property
    def transposed(self) -> SparseMatrix:
        """Return the transposed matrix. It is not cached: a reference cycle would delay its release."""
        return _FromRows(self.shape[::-1], self.device, self.columns, self.rows)

    def multiply(self, dense: Tensor, needed: Tensor | None = None, transposed: bool = False) -> Tensor:
        """Multiply the values of a pack, (columns, width) of each seed, or the transposed matrix with them.

        Rows of the matrix that are not ``needed`` (pack, rows) count as 0 where the backend leaves them out.
        """
        if transposed:
            return self.columns.product_skipping_zeros(dense, needed)
        return self.rows.product(dense, left=needed)

    def product(self, dense: Tensor, transposed: bool = False) -> Tensor:
        """Multiply the values (columns, width) of one seed, or the transposed matrix with them."""
        packed = dense.unsqueeze(self.seed_axis)
        return self.multiply(packed, transposed=transposed).squeeze(self.seed_axis)


class _FromRows(SparseMatrix):
    """A sparse matrix whose rows and columns are already on the device."""

    def __init__(self, shape: tuple[int, int], device: torch.device, rows: Backend, columns: Backend) -> None:
        self.shape, self.device = shape, device
        self.rows, self.columns, self.seed_axis = rows, columns, rows.seed_axis


class SymmetricMatrix(SparseMatrix):
    """A sparse matrix that is its own transpose."""

    @property
    def columns(self) -> Backend:
        return self.rows


class DenseMatrix:
    """A constant dense matrix with the interface of ``SparseMatrix``."""

    seed_axis, leaves_out_rows = 1, False

    def __init__(self, dense: Tensor) -> None:
        self.dense = dense
        self.shape = (dense.shape[0], dense.shape[1])

    @property
    def transposed(self) -> DenseMatrix:
        return DenseMatrix(self.dense.T)

    def multiply(self, dense: Tensor, needed: Tensor | None = None, transposed: bool = False) -> Tensor:
        matrix = self.dense.T if transposed else self.dense
        if dense.is_cuda:
            dense = dense.contiguous() if transposed else dense
            return (matrix @ dense.flatten(1)).unflatten(1, dense.shape[1:])
        # Members are multiplied one by one, so that no bit of a result depends on the pack.
        return torch.stack([matrix @ seed.contiguous() for seed in dense.unbind(1)], 1)

    def product(self, dense: Tensor) -> Tensor:
        return self.dense @ dense


class SeedwiseMatrix:
    """One sparse matrix per seed of a pack, all of the same shape, multiplied in one product."""

    def __init__(self, matrices: list[scipy.sparse.csr_matrix], device: torch.device) -> None:
        pack = len(matrices)
        rows, columns = matrices[0].shape
        blocks = []
        for seed, matrix in enumerate(matrices):
            indices = matrix.indices.astype(np.int64)
            # On a GPU, column c of seed s is at c * pack + s, with the pack axis next to the columns.
            indices = seed * columns + indices if device.type == "cpu" else indices * pack + seed
            blocks.append(
                scipy.sparse.csr_matrix((matrix.data, indices, matrix.indptr), shape=(rows, columns * pack))
            )
        self.rows, self.columns, self.pack = rows, columns, pack
        self.stacked = SparseMatrix(scipy.sparse.vstack(blocks, format="csr"), device)

    @staticmethod
    def from_transposed(dense: Tensor) -> SeedwiseMatrix | DenseSeedwiseMatrix:
        """Build it from the transposed matrices (columns, pack, rows) of all seeds, dense on the GPU."""
        from hagmeta.sparse.triton.backend import TritonBackend

        used = dense.any(0).any(0).nonzero().squeeze(-1)
        if int(dense.count_nonzero()) > DENSE_SHARE * len(dense) * dense.shape[1] * len(used):
            return DenseSeedwiseMatrix(dense, used)
        matrix = SeedwiseMatrix.__new__(SeedwiseMatrix)
        matrix.columns, matrix.pack, matrix.rows = dense.shape
        flat = dense.flatten(0, 1)
        column, row = flat.nonzero().unbind(1)
        value = flat[column, row]
        row = row + (column % matrix.pack) * matrix.rows
        shape = (matrix.pack * matrix.rows, len(flat))
        by_row = row.argsort(stable=True)
        matrix.stacked = _FromRows(
            shape,
            dense.device,
            TritonBackend.of_entries(row[by_row], column[by_row], value[by_row], shape[0]),
            TritonBackend.of_entries(column, row, value, shape[1]),
        )
        return matrix

    def collect(self, dense: Tensor) -> Tensor:
        """Multiply: (columns, pack, width) to (pack, rows, width)."""
        ordered = dense if self.stacked.on_gpu else dense.movedim(1, 0)
        return self.stacked.product(ordered.flatten(0, 1)).unflatten(0, (self.pack, self.rows))

    def spread(self, dense: Tensor) -> Tensor:
        """Multiply by the transposed matrix: (pack, rows, width) to (columns, pack, width)."""
        product = self.stacked.product(dense.flatten(0, 1), transposed=True)
        if self.stacked.on_gpu:
            return product.unflatten(0, (self.columns, self.pack))
        return product.unflatten(0, (self.pack, self.columns)).movedim(0, 1)


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


class EdgeIndex:
    """All directed edges and self-loops as incidence matrices, so that gather and sum are products."""

    def __init__(
        self,
        loops: scipy.sparse.csr_matrix,
        device: torch.device,
        matrix: type[SparseMatrix] | type[PlainSparseMatrix] = SparseMatrix,
    ) -> None:
        count = loops.nnz
        number = np.arange(count, dtype=np.int64)
        ones = np.ones(count, dtype=np.float32)
        shape = (loops.shape[0], count)
        self.into = matrix(scipy.sparse.csr_matrix((ones, number, loops.indptr), shape=shape), device)
        # The adjacency matrix is symmetric, so edges out of a node are the reverses of edges into it.
        numbered = scipy.sparse.csr_matrix((number + 1, loops.indices, loops.indptr), shape=loops.shape)
        reverse = numbered.T.tocsr().data - 1
        self.out_of = matrix(scipy.sparse.csr_matrix((ones, reverse, loops.indptr), shape=shape), device)
