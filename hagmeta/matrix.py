"""Constant matrices times the variables of a pack of seeds.

A method multiplies for one seed. Under ``torch.func.vmap`` the pack's columns are laid side by side,
so that ten seeds are one product of ten times the width.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse
import torch
import torch.nn.functional as F
from torch import Tensor


class SparseMatrix:
    """A constant sparse matrix, in the layout that is fastest on its device."""

    def __init__(self, matrix: scipy.sparse.csr_matrix, device: torch.device) -> None:
        matrix.sort_indices()
        self._source = matrix
        self.shape: tuple[int, int] = matrix.shape
        self.device = device
        self._offsets = torch.from_numpy(matrix.indptr.astype(np.int32)).to(device)
        self._columns = torch.from_numpy(matrix.indices.astype(np.int32)).to(device)
        weighted = bool((matrix.data != 1).any())
        self._values = torch.from_numpy(matrix.data.astype(np.float32)).to(device) if weighted else None

    @cached_property
    def transposed(self) -> SparseMatrix:
        return SparseMatrix(self._source.T.tocsr(), self.device)

    def product(self, dense: Tensor) -> Tensor:
        """(columns, width) to (rows, width)."""
        if self.device.type == "cuda":
            return self._csr @ dense
        # On a CPU three times as fast as `csr @ dense` (benchmarks/sparse_kernels.py).
        return F.embedding_bag(
            self._columns,
            dense,
            self._offsets,
            mode="sum",
            include_last_offset=True,
            per_sample_weights=self._values,
        )

    @cached_property
    def _csr(self) -> Tensor:
        values = torch.ones_like(self._columns, dtype=torch.float32) if self._values is None else self._values
        return torch.sparse_csr_tensor(
            self._offsets, self._columns, values, self.shape, check_invariants=False
        )


class SymmetricMatrix(SparseMatrix):
    """A sparse matrix that is its own transpose."""

    @property
    def transposed(self) -> SparseMatrix:  # type: ignore[override]
        return self


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
        self.rows, self.pack = rows, pack
        self.stacked = SparseMatrix(scipy.sparse.vstack(blocks, format="csr"), device)


def matmul(matrix: SparseMatrix | DenseMatrix | SeedwiseMatrix, dense: Tensor) -> Tensor:
    """``matrix @ dense`` (columns, width), differentiable in ``dense`` and written for one seed."""
    result: Tensor
    if isinstance(matrix, SeedwiseMatrix):
        result = _SeedwiseProduct.apply(matrix, dense)
    else:
        result = _Product.apply(matrix, dense)
    return result


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(matrix: Any, dense: Tensor) -> Tensor:
        return matrix.product(dense)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.matrix = inputs[0]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor]:
        return None, _Product.apply(ctx.matrix.transposed, grad.contiguous())

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], matrix: Any, dense: Tensor) -> tuple[Tensor, int]:
        side_by_side = dense.movedim(in_dims[1], 1)  # (columns, pack, width)
        product = _Product.apply(matrix, side_by_side.flatten(1))
        return product.unflatten(1, side_by_side.shape[1:]), 1


class _SeedwiseProduct(torch.autograd.Function):
    @staticmethod
    def forward(matrix: SeedwiseMatrix, dense: Tensor) -> Tensor:
        raise RuntimeError("a SeedwiseMatrix is multiplied under vmap over its pack")

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None: ...

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any: ...

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], matrix: SeedwiseMatrix, dense: Tensor) -> tuple[Tensor, int]:
        rows = dense.movedim(in_dims[1], 1).flatten(0, 1)  # (columns * pack, width)
        product = _Product.apply(matrix.stacked, rows)
        return product.unflatten(0, (matrix.pack, matrix.rows)), 0
