from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch
from torch import Tensor
from torch.func import grad, vmap

from hagmeta.sparse.matrices import DenseMatrix, SeedwiseMatrix, SparseMatrix, SymmetricMatrix
from hagmeta.sparse.products import aggregate, aggregate_at, matmul

CPU = torch.device("cpu")
PACK, NODES, WIDTH = 3, 30, 5
HUB = 7


def random_sparse(rows: int, columns: int, seed: int, weighted: bool = True) -> scipy.sparse.csr_matrix:
    rng = np.random.default_rng(seed)
    dense = (rng.random((rows, columns)) < 0.3) * (rng.normal(size=(rows, columns)) if weighted else 1)
    return scipy.sparse.csr_matrix(dense.astype(np.float32))


def random_adjacency(seed: int = 0) -> scipy.sparse.csr_matrix:
    """Symmetric and binary with a full diagonal; one node without neighbours but the hub, which has all."""
    dense = np.random.default_rng(seed).random((NODES, NODES)) < 0.1
    dense = dense | dense.T
    dense[0, :] = dense[:, 0] = False
    dense[HUB, :] = dense[:, HUB] = True
    np.fill_diagonal(dense, True)
    return scipy.sparse.csr_matrix(dense.astype(np.float32))


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def dense_of(matrix: scipy.sparse.csr_matrix) -> Tensor:
    return torch.from_numpy(matrix.toarray())


WEIGHTED, BINARY = random_sparse(12, NODES, 1), random_sparse(12, NODES, 2, weighted=False)
MATRICES: dict[str, tuple[Any, Tensor]] = {
    "sparse": (SparseMatrix(WEIGHTED, CPU), dense_of(WEIGHTED)),
    "binary": (
        SparseMatrix(random_sparse(12, NODES, 2, False), CPU),
        dense_of(random_sparse(12, NODES, 2, False)),
    ),
    "symmetric": (SymmetricMatrix(random_adjacency(), CPU), dense_of(random_adjacency())),
    "dense": (DenseMatrix(normal(12, NODES)), normal(12, NODES)),
}


