"""Differentiable products of constant matrices with the variables of a pack of seeds.

Methods multiply for one seed. Under ``torch.func.vmap``, a pack becomes one product: on a GPU the columns of
all seeds are placed side by side, on a CPU the seeds follow each other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from hagmeta.packs.function import Function, SeedBatched, also_alone
from hagmeta.packs.sums import sum_rows
from hagmeta.sparse.backend import Finish
from hagmeta.sparse.fixed import FixedInputs, FixedInputsOnGpu
from hagmeta.sparse.matrices import (
    DenseMatrix,
    DenseSeedwiseMatrix,
    SeedwiseMatrix,
    SparseMatrix,
    SymmetricMatrix,
)
from hagmeta.sparse.plain_matrix import PlainMatrix, PlainSparseMatrix

if TYPE_CHECKING:
    from hagmeta.sparse.numba.backend import NumbaBackend
    from hagmeta.sparse.triton import fixed as fixed_kernels


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
    if isinstance(matrix, SeedwiseMatrix | DenseSeedwiseMatrix):
        result = _Seedwise.apply(matrix, dense, True)
    else:
        result = _Product.apply(matrix, dense, needed if matrix.leaves_out_rows else None, False)
    return result


def matmul_transposed(matrix: SeedwiseMatrix | PlainSparseMatrix, dense: Tensor) -> Tensor:
    """Return ``matrix.T @ dense`` for the matrix of one seed, with ``dense`` (rows, width)."""
    if isinstance(matrix, PlainSparseMatrix):
        return matrix.transposed.product(dense)
    result: Tensor = _Seedwise.apply(matrix, dense, False)
    return result


class _Product(SeedBatched):
    ranks = (2, 1, None)

    @staticmethod
    def forward(
        matrix: SparseMatrix | DenseMatrix, dense: Tensor, needed: Tensor | None, transposed: bool
    ) -> Tensor:
        return matrix.multiply(dense, needed, transposed)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.matrix, _, needed, ctx.transposed = inputs
        ctx.save_for_backward(needed)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor, None, None]:
        return None, _Product.apply(ctx.matrix, grad, *ctx.saved_tensors, not ctx.transposed), None, None


def row_maximum(incidence: SparseMatrix | PlainSparseMatrix, values: Tensor) -> Tensor:
    """Return the maximum of ``values`` (columns, width) over each row; not differentiable."""
    if isinstance(incidence, PlainSparseMatrix):
        return incidence.row_maximum(values)
    result: Tensor = _RowMaximum.apply(incidence, values)
    return result


class _RowMaximum(SeedBatched):
    ranks = (2,)

    @staticmethod
    def forward(incidence: SparseMatrix, values: Tensor) -> Tensor:
        return incidence.rows.row_maximum(values)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.mark_non_differentiable(output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, None]:
        return None, None


def aggregate(adjacency: SymmetricMatrix, scale: Tensor, hidden: Tensor) -> Tensor:
    """Return diag(scale) @ adjacency @ diag(scale) @ hidden. ``scale`` (rows,) is constant."""
    result: Tensor = _Aggregate.apply(adjacency, scale, scale, hidden)
    return result


class _Aggregate(SeedBatched):
    """The product diag(left) @ adjacency @ diag(right) @ hidden."""

    ranks = (1, 1, 2)

    @staticmethod
    def forward(adjacency: SymmetricMatrix, left: Tensor, right: Tensor, hidden: Tensor) -> Tensor:
        return adjacency.rows.product(hidden, left, right)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.adjacency, left, right, _ = inputs
        ctx.save_for_backward(right, left)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, None, None, Tensor]:
        return None, None, None, _Aggregate.apply(ctx.adjacency, *ctx.saved_tensors, grad)


def aggregate_at(adjacency: SymmetricMatrix, scale: Tensor, hidden: Tensor, rows: Tensor) -> Tensor:
    """Return ``aggregate`` for some rows (rows,) only."""
    if not len(rows):
        return hidden[:0]
    result: Tensor = _AggregateAt.apply(adjacency, scale, hidden, rows, False)
    return result


def near(adjacency: SymmetricMatrix, scale: Tensor, nodes: Tensor) -> Tensor:
    """Return the weights ``scale`` (nodes,), with 0 for all but the neighbours of some visible nodes."""
    marked: Tensor = _AggregateAt.apply(adjacency, scale, scale[nodes].unsqueeze(-1), nodes, True)
    return torch.where(marked.squeeze(-1) > 0, scale, 0)


class _AggregateAt(SeedBatched):
    ranks = (1, 2, 1, None)

    @staticmethod
    def forward(
        adjacency: SymmetricMatrix, scale: Tensor, dense: Tensor, rows: Tensor, transposed: bool
    ) -> Tensor:
        product = adjacency.rows.from_rows if transposed else adjacency.rows.at_rows
        return product(scale, dense, rows)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.adjacency, scale, _, rows, ctx.transposed = inputs
        ctx.save_for_backward(scale, rows)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, None, Tensor, None, None]:
        scale, rows = ctx.saved_tensors
        back = _AggregateAt.apply(ctx.adjacency, scale, grad, rows, not ctx.transposed)
        return None, None, back, None, None


def neighbourhood(adjacency: SymmetricMatrix, scale: Tensor, nodes: Tensor) -> tuple[Tensor, Tensor]:
    """Mark (nodes,) the visible neighbours of some nodes, and in turn their neighbours, on a CPU."""
    near, far = _Neighbourhood.apply(adjacency, scale, nodes)
    return near, far


class _Neighbourhood(SeedBatched):
    ranks = (1, 1)

    @staticmethod
    def forward(adjacency: SymmetricMatrix, scale: Tensor, nodes: Tensor) -> tuple[Tensor, Tensor]:
        return cast("NumbaBackend", adjacency.rows).neighbourhood(scale, nodes)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.mark_non_differentiable(*output)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, None, None]:
        return None, None, None


def hidden_layer(
    adjacency: SymmetricMatrix,
    scale: Tensor,
    mapped: Tensor,
    bias: Tensor,
    key: Tensor | None,
    threshold: Tensor,
    needed: Tensor | None = None,
) -> Tensor:
    """Return dropout(relu(aggregate + bias)) without scaling, in one pass. Without a key, nothing is dropped.

    Rows where ``needed`` (rows,) is 0 may be left out. They are 0 then.
    """
    if not adjacency.leaves_out_rows:
        needed = None
    left = scale if needed is None else scale * needed
    tensors = left, scale, mapped, bias, key, threshold
    result: Tensor = _HiddenLayer.apply(adjacency, *tensors, needed is None)
    return result


class _HiddenLayer(SeedBatched):
    ranks = (1, 1, 2, 1, 0, 0, None)

    @staticmethod
    def forward(
        adjacency: SymmetricMatrix,
        left: Tensor,
        right: Tensor,
        mapped: Tensor,
        bias: Tensor,
        key: Tensor | None,
        threshold: Tensor,
        everywhere: bool,
    ) -> Tensor:
        return adjacency.rows.product(mapped, left, right, Finish(bias, key, threshold, everywhere))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.adjacency = inputs[0]
        ctx.save_for_backward(inputs[1], inputs[2], output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        left, right, output = ctx.saved_tensors
        if ctx.adjacency.leaves_out_rows:
            grad, live, to_bias = _Masked.apply(ctx.adjacency, grad, output)
            left = left * live
        else:
            grad = torch.ops.aten.threshold_backward(grad, output, 0)
            to_bias = sum_rows(grad)
        back = _Aggregate.apply(ctx.adjacency, right, left, grad)
        return None, None, None, back, to_bias, None, None, None


class _Masked(SeedBatched):
    """The gradient of a ReLU on a CPU: masked, which of its rows are not zero, and its sum over rows."""

    ranks = (2, 2)

    @staticmethod
    def forward(adjacency: SymmetricMatrix, grad: Tensor, output: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return cast("NumbaBackend", adjacency.rows).relu_backward(grad, output)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
        ctx.save_for_backward(inputs[2])
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    def backward(ctx: Any, to_masked: Tensor, _: Tensor, to_summed: Tensor) -> tuple[None, Tensor, None]:
        (output,) = ctx.saved_tensors
        return None, torch.where(output > 0, to_masked + to_summed.unsqueeze(-2), 0), None


def attend(
    adjacency: SymmetricMatrix, visible: Tensor, mapped: Tensor, source: Tensor, target: Tensor
) -> Tensor:
    """Return the attention (nodes, width) over visible neighbours, in one pass.

    The score of an edge is the sum of ``source`` and ``target`` (nodes, heads) at its ends. The function can
    be differentiated only once.
    """
    result: Tensor = _Attention.apply(adjacency, visible, mapped, source, target)[0]
    return result


class _Attention(SeedBatched):
    ranks = (1, 2, 2, 2)

    @staticmethod
    def forward(adjacency: SymmetricMatrix, *tensors: Tensor) -> tuple[Tensor, Tensor]:
        return adjacency.rows.attention(*tensors)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.adjacency = inputs[0]
        ctx.save_for_backward(*inputs[1:], *output)
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[None, None, Tensor, Tensor, Tensor]:
        return None, None, *_attention_gradient(ctx.adjacency, *ctx.saved_tensors, grad)


@also_alone(1, 2, 2, 2, 2, 2, 2)
def _attention_gradient(
    adjacency: SymmetricMatrix, visible: Tensor, *known: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    return adjacency.rows.attention_gradient(visible, known[:-1], known[-1])


def fixed_product(fixed: FixedInputs, weight: Tensor) -> Tensor:
    """Multiply propagated inputs: (inputs, width) to (nodes, width); 0 for nodes that a seed cannot see."""
    result: Tensor = _Seedwise.apply(fixed, weight, False)
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


# Each seed of a pack has its own matrix in the following functions. So they run only under ``vmap`` over a
# pack. They have their own rules, because seeds are the second axis of nodes and the first of all else.


class _Seedwise(Function):
    """``spread`` to the nodes of each seed, or its transpose, ``collect``."""

    @staticmethod
    def forward(
        matrix: FixedInputs | SeedwiseMatrix | DenseSeedwiseMatrix, dense: Tensor, collects: bool
    ) -> Tensor:
        _check_pack(dense)
        return matrix.collect(dense) if collects else matrix.spread(dense)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.matrix, _, ctx.collects = inputs

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor, None]:
        return None, _Seedwise.apply(ctx.matrix, grad, not ctx.collects), None

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[Any, ...], matrix: Any, dense: Tensor, collects: bool
    ) -> tuple[Tensor, int]:
        axis = 1 if collects else 0
        return _Seedwise.apply(matrix, dense.movedim(in_dims[1], axis), collects), 1 - axis


def _check_pack(values: Tensor) -> None:
    if values.dim() < 3:
        raise RuntimeError("this function runs only under vmap over a pack")


class _FixedHiddenLayer(Function):
    """The hidden layer of one seed. A gradient inside ``vmap`` uses ``backward``."""

    @staticmethod
    def forward(fixed: FixedInputsOnGpu, weight: Tensor, *others: Any) -> Tensor:
        raise RuntimeError("this function runs only under vmap over a pack")

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.fixed = inputs[0]
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor, Tensor, None, None, None]:
        (output,) = ctx.saved_tensors
        grad = torch.ops.aten.threshold_backward(grad, output, 0)
        return None, _Seedwise.apply(ctx.fixed, grad, True), sum_rows(grad), None, None, None

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
        finish = Finish(bias.contiguous(), key, threshold.expand(len(bias)).contiguous())
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
