"""Constant matrices times the variables of a pack of seeds.

A method multiplies for one seed. Under ``torch.func.vmap`` the pack's columns are laid side by side,
so that ten seeds are one product of ten times the width.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

if TYPE_CHECKING or torch.cuda.is_available():
    from hagmeta import attention_kernels, kernels


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


def matmul(matrix: SparseMatrix | DenseMatrix | SeedwiseMatrix, dense: Tensor) -> Tensor:
    """``matrix @ dense`` (columns, width), differentiable in ``dense`` and written for one seed."""
    result: Tensor
    if isinstance(matrix, SeedwiseMatrix):
        result = _SeedwiseProduct.apply(matrix, dense, False)
    else:
        result = _Product.apply(matrix, dense)
    return result


def row_maximum(incidence: SparseMatrix, values: Tensor) -> Tensor:
    """The largest of the values (columns, width) that each row sums; not differentiable."""
    result: Tensor = _RowMaximum.apply(incidence, values)
    return result


class _RowMaximum(torch.autograd.Function):
    @staticmethod
    def forward(incidence: SparseMatrix, values: Tensor) -> Tensor:
        return incidence.row_maximum(values)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.mark_non_differentiable(output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, None]:
        return None, None

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[Any, ...], incidence: SparseMatrix, values: Tensor
    ) -> tuple[Tensor, int]:
        side_by_side = values.movedim(in_dims[1], 1)  # (columns, pack, width)
        largest = _RowMaximum.apply(incidence, side_by_side.flatten(1))
        return largest.unflatten(1, side_by_side.shape[1:]), 1


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


def aggregate(adjacency: SymmetricMatrix, scale: Tensor, hidden: Tensor) -> Tensor:
    """diag(scale) @ adjacency @ diag(scale) @ hidden, for every row; ``scale`` (rows,) is constant."""
    result: Tensor = _Aggregate.apply(adjacency, scale, hidden)
    return result


def aggregate_at(adjacency: SymmetricMatrix, scale: Tensor, hidden: Tensor, rows: Tensor) -> Tensor:
    """The same, for a few rows (rows,) only."""
    result: Tensor = _AggregateAt.apply(adjacency, scale, hidden, rows, False)
    return result


class _Aggregate(torch.autograd.Function):
    @staticmethod
    def forward(adjacency: SymmetricMatrix, scale: Tensor, hidden: Tensor) -> Tensor:
        if adjacency.on_gpu:
            return adjacency.scaled_product(scale.T, hidden)
        scale = scale.unsqueeze(-1)
        scaled = hidden * scale
        return adjacency.product(scaled.flatten(1)).view_as(scaled).mul_(scale)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.adjacency = inputs[0]
        ctx.save_for_backward(inputs[1])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, None, Tensor]:
        return None, None, _Aggregate.apply(ctx.adjacency, *ctx.saved_tensors, grad)

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[Any, ...], adjacency: SymmetricMatrix, scale: Tensor, hidden: Tensor
    ) -> tuple[Tensor, int]:
        side_by_side = hidden.movedim(in_dims[2], 1)  # (rows, pack, width)
        return _Aggregate.apply(adjacency, scale.movedim(in_dims[1], 1), side_by_side), 1


def hidden_layer(
    adjacency: SymmetricMatrix,
    scale: Tensor,
    mapped: Tensor,
    bias: Tensor,
    key: Tensor | None,
    threshold: int,
) -> Tensor:
    """ReLU and dropout of ``aggregate`` plus a bias (width,), unscaled; on a GPU, in one pass."""
    result: Tensor = _HiddenLayer.apply(adjacency, scale, mapped, bias, key, threshold)
    return result


class _HiddenLayer(torch.autograd.Function):
    @staticmethod
    def forward(
        adjacency: SymmetricMatrix,
        scale: Tensor,
        mapped: Tensor,
        bias: Tensor,
        key: Tensor | None,
        threshold: int,
    ) -> Tensor:
        return adjacency.scaled_product(scale.T, mapped, kernels.Finish(bias.contiguous(), key, threshold))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.adjacency = inputs[0]
        ctx.save_for_backward(inputs[1], output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, None, Tensor, Tensor, None, None]:
        scale, output = ctx.saved_tensors
        grad = torch.ops.aten.threshold_backward(grad, output, 0)
        back = _Aggregate.apply(ctx.adjacency, scale, grad)
        return None, None, back, sum_rows(grad), None, None

    @staticmethod
    def vmap(
        info: Any,
        in_dims: tuple[Any, ...],
        adjacency: SymmetricMatrix,
        scale: Tensor,
        mapped: Tensor,
        bias: Tensor,
        key: Tensor | None,
        threshold: int,
    ) -> tuple[Tensor, int]:
        scale, mapped = scale.movedim(in_dims[1], 1), mapped.movedim(in_dims[2], 1)
        return _HiddenLayer.apply(adjacency, scale, mapped, bias.movedim(in_dims[3], 0), key, threshold), 1


def sum_rows(values: Tensor) -> Tensor:
    """(rows, ...) to (...): by a product with ones, in a quarter of the time that `sum` takes."""
    return (values.flatten(1).mT @ values.new_ones(len(values))).view(values.shape[1:])


def attend(
    adjacency: SymmetricMatrix, visible: Tensor, mapped: Tensor, source: Tensor, target: Tensor
) -> Tensor:
    """Attention (nodes, width) among visible neighbours, on a GPU in one pass; it has one derivative only.

    The scores of an edge's ends are ``source`` and ``target`` (nodes, heads).
    """
    result: Tensor = _Attention.apply(adjacency, visible, mapped, source, target)[0]
    return result


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(
        adjacency: SymmetricMatrix, visible: Tensor, mapped: Tensor, source: Tensor, target: Tensor
    ) -> tuple[Tensor, Tensor]:
        by_node = (mapped.contiguous(), source.contiguous(), target.contiguous())
        return attention_kernels.forward(*adjacency.attention, visible.contiguous(), *by_node)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.adjacency = inputs[0]
        ctx.save_for_backward(*inputs[1:], *output)
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[None, None, Tensor, Tensor, Tensor]:
        visible, *known = (tensor.contiguous() for tensor in ctx.saved_tensors)
        offsets, columns, order = ctx.adjacency.attention
        back = attention_kernels.backward(offsets, columns, order, visible, known, grad.contiguous())
        return None, None, *back

    @staticmethod
    def vmap(
        info: Any,
        in_dims: tuple[Any, ...],
        adjacency: SymmetricMatrix,
        visible: Tensor,
        mapped: Tensor,
        source: Tensor,
        target: Tensor,
    ) -> tuple[tuple[Tensor, Tensor], tuple[int, int]]:
        by_node = [x.movedim(axis, 1) for x, axis in zip((mapped, source, target), in_dims[2:], strict=True)]
        return _Attention.apply(adjacency, visible.movedim(in_dims[1], 0), *by_node), (1, 1)


class _UnderVmap(torch.autograd.Function):
    """What differs from seed to seed and is only ever computed for a whole pack, in ``vmap``.

    A gradient that is taken inside of ``vmap`` (MAML's inner steps) comes through ``backward`` and is the
    transposed product; one taken outside goes through what ``vmap`` has computed.
    """

    @staticmethod
    def forward(*arguments: Any) -> Tensor:
        raise RuntimeError("runs under vmap over a pack only")


class _AggregateAt(_UnderVmap):
    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.adjacency, scale, _, rows, ctx.transposed = inputs
        ctx.save_for_backward(scale, rows)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, None, Tensor, None, None]:
        scale, rows = ctx.saved_tensors
        back = _AggregateAt.apply(ctx.adjacency, scale, grad, rows, not ctx.transposed)
        return None, None, back, None, None

    @staticmethod
    def vmap(
        info: Any,
        in_dims: tuple[Any, ...],
        adjacency: SymmetricMatrix,
        scale: Tensor,
        dense: Tensor,
        rows: Tensor,
        transposed: bool,
    ) -> tuple[Tensor, int]:
        scale, rows = scale.movedim(in_dims[1], 0), rows.movedim(in_dims[3], 0)
        chosen = adjacency.rows(rows, scale)
        factor = scale.gather(1, rows).unsqueeze(-1)  # (pack, rows, 1)
        if transposed:
            weighed = (dense.movedim(in_dims[2], 0) * factor).flatten(0, 1)  # (pack * rows, width)
            spread = _Product.apply(chosen.transposed, weighed)
            return spread.unflatten(0, (adjacency.shape[0], len(rows))), 1
        flat = dense.movedim(in_dims[2], 1).flatten(0, 1)  # (nodes * pack, width)
        product = _Product.apply(chosen, flat)
        return product.unflatten(0, rows.shape) * factor, 0


class _SeedwiseProduct(_UnderVmap):
    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.matrix, _, ctx.transposed = inputs

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor, None]:
        return None, _SeedwiseProduct.apply(ctx.matrix, grad, not ctx.transposed), None

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[Any, ...], matrix: SeedwiseMatrix, dense: Tensor, transposed: bool
    ) -> tuple[Tensor, int]:
        if transposed:
            rows = dense.movedim(in_dims[1], 0).flatten(0, 1)  # (pack * rows, width)
            product = _Product.apply(matrix.stacked.transposed, rows)
            return product.unflatten(0, (matrix.columns, matrix.pack)), 1
        columns = dense.movedim(in_dims[1], 1).flatten(0, 1)  # (columns * pack, width)
        product = _Product.apply(matrix.stacked, columns)
        return product.unflatten(0, (matrix.pack, matrix.rows)), 0