def derivatives(function: Callable[[Tensor], Tensor], variable: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Value, gradient of the sum of its cubes, and the second derivative along that gradient."""
    variable = variable.clone().requires_grad_()
    value = function(variable)
    (gradient,) = torch.autograd.grad((value**3).sum() / 100, variable, create_graph=True)
    (second,) = torch.autograd.grad(gradient.square().sum() / 100, variable)
    return value, gradient, second


def assert_same_derivatives(
    ours: Callable[[Tensor], Tensor], plain: Callable[[Tensor], Tensor], variable: Tensor
) -> None:
    for one, other in zip(derivatives(ours, variable), derivatives(plain, variable), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", MATRICES)
def test_matmul_and_its_derivatives_are_those_of_the_dense_product(kind: str) -> None:
    matrix, dense = MATRICES[kind]
    assert_same_derivatives(lambda x: matmul(matrix, x), lambda x: dense @ x, normal(NODES, WIDTH))


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("kind", MATRICES)
def test_matmul_of_a_pack_is_that_of_each_seed(kind: str, axis: int) -> None:
    matrix, dense = MATRICES[kind]

    def packed(x: Tensor) -> Tensor:
        return vmap(lambda one: matmul(matrix, one), in_dims=axis)(x.movedim(0, axis))

    assert_same_derivatives(packed, lambda x: dense @ x, normal(PACK, NODES, WIDTH))


def test_transposing_twice_gives_the_matrix_back() -> None:
    for matrix, dense in MATRICES.values():
        torch.testing.assert_close(matrix.transposed.product(torch.eye(len(dense))), dense.T)
        torch.testing.assert_close(matrix.transposed.transposed.product(torch.eye(dense.shape[1])), dense)


@pytest.mark.parametrize("kind", [SparseMatrix, SymmetricMatrix])
def test_a_matrix_goes_away_with_its_last_use(kind: type[SparseMatrix]) -> None:
    gc.disable()  # it would find a matrix that refers to itself, but only now and then
    try:
        matrix = kind(random_adjacency(), CPU)
        values = normal(NODES, WIDTH).requires_grad_()
        matmul(matrix, values).sum().backward()
        kept = weakref.ref(matrix)
        del matrix
        assert kept() is None
    finally:
        gc.enable()


def test_a_seedwise_matrix_gives_each_seed_its_own() -> None:
    sources = [random_sparse(4, NODES, seed) for seed in range(PACK)]
    matrix, dense = SeedwiseMatrix(sources, CPU), torch.stack([dense_of(source) for source in sources])
    assert_same_derivatives(
        vmap(lambda one: matmul(matrix, one)), lambda x: dense @ x, normal(PACK, NODES, WIDTH)
    )


def scales() -> Tensor:
    """One a seed; some nodes are invisible, others to each."""
    return torch.rand(PACK, NODES, generator=torch.Generator().manual_seed(1)).clamp(min=0.2) - 0.2


def aggregated(scale: Tensor, hidden: Tensor) -> Tensor:
    """diag(s) A diag(s) H, written out."""
    return torch.diag_embed(scale) @ dense_of(random_adjacency()) @ torch.diag_embed(scale) @ hidden


def test_aggregate_is_the_scaled_product_alone_and_in_a_pack() -> None:
    adjacency, scale = SymmetricMatrix(random_adjacency(), CPU), scales()
    assert_same_derivatives(
        lambda x: aggregate(adjacency, scale[1], x), lambda x: aggregated(scale[1], x), normal(NODES, WIDTH)
    )
    assert_same_derivatives(
        lambda x: vmap(lambda s, one: aggregate(adjacency, s, one))(scale, x),
        lambda x: aggregated(scale, x),
        normal(PACK, NODES, WIDTH),
    )


@pytest.mark.parametrize("axis", [0, 1])
def test_aggregate_at_is_some_rows_of_aggregate(axis: int) -> None:
    adjacency, scale = SymmetricMatrix(random_adjacency(), CPU), scales()
    # A hub in the middle, a row twice, the loneliest node, and what is invisible to some seeds.
    rows = torch.tensor([[3, HUB, 3, 0, 29], [HUB, HUB, 0, 1, 2], [9, 8, 7, 8, 0]])

    def ours(x: Tensor) -> Tensor:
        one = vmap(lambda s, h, r: aggregate_at(adjacency, s, h, r), in_dims=(0, axis, 0))
        return one(scale, x.movedim(0, axis), rows)

    def plain(x: Tensor) -> Tensor:
        return torch.stack([aggregated(s, h)[r] for s, h, r in zip(scale, x, rows, strict=True)])

    assert_same_derivatives(ours, plain, normal(PACK, NODES, WIDTH))


@pytest.mark.parametrize("width", [1, 5, 16, 33])
@pytest.mark.parametrize(
    "operation", ["sparse", "binary", "symmetric", "seedwise", "aggregate", "aggregate_at"]
)
def test_no_bit_depends_on_the_pack(operation: str, width: int) -> None:
    scale, rows = scales(), torch.tensor([[3, HUB, 3], [HUB, 0, 1], [9, 8, 7]])
    adjacency = SymmetricMatrix(random_adjacency(), CPU)
    sources = [random_sparse(4, NODES, seed) for seed in range(PACK)]

    def of(seeds: list[int]) -> tuple[Tensor, Tensor]:
        """Values and gradients, the pack axis beside the columns as a Pack has it."""
        hidden = normal(PACK, NODES, width)[seeds].movedim(0, 1).contiguous().requires_grad_()
        matrix = SeedwiseMatrix([sources[s] for s in seeds], CPU) if operation == "seedwise" else None
        step: Callable[[Tensor, Tensor, Tensor], Tensor] = {
            "aggregate": lambda h, s, r: aggregate(adjacency, s, h),
            "aggregate_at": lambda h, s, r: aggregate_at(adjacency, s, h, r),
        }.get(operation, lambda h, s, r: matmul(matrix or MATRICES[operation][0], h))
        value = vmap(step, in_dims=(1, 0, 0))(hidden, scale[seeds], rows[seeds])
        (gradient,) = torch.autograd.grad((value**3).sum(), hidden)
        return value.detach(), gradient.movedim(1, 0)

    for alone, together in zip(of([1]), of([2, 1, 0]), strict=True):
        assert torch.equal(alone[0], together[1])


@pytest.mark.parametrize("operation", ["aggregate at", "seedwise"])
def test_gradients_inside_of_vmap_are_those_outside(operation: str) -> None:
    # MAML takes gradients seed by seed, and then gradients through those.
    rows = torch.stack(
        [torch.randperm(NODES, generator=torch.Generator().manual_seed(s))[:6] for s in range(PACK)]
    )
    scale, weight = normal(PACK, NODES).abs(), normal(PACK, 6, WIDTH, seed=1)
    adjacency = SymmetricMatrix(random_adjacency(), CPU)
    seedwise = SeedwiseMatrix([random_sparse(6, NODES, seed) for seed in range(PACK)], CPU)

    def energy(hidden: Tensor, scale: Tensor, rows: Tensor, weight: Tensor) -> Tensor:
        at = (
            aggregate_at(adjacency, scale, hidden, rows)
            if operation == "aggregate at"
            else matmul(seedwise, hidden)
        )
        return (weight * at.pow(3)).sum()

    def steepness(hidden: Tensor, *others: Tensor) -> Tensor:
        return grad(energy)(hidden, *others).square().sum()

    hidden = normal(NODES, PACK, WIDTH, seed=2).requires_grad_()
    axes = (1, 0, 0, 0)
    inside = vmap(grad(energy), in_dims=axes, out_dims=1)(hidden, scale, rows, weight)
    total = vmap(energy, in_dims=axes)(hidden, scale, rows, weight).sum()
    (outside,) = torch.autograd.grad(total, hidden, create_graph=True)
    torch.testing.assert_close(inside, outside)
    (through_inside,) = torch.autograd.grad(
        vmap(steepness, in_dims=axes)(hidden, scale, rows, weight).sum(), hidden
    )
    (through_outside,) = torch.autograd.grad(outside.square().sum(), hidden)
    torch.testing.assert_close(through_inside, through_outside)
