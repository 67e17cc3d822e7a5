"""Constant matrices of plain mode: their products are ordinary operations of torch, which autograd knows."""

from __future__ import annotations

from abc import ABC, abstractmethod

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
        self.shape: tuple[int, int] = matrix.shape
        self._row, self._column = (
            torch.from_numpy(index.astype(np.int64)).to(device) for index in (entries.row, entries.col)
        )
        self._value = torch.from_numpy(entries.data.astype(np.float32)).to(device)

    @property
    def transposed(self) -> PlainSparseMatrix:
        other = PlainSparseMatrix.__new__(PlainSparseMatrix)
        other.shape = self.shape[::-1]
        other._row, other._column, other._value = self._column, self._row, self._value
        return other

    def product(self, dense: Tensor) -> Tensor:
        gathered = dense.index_select(0, self._column) * self._value.unsqueeze(-1)  # (entries, width)
        return dense.new_zeros(self.shape[0], dense.shape[1]).index_add(0, self._row, gathered)

    def row_maximum(self, values: Tensor) -> Tensor:
        """The largest of the values (columns, width) that each row sums; not differentiable."""
        gathered = values.detach().index_select(0, self._column)
        lowest = gathered.new_full((self.shape[0], values.shape[1]), -torch.inf)
        return lowest.scatter_reduce(0, self._row.unsqueeze(-1).expand_as(gathered), gathered, "amax")
