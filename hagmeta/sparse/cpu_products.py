"""Differentiable products on a CPU with Numba, for one seed or for a pack with the seeds first.

``products`` chooses them. Under ``torch.func.vmap``, a pack becomes one call of a compiled function.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from hagmeta.packs.function import Function
from hagmeta.sparse import cpu_attention_kernels, cpu_kernels
from hagmeta.sparse.matrices import SeedwiseMatrix, SparseMatrix, SymmetricMatrix


def matmul(matrix: SparseMatrix, dense: Tensor, needed: Tensor | None = None) -> Tensor:
    """Return ``matrix @ dense``; rows that are not ``needed`` (rows,) are 0."""
    result: Tensor = _Product.apply(matrix, dense, needed, False)
    return result


def seedwise(matrix: SeedwiseMatrix, dense: Tensor, transposed: bool) -> Tensor:
    """Return the product with the matrix of one seed, or with its transpose."""
    result: Tensor = _Seedwise.apply(matrix, dense, transposed)
    return result


def aggregate(adjacency: SymmetricMatrix, scale: Tensor, hidden: Tensor) -> Tensor:
    """Return diag(scale) @ adjacency @ diag(scale) @ hidden."""
    result: Tensor = _Aggregate.apply(adjacency, scale, scale, hidden)
    return result


def aggregate_at(adjacency: SymmetricMatrix, scale: Tensor, hidden: Tensor, rows: Tensor) -> Tensor:
    """Return ``aggregate`` for some rows (rows,) only."""
    result: Tensor = _AggregateAt.apply(adjacency, scale, hidden, rows, False)
    return result


def hidden_layer(
    adjacency: SymmetricMatrix,
    scale: Tensor,
    mapped: Tensor,
    bias: Tensor,
    key: Tensor | None,
    threshold: Tensor,
    needed: Tensor | None = None,
) -> Tensor:
    """Return dropout(relu(aggregate + bias)) without scaling. Without a key, nothing is dropped.

    Rows that are not ``needed`` (rows,) are 0.
    """
    if key is None:
        key, threshold = torch.tensor(0), torch.tensor(0)
    left = scale if needed is None else scale * needed
    tensors = left, scale, mapped, bias, key, threshold.long()
    result: Tensor = _HiddenLayer.apply(adjacency, needed is None, *tensors)
    return result


def neighbourhood(adjacency: SymmetricMatrix, scale: Tensor, nodes: Tensor) -> tuple[Tensor, Tensor]:
    """Mark (nodes,) the visible neighbours of some nodes, and in turn their neighbours."""
    near, far = _Neighbourhood.apply(adjacency, scale, nodes)
    return near, far


def attend(
    adjacency: SymmetricMatrix, visible: Tensor, mapped: Tensor, source: Tensor, target: Tensor
) -> Tensor:
    """Return the attention (nodes, width) over visible neighbours; it can be differentiated once."""
    result: Tensor = _Attention.apply(adjacency, visible, mapped, source, target)[0]
    return result


def _seeds_first(info: Any, tensors: tuple[Tensor, ...], axes: tuple[int | None, ...]) -> list[Tensor]:
    """Move the pack axis of every tensor to the front. A tensor without one is the same for all seeds."""
    return [
        tensor.expand(info.batch_size, *tensor.shape) if axis is None else tensor.movedim(axis, 0)
        for tensor, axis in zip(tensors, axes, strict=True)
    ]


def _packed(*tensors: Tensor) -> tuple[Tensor, ...]:
    return tuple(tensor.unsqueeze(0) for tensor in tensors)


class _Product(Function):
    @staticmethod
    def forward(matrix: SparseMatrix, dense: Tensor, needed: Tensor | None, transposed: bool) -> Tensor:
        if dense.dim() == 2:
            needed = None if needed is None else needed.unsqueeze(0)
            return _Product.forward(matrix, dense.unsqueeze(0), needed, transposed).squeeze(0)
        if not transposed:
            assert matrix.compiled is not None
            return cpu_kernels.product(matrix.compiled, dense, left=needed)
        assert matrix.compiled_columns is not None
        live = cpu_kernels.live_rows(dense, needed)  # gradients of a few nodes have many rows of zeros
        return cpu_kernels.product(matrix.compiled_columns, dense, right=live)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.matrix, _, needed, ctx.transposed = inputs
        ctx.save_for_backward(needed)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor, None, None]:
        return None, _Product.apply(ctx.matrix, grad, *ctx.saved_tensors, not ctx.transposed), None, None

    @staticmethod
    def vmap(
        info: Any,
        in_dims: tuple[Any, ...],
        matrix: SparseMatrix,
        dense: Tensor,
        needed: Tensor | None,
        transposed: bool,
    ) -> tuple[Tensor, int]:
        (dense,) = _seeds_first(info, (dense,), in_dims[1:2])
        if needed is not None:
            (needed,) = _seeds_first(info, (needed,), in_dims[2:3])
        return _Product.apply(matrix, dense, needed, transposed), 0


class _Seedwise(Function):
    @staticmethod
    def forward(*arguments: Any) -> Tensor:
        raise RuntimeError("this function runs only under vmap over a pack")

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.matrix, _, ctx.transposed = inputs

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor, None]:
        return None, _Seedwise.apply(ctx.matrix, grad, not ctx.transposed), None

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[Any, ...], matrix: SeedwiseMatrix, dense: Tensor, transposed: bool
    ) -> tuple[Tensor, int]:
        (dense,) = _seeds_first(info, (dense,), in_dims[1:2])
        product = _Product.apply(matrix.stacked, dense.flatten(0, 1), None, transposed)
        return product.unflatten(0, (matrix.pack, -1)), 0


class _Aggregate(Function):
    """The product diag(left) @ adjacency @ diag(right) @ hidden."""

    @staticmethod
    def forward(adjacency: SymmetricMatrix, left: Tensor, right: Tensor, hidden: Tensor) -> Tensor:
        if hidden.dim() == 2:
            return _Aggregate.forward(adjacency, *_packed(left, right, hidden)).squeeze(0)
        assert adjacency.compiled is not None
        return cpu_kernels.product(adjacency.compiled, hidden, left, right)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.adjacency = inputs[0]
        ctx.save_for_backward(inputs[2], inputs[1])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, None, None, Tensor]:
        return None, None, None, _Aggregate.apply(ctx.adjacency, *ctx.saved_tensors, grad)

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[Any, ...], adjacency: SymmetricMatrix, *tensors: Tensor
    ) -> tuple[Tensor, int]:
        return _Aggregate.apply(adjacency, *_seeds_first(info, tensors, in_dims[1:])), 0


class _AggregateAt(Function):
    @staticmethod
    def forward(
        adjacency: SymmetricMatrix, scale: Tensor, dense: Tensor, rows: Tensor, transposed: bool
    ) -> Tensor:
        if dense.dim() == 2:
            scale, dense, rows = _packed(scale, dense, rows)
            return _AggregateAt.forward(adjacency, scale, dense, rows, transposed).squeeze(0)
        assert adjacency.compiled is not None
        kernel = cpu_kernels.from_rows if transposed else cpu_kernels.at_rows
        return kernel(adjacency.compiled, scale, dense, rows)

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
        tensors = _seeds_first(info, (scale, dense, rows), in_dims[1:4])
        return _AggregateAt.apply(adjacency, *tensors, transposed), 0


class _HiddenLayer(Function):
    @staticmethod
    def forward(
        adjacency: SymmetricMatrix,
        everywhere: bool,
        left: Tensor,
        right: Tensor,
        mapped: Tensor,
        bias: Tensor,
        key: Tensor,
        threshold: Tensor,
    ) -> Tensor:
        if mapped.dim() == 2:
            tensors = _packed(left, right, mapped, bias, key, threshold)
            return _HiddenLayer.forward(adjacency, everywhere, *tensors).squeeze(0)
        assert adjacency.compiled is not None
        finish = cpu_kernels.Finish(bias, key, threshold, everywhere)
        return cpu_kernels.product(adjacency.compiled, mapped, left, right, finish)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.adjacency = inputs[0]
        ctx.save_for_backward(inputs[2], inputs[3], output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        left, right, output = ctx.saved_tensors
        masked, live, to_bias = _Masked.apply(grad, output)
        back = _Aggregate.apply(ctx.adjacency, right, left * live, masked)
        return None, None, None, None, back, to_bias, None, None

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[Any, ...], adjacency: SymmetricMatrix, everywhere: bool, *tensors: Tensor
    ) -> tuple[Tensor, int]:
        return _HiddenLayer.apply(adjacency, everywhere, *_seeds_first(info, tensors, in_dims[2:])), 0


class _Masked(Function):
    """The gradient of a ReLU: masked, which of its rows are not zero, and its sum over rows."""

    @staticmethod
    def forward(grad: Tensor, output: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        if grad.dim() == 2:
            masked, live, summed = cpu_kernels.relu_backward(*_packed(grad, output))
            return masked.squeeze(0), live.squeeze(0), summed.squeeze(0)
        return cpu_kernels.relu_backward(grad, output)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: tuple[Tensor, Tensor, Tensor]) -> None:
        ctx.save_for_backward(inputs[1])
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    def backward(ctx: Any, to_masked: Tensor, _: Tensor, to_summed: Tensor) -> tuple[Tensor, None]:
        (output,) = ctx.saved_tensors
        return torch.where(output > 0, to_masked + to_summed.unsqueeze(-2), 0), None

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[Any, ...], *tensors: Tensor
    ) -> tuple[tuple[Tensor, Tensor, Tensor], tuple[int, int, int]]:
        return _Masked.apply(*_seeds_first(info, tensors, in_dims)), (0, 0, 0)


class _Neighbourhood(Function):
    @staticmethod
    def forward(adjacency: SymmetricMatrix, scale: Tensor, nodes: Tensor) -> tuple[Tensor, Tensor]:
        assert adjacency.compiled is not None
        if scale.dim() == 1:
            near, far = cpu_kernels.neighbourhood(adjacency.compiled, *_packed(scale, nodes))
            return near.squeeze(0), far.squeeze(0)
        return cpu_kernels.neighbourhood(adjacency.compiled, scale, nodes)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.mark_non_differentiable(*output)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, None, None]:
        return None, None, None

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[Any, ...], adjacency: SymmetricMatrix, *tensors: Tensor
    ) -> tuple[tuple[Tensor, Tensor], tuple[int, int]]:
        return _Neighbourhood.apply(adjacency, *_seeds_first(info, tensors, in_dims[1:])), (0, 0)


class _Attention(Function):
    @staticmethod
    def forward(
        adjacency: SymmetricMatrix, visible: Tensor, mapped: Tensor, source: Tensor, target: Tensor
    ) -> tuple[Tensor, Tensor]:
        assert adjacency.compiled is not None
        if mapped.dim() == 2:
            out, normaliser = _Attention.forward(adjacency, *_packed(visible, mapped, source, target))
            return out.squeeze(0), normaliser.squeeze(0)
        return cpu_attention_kernels.forward(adjacency.compiled, visible, mapped, source, target)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.adjacency = inputs[0]
        ctx.save_for_backward(*inputs[1:], *output)
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[None, None, Tensor, Tensor, Tensor]:
        visible, *known = ctx.saved_tensors
        if grad.dim() == 2:
            visible, grad, *known = _packed(visible, grad, *known)
            back = cpu_attention_kernels.backward(ctx.adjacency.compiled, visible, known, grad)
            return None, None, back[0].squeeze(0), back[1].squeeze(0), back[2].squeeze(0)
        return None, None, *cpu_attention_kernels.backward(ctx.adjacency.compiled, visible, known, grad)

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[Any, ...], adjacency: SymmetricMatrix, *tensors: Tensor
    ) -> tuple[tuple[Tensor, Tensor], tuple[int, int]]:
        return _Attention.apply(adjacency, *_seeds_first(info, tensors, in_dims[1:])), (0, 0)
