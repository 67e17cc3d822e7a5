"""Differentiable products of constant matrices with the variables of a pack of seeds.

Methods multiply for one seed. Under ``torch.func.vmap``, the columns of all seeds are placed side by side, so
ten seeds become one product of ten times the width.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from hagmeta.packs.device import gpu_usable
from hagmeta.packs.function import Function
from hagmeta.packs.sums import sum_rows
from hagmeta.sparse.fixed import FixedInputs, FixedInputsOnGpu
from hagmeta.sparse.matrices import (
    DenseMatrix,
    DenseSeedwiseMatrix,
    SeedwiseMatrix,
    SparseMatrix,
    SymmetricMatrix,
)
from hagmeta.sparse.plain_matrix import PlainMatrix, PlainSparseMatrix

if TYPE_CHECKING or gpu_usable():
    from hagmeta.sparse import attention_kernels, fixed_kernels, kernels


def matmul(
    matrix: SparseMatrix | DenseMatrix | SeedwiseMatrix | DenseSeedwiseMatrix | PlainMatrix,
    dense: Tensor,
    needed: Tensor | None = None,
) -> Tensor:
    """Return ``matrix @ dense`` for one seed; differentiable in ``dense`` (columns, width).

    Rows where ``needed`` (rows,) is 0 may be left out. They are 0 then.
    """
    if isinstance(matrix, PlainMatrix):
        return matrix.product(dense)
    result: Tensor
    if isinstance(matrix, SparseMatrix) and not matrix.on_gpu:
        from hagmeta.sparse import cpu_products

        return cpu_products.matmul(matrix, dense, needed)
    if isinstance(matrix, SeedwiseMatrix) and matrix.seed_first:
        from hagmeta.sparse import cpu_products

        return cpu_products.seedwise(matrix, dense, False)
    if isinstance(matrix, SeedwiseMatrix | DenseSeedwiseMatrix):
        result = _SeedwiseProduct.apply(matrix, dense, False)
    else:
        result = _Product.apply(matrix, dense)
    return result


def matmul_transposed(matrix: SeedwiseMatrix | PlainSparseMatrix, dense: Tensor) -> Tensor:
    """Return ``matrix.T @ dense`` for the matrix of one seed, with ``dense`` (rows, width)."""
    if isinstance(matrix, PlainSparseMatrix):
        return matrix.transposed.product(dense)
    if matrix.seed_first:
        from hagmeta.sparse import cpu_products

        return cpu_products.seedwise(matrix, dense, True)
    result: Tensor = _SeedwiseProduct.apply(matrix, dense, True)
    return result


def row_maximum(incidence: SparseMatrix | PlainSparseMatrix, values: Tensor) -> Tensor:
    """Return the maximum of ``values`` (columns, width) over each row; not differentiable."""
    if isinstance(incidence, PlainSparseMatrix):
        return incidence.row_maximum(values)
    result: Tensor = _RowMaximum.apply(incidence, values)
    return result


def _side_by_side(function: type[torch.autograd.Function], matrix: Any, dense: Tensor) -> tuple[Tensor, int]:
    """Apply ``function`` to (columns, pack, width) at once; return the result and its pack axis."""
    return function.apply(matrix, dense.flatten(1)).unflatten(1, dense.shape[1:]), 1


class _RowMaximum(Function):
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
        return _side_by_side(_RowMaximum, incidence, values.movedim(in_dims[1], 1))


class _Product(Function):
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
        dense = dense.movedim(in_dims[1], 1)
        if isinstance(matrix, DenseMatrix) and not dense.is_cuda:
            # Members are multiplied one by one, so that no bit of a result depends on the pack.
            return torch.stack([_Product.apply(matrix, each.contiguous()) for each in dense.unbind(1)], 1), 1
        return _side_by_side(_Product, matrix, dense)


def aggregate(adjacency: SymmetricMatrix, scale: Tensor, hidden: Tensor) -> Tensor:
    """Return diag(scale) @ adjacency @ diag(scale) @ hidden. ``scale`` (rows,) is constant."""
    if not adjacency.on_gpu:
        from hagmeta.sparse import cpu_products

        return cpu_products.aggregate(adjacency, scale, hidden)
    result: Tensor = _Aggregate.apply(adjacency, scale, hidden)
    return result


def aggregate_at(adjacency: SymmetricMatrix, scale: Tensor, hidden: Tensor, rows: Tensor) -> Tensor:
    """Return ``aggregate`` for some rows (rows,) only."""
    if not len(rows):
        return hidden[:0]
    if not adjacency.on_gpu:
        from hagmeta.sparse import cpu_products

        return cpu_products.aggregate_at(adjacency, scale, hidden, rows)
    result: Tensor = _AggregateAt.apply(adjacency, scale, hidden, rows, False)
    return result


class _Aggregate(Function):
    @staticmethod
    def forward(adjacency: SymmetricMatrix, scale: Tensor, hidden: Tensor) -> Tensor:
        if hidden.dim() == 2:  # one seed without `vmap`
            return _Aggregate.forward(adjacency, scale.unsqueeze(1), hidden.unsqueeze(1)).squeeze(1)
        return adjacency.scaled_product(scale.T, hidden)

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
    threshold: Tensor,
    needed: Tensor | None = None,
) -> Tensor:
    """Return dropout(relu(aggregate + bias)) without scaling, in one pass.

    Rows where ``needed`` (rows,) is 0 may be left out. They are 0 then.
    """
    if not adjacency.on_gpu:
        from hagmeta.sparse import cpu_products

        return cpu_products.hidden_layer(adjacency, scale, mapped, bias, key, threshold, needed)
    result: Tensor = _HiddenLayer.apply(adjacency, scale, mapped, bias, key, threshold)
    return result


class _HiddenLayer(Function):
    @staticmethod
    def forward(
        adjacency: SymmetricMatrix,
        scale: Tensor,
        mapped: Tensor,
        bias: Tensor,
        key: Tensor | None,
        threshold: Tensor,
    ) -> Tensor:
        finish = kernels.Finish(bias.contiguous(), key, threshold.expand(len(bias)).contiguous())
        return adjacency.scaled_product(scale.T, mapped, finish)

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
        threshold: Tensor,
    ) -> tuple[Tensor, int]:
        scale, mapped = scale.movedim(in_dims[1], 1), mapped.movedim(in_dims[2], 1)
        return _HiddenLayer.apply(adjacency, scale, mapped, bias.movedim(in_dims[3], 0), key, threshold), 1


def attend(
    adjacency: SymmetricMatrix, visible: Tensor, mapped: Tensor, source: Tensor, target: Tensor
) -> Tensor:
    """Return the attention (nodes, width) over visible neighbours, in one pass.

    The score of an edge is the sum of ``source`` and ``target`` (nodes, heads) at its ends. The function can
    be differentiated only once.
    """
    if not adjacency.on_gpu:
        from hagmeta.sparse import cpu_products

        return cpu_products.attend(adjacency, visible, mapped, source, target)
    result: Tensor = _Attention.apply(adjacency, visible, mapped, source, target)[0]
    return result


class _Attention(Function):
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


class _UnderVmap(Function):
    """Base class of functions with a matrix per seed, which run only under ``vmap`` over a pack.

    A gradient inside ``vmap`` (MAML's inner steps) uses ``backward``, which is the transposed product. A
    gradient outside differentiates the operations of ``vmap``.
    """

    @staticmethod
    def forward(*arguments: Any) -> Tensor:
        raise RuntimeError("this function runs only under vmap over a pack")


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
        info: Any,
        in_dims: tuple[Any, ...],
        matrix: SeedwiseMatrix | DenseSeedwiseMatrix,
        dense: Tensor,
        transposed: bool,
    ) -> tuple[Tensor, int]:
        if isinstance(matrix, DenseSeedwiseMatrix):
            axis = 0 if transposed else 1
            return _OfPack.apply(matrix, dense.movedim(in_dims[1], axis), not transposed), 1 - axis
        if transposed:
            rows = dense.movedim(in_dims[1], 0).flatten(0, 1)  # (pack * rows, width)
            product = _Product.apply(matrix.stacked.transposed, rows)
            return product.unflatten(0, (matrix.columns, matrix.pack)), 1
        columns = dense.movedim(in_dims[1], 1).flatten(0, 1)  # (columns * pack, width)
        product = _Product.apply(matrix.stacked, columns)
        return product.unflatten(0, (matrix.pack, matrix.rows)), 0


class _OfPack(Function):
    """``spread`` of a pack, or its transpose, ``collect``."""

    @staticmethod
    def forward(matrix: FixedInputs | DenseSeedwiseMatrix, dense: Tensor, transposed: bool) -> Tensor:
        return matrix.collect(dense) if transposed else matrix.spread(dense)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.matrix, _, ctx.transposed = inputs

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor, None]:
        return None, _OfPack.apply(ctx.matrix, grad, not ctx.transposed), None


def fixed_product(fixed: FixedInputs, weight: Tensor) -> Tensor:
    """Multiply propagated inputs: (inputs, width) to (nodes, width); 0 for nodes that a seed cannot see."""
    result: Tensor = _FixedProduct.apply(fixed, weight, False)
    return result


def fixed_hidden_layer(
    fixed: FixedInputsOnGpu,
    weight: Tensor,
    bias: Tensor,
    key: Tensor | None,
    threshold: Tensor,
    needed: Tensor | None,
) -> Tensor:
    """Return dropout(relu(product + bias)) without scaling, on a GPU.

    Rows where ``needed`` (nodes,) is 0 are left out.
    """
    result: Tensor = _FixedHiddenLayer.apply(fixed, weight, bias, key, threshold, needed)
    return result


def near(adjacency: SymmetricMatrix, scale: Tensor, nodes: Tensor) -> Tensor:
    """Return the weights ``scale`` (nodes,), with 0 for all but the neighbours of some visible nodes."""
    marked: Tensor = _AggregateAt.apply(adjacency, scale, scale[nodes].unsqueeze(-1), nodes, True)
    return torch.where(marked.squeeze(-1) > 0, scale, 0)


class _FixedProduct(_UnderVmap):
    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.fixed, _, ctx.transposed = inputs

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor, None]:
        return None, _FixedProduct.apply(ctx.fixed, grad, not ctx.transposed), None

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[Any, ...], fixed: FixedInputs, dense: Tensor, transposed: bool
    ) -> tuple[Tensor, int]:
        axis = 1 if transposed else 0
        return _OfPack.apply(fixed, dense.movedim(in_dims[1], axis), transposed), 1 - axis


class _FixedHiddenLayer(_UnderVmap):
    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.fixed = inputs[0]
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor, Tensor, None, None, None]:
        (output,) = ctx.saved_tensors
        grad = torch.ops.aten.threshold_backward(grad, output, 0)
        return None, _FixedProduct.apply(ctx.fixed, grad, True), sum_rows(grad), None, None, None

    @staticmethod
    def vmap(
        info: Any,
        in_dims: tuple[Any, ...],
        fixed: FixedInputsOnGpu,
        weight: Tensor,
        bias: Tensor,
        key: Tensor | None,
        threshold: Tensor,
        needed: Tensor | None,
    ) -> tuple[Tensor, int]:
        weights, bias = weight.movedim(in_dims[1], 0), bias.movedim(in_dims[2], 0)
        chosen = None if needed is None else fixed.chosen(needed.movedim(in_dims[5], 0))
        return _SpreadHidden.apply(fixed, weights, bias, key, threshold, chosen), 1


class _SpreadHidden(Function):
    """The hidden layer of a pack, in one pass over its inputs in each direction."""

    @staticmethod
    def forward(
        fixed: FixedInputsOnGpu,
        weights: Tensor,
        bias: Tensor,
        key: Tensor | None,
        threshold: Tensor,
        chosen: fixed_kernels.Chosen | None,
    ) -> Tensor:
        finish = kernels.Finish(bias.contiguous(), key, threshold.expand(len(bias)).contiguous())
        return fixed.spread(weights, finish, chosen)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.fixed, ctx.chosen = inputs[0], inputs[5]
        ctx.save_for_backward(output)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor, Tensor, None, None, None]:
        weights, bias = ctx.fixed.collect_hidden(grad, *ctx.saved_tensors, ctx.chosen)
        return None, weights, bias, None, None, None
