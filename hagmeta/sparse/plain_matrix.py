"""Constant matrices of plain mode. Their products are ordinary torch operations with autograd."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property

import numpy as np
import scipy.sparse
import torch
from torch import Tensor


class PlainMatrix(ABC):
    """A constant matrix that multiplies the values of one seed."""

    @abstractmethod
    def product(self, dense: Tensor) -> Tensor:
        """Multiply (columns, width) to (rows, width). The product is differentiable any number of times."""

    @property
    @abstractmethod
    def transposed(self) -> PlainMatrix:
        """Return the transposed matrix."""


class PlainDenseMatrix(PlainMatrix):
    """A dense matrix."""

    def __init__(self, matrix: Tensor) -> None:
        self._matrix = matrix

    @property
    def transposed(self) -> PlainDenseMatrix:
        return PlainDenseMatrix(self._matrix.T)

    def product(self, dense: Tensor) -> Tensor:
        return self._matrix @ dense


class PlainSparseMatrix(PlainMatrix):
    """A sparse matrix in COO format."""

    def __init__(self, matrix: scipy.sparse.csr_matrix, device: torch.device) -> None:
        entries = matrix.tocoo()
        places = torch.from_numpy(np.stack([entries.row, entries.col]).astype(np.int64))
        values = torch.from_numpy(entries.data.astype(np.float32))
        tensor = torch.sparse_coo_tensor(places, values, matrix.shape, check_invariants=True)
        self._matrix = tensor.coalesce().to(device)

    @cached_property
    def transposed(self) -> PlainSparseMatrix:
        other = PlainSparseMatrix.__new__(PlainSparseMatrix)
        other._matrix = self._matrix.t().coalesce()
        return other

    def product(self, dense: Tensor) -> Tensor:
        return torch.sparse.mm(self._matrix.to(dense.dtype), dense)

    def row_maximum(self, values: Tensor) -> Tensor:
        """Return the maximum of ``values`` (columns, width) over each row; not differentiable."""
        row, column = self._matrix.indices()
        gathered = values.detach().index_select(0, column)
        lowest = gathered.new_full((self._matrix.shape[0], values.shape[1]), -torch.inf)
        return lowest.scatter_reduce(0, row.unsqueeze(-1).expand_as(gathered), gathered, "amax")
