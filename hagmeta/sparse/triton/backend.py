"""Sparse products on a GPU, compiled by Triton. Seeds come second, next to the columns of each seed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import scipy.sparse
import torch
import torch.nn.functional as F
from torch import Tensor

from hagmeta.sparse.backend import Finish
from hagmeta.sparse.triton import attention, kernels


class TritonBackend:
    """The rows of a sparse matrix on a GPU."""

    seed_axis, leaves_out_rows = 1, False

    def __init__(
        self, offsets: Tensor, columns: Tensor, values: Tensor | None, segments: kernels.Segments
    ) -> None:
        self._offsets = offsets  # (rows + 1,)
        self._columns = columns  # (entries,)
        self._values = values  # (entries,); None if all are 1
        self._segments = segments

    @staticmethod
    def of(matrix: scipy.sparse.csr_matrix, device: torch.device) -> TritonBackend:
        """Return the rows of a matrix on the host."""
        matrix.sort_indices()
        weighted = bool((matrix.data != 1).any())
        return TritonBackend(
            torch.from_numpy(matrix.indptr.astype(np.int32)).to(device),
            torch.from_numpy(matrix.indices.astype(np.int32)).to(device),
            torch.from_numpy(matrix.data.astype(np.float32)).to(device) if weighted else None,
            kernels.cut(matrix.indptr, device),
        )

    @staticmethod
    def of_entries(row: Tensor, column: Tensor, value: Tensor, rows: int) -> TritonBackend:
        """Return the rows of a matrix on the GPU. Its entries are sorted by row."""
        offsets = F.pad(torch.bincount(row, minlength=rows).cumsum(0), (1, 0)).int()
        segments = kernels.cut(offsets.cpu().numpy(), row.device)
        return TritonBackend(offsets, column.int(), value, segments)

    def product(
        self,
        dense: Tensor,
        left: Tensor | None = None,
        right: Tensor | None = None,
        finish: Finish | None = None,
    ) -> Tensor:
        if left is None:  # without weights, the columns of all seeds are those of one wide matrix
            return self._multiply(dense.flatten(1).unsqueeze(1)).squeeze(1).unflatten(1, dense.shape[1:])
        if finish is not None:
            key = None if finish.key is None else finish.key.contiguous()
            finish = Finish(finish.bias.contiguous(), key, finish.threshold.contiguous())
        return self._multiply(dense, left.contiguous(), finish)

    def _multiply(self, dense: Tensor, scale: Tensor | None = None, finish: Finish | None = None) -> Tensor:
        count = len(self._offsets) - 1
        return kernels.product(self._segments, self._columns, self._values, dense, count, scale, finish)

    def product_skipping_zeros(self, dense: Tensor, needed: Tensor | None = None) -> Tensor:
        return self.product(dense)

    def row_maximum(self, values: Tensor) -> Tensor:
        largest = kernels.largest(self._offsets, self._columns, values.flatten(1))
        return largest.unflatten(1, values.shape[1:])

    def at_rows(self, scale: Tensor, dense: Tensor, chosen: Tensor) -> Tensor:
        summed = kernels.at_rows(self._offsets, self._columns, scale.contiguous(), dense, chosen)
        return (summed * _factors(scale, chosen)).movedim(0, 1)

    def from_rows(self, scale: Tensor, part: Tensor, chosen: Tensor) -> Tensor:
        weighed = part.movedim(1, 0) * _factors(scale, chosen)
        return kernels.from_rows(self._offsets, self._columns, scale.contiguous(), weighed, chosen)

    def attends(self, width: int, heads: int) -> bool:
        return attention.fits(width, heads)

    @cached_property
    def _by_length(self) -> Tensor:
        """Return the rows, the longest first."""
        length = self._offsets[1:] - self._offsets[:-1]
        return length.argsort(descending=True, stable=True).int()

    def attention(
        self, visible: Tensor, mapped: Tensor, source: Tensor, target: Tensor
    ) -> tuple[Tensor, Tensor]:
        given = (each.contiguous() for each in (visible, mapped, source, target))
        return attention.forward(self._offsets, self._columns, self._by_length, *given)

    def attention_gradient(
        self, visible: Tensor, known: Sequence[Tensor], grad: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        visible, grad, *known = (each.contiguous() for each in (visible, grad, *known))
        rows = self._offsets, self._columns, self._by_length
        return attention.backward(*rows, visible, known, grad)


def _factors(scale: Tensor, chosen: Tensor) -> Tensor:
    """Return the weights (pack, chosen, 1) of the chosen rows."""
    return scale.gather(1, chosen).unsqueeze(-1)
