"""Constant matrices of plain mode: their products are ordinary operations of torch, which autograd knows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property

import numpy as np
import scipy.sparse
import torch
from torch import Tensor


class PlainMatrix(ABC):
    """A constant matrix that multiplies what belongs to one seed."""

    @abstractmethod
    def product(self, dense: Tensor) -> Tensor:
        """(columns, width) to (rows, width), differentiable any number of times."""


class PlainDenseMatrix(PlainMatrix):
    """All its entries."""

    def __init__(self, matrix: Tensor) -> None:
        self._matrix = matrix

    def product(self, dense: Tensor) -> Tensor:
        return self._matrix @ dense


class PlainSparseMatrix(PlainMatrix):
    """The entries that are not zero, each with its row and its column."""

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
        """The largest of the values (columns, width) that each row sums; not differentiable."""
        row, column = self._matrix.indices()
        gathered = values.detach().index_select(0, column)
        lowest = gathered.new_full((self._matrix.shape[0], values.shape[1]), -torch.inf)
        return lowest.scatter_reduce(0, row.unsqueeze(-1).expand_as(gathered), gathered, "amax")
