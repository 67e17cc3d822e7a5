"""The GPU's kernels beside plain arithmetic in double precision."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
import torch
from torch import Tensor

from hagmeta.packs.randomness import Rate, keys, relu_dropout
from hagmeta.sparse.matrices import SeedwiseMatrix, SparseMatrix, SymmetricMatrix
from hagmeta.sparse.products import attend, hidden_layer, row_maximum

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
GPU = torch.device("cuda")
NODES = 1500


def some_graph(seed: int) -> scipy.sparse.csr_matrix:
    """Symmetric, with loops, nodes without neighbours, and one that has all: cut into several segments."""
    rng = np.random.default_rng(seed)
    upper = np.triu(rng.random((NODES, NODES)) < 0.01, 1)
    upper[: NODES // 10] = upper[:, : NODES // 10] = False
    both = upper | upper.T
    both[-1] = both[:, -1] = True
    both[:10, -1] = both[-1, :10] = False
    np.fill_diagonal(both, True)
    return scipy.sparse.csr_matrix(both.astype(np.float32))


def on_gpu(*shape: int) -> Tensor:
    return torch.randn(shape, device=GPU)


def close(given: Tensor, expected: Tensor) -> None:
    difference = (given.double() - expected).detach()
    assert float(difference.norm() / expected.detach().norm()) < 1e-5
    assert given.isfinite().all()


@pytest.mark.parametrize("width", [1, 5, 16, 32, 70, 320])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_sparse_product(width: int, weighted: bool) -> None:
    rng = np.random.default_rng(1)
    entries = rng.random((NODES, 700)) < 0.03
    entries[:, 0] = True  # so that a row of the transposed one is cut into segments
    values = rng.normal(size=entries.shape) if weighted else np.ones(entries.shape)
    matrix = scipy.sparse.csr_matrix((entries * values).astype(np.float32))
    sparse, dense = SparseMatrix(matrix, GPU), on_gpu(700, width)
    close(sparse.product(dense), torch.from_numpy(matrix.toarray()).to(GPU).double() @ dense.double())
    back = on_gpu(NODES, width)
    expected = torch.from_numpy(matrix.toarray().T.copy()).to(GPU).double() @ back.double()
    close(sparse.transposed.product(back), expected)


@pytest.mark.parametrize(("pack", "width"), [(1, 32), (3, 24), (10, 32), (5, 64), (2, 100)])
def test_a_hidden_layer(pack: int, width: int) -> None:
    adjacency = SymmetricMatrix(some_graph(0), GPU)
    dense = torch.from_numpy(adjacency._source.toarray()).to(GPU).double()
    seen = torch.rand(pack, NODES, device=GPU) > 0.3
    scale = torch.rand(pack, NODES, device=GPU) * seen
    mapped = on_gpu(NODES, pack, width).requires_grad_()
    bias = on_gpu(pack, width).requires_grad_()
    key, rate = keys(list(range(pack)), "test").to(GPU), 0.4

    def one(scale: Tensor, mapped: Tensor, bias: Tensor, key: Tensor) -> Tensor:
        return hidden_layer(adjacency, scale, mapped, bias, key, Rate(rate, GPU).threshold)

    given = torch.func.vmap(one, in_dims=(0, 1, 0, 0), out_dims=1)(scale, mapped, bias, key)
    doubled = mapped.detach().double().requires_grad_(), bias.detach().double().requires_grad_()
    summed = torch.einsum("pn,nm,pm,mpw->npw", scale.double(), dense, scale.double(), doubled[0])
    expected = relu_dropout(summed, doubled[1], rate, key)
    close(given, expected)
    back = torch.randn_like(given)
    given.backward(back)
    expected.backward(back.double())
    close(mapped.grad, doubled[0].grad)
    close(bias.grad, doubled[1].grad)


def test_a_product_is_the_same_to_the_bit_whenever_it_is_computed() -> None:
    adjacency, dense = SymmetricMatrix(some_graph(0), GPU), on_gpu(NODES, 64)
    assert all(torch.equal(adjacency.product(dense), adjacency.product(dense)) for _ in range(20))


def test_each_seeds_averages() -> None:
    dense = on_gpu(NODES, 3, 7) * (torch.rand(NODES, 3, 7, device=GPU) < 0.2)  # (columns, pack, rows)
    given = SeedwiseMatrix.from_transposed(dense)
    columns = on_gpu(NODES, 3, 16)
    expected = torch.einsum("npc,npw->pcw", dense.double(), columns.double())
    close(given.stacked.product(columns.flatten(0, 1)).view(3, 7, 16), expected)
    back = on_gpu(3, 7, 16)
    expected = torch.einsum("npc,pcw->npw", dense.double(), back.double())
    close(given.stacked.transposed.product(back.flatten(0, 1)).view(NODES, 3, 16), expected)


def test_the_largest_of_a_row() -> None:
    graph = some_graph(0)
    values = on_gpu(NODES, 5)
    seen = torch.from_numpy(graph.toarray() > 0).to(GPU)
    expected = torch.where(seen.unsqueeze(-1), values, -torch.inf).amax(1)
    assert torch.equal(row_maximum(SymmetricMatrix(graph, GPU), values), expected)


@pytest.mark.parametrize("heads", [1, 4])
def test_graph_attention(heads: int) -> None:
    adjacency, pack, width = SymmetricMatrix(some_graph(0), GPU), 3, 16
    edges = torch.from_numpy(adjacency._source.toarray() > 0).to(GPU)
    visible = (torch.rand(pack, NODES, device=GPU) > 0.3).float()
    inputs = [on_gpu(NODES, pack, size).requires_grad_() for size in (width, heads, heads)]
    given = torch.func.vmap(
        lambda *arguments: attend(adjacency, *arguments), in_dims=(0, 1, 1, 1), out_dims=1
    )(visible, *inputs)
    mapped, source, target = doubled = [tensor.detach().double().requires_grad_() for tensor in inputs]
    expected = torch.stack(
        [
            dense_attention(edges, visible[p] > 0, mapped[:, p], source[:, p], target[:, p])
            for p in range(pack)
        ],
        dim=1,
    )
    close(given, expected)
    back = torch.randn_like(given)
    given.backward(back)
    expected.backward(back.double())
    for one, other in zip(inputs, doubled, strict=True):
        close(one.grad, other.grad)


def dense_attention(edges: Tensor, visible: Tensor, mapped: Tensor, source: Tensor, target: Tensor) -> Tensor:
    """One seed's, with a matrix (targets, sources, heads) of scores."""
    heads = source.shape[1]
    seen = (edges & visible & visible.unsqueeze(1)).unsqueeze(-1)
    scores = torch.nn.functional.leaky_relu(target.unsqueeze(1) + source.unsqueeze(0), 0.2)
    alone = torch.eye(len(edges), dtype=torch.bool, device=GPU).unsqueeze(-1)  # so that nothing is empty
    weights = torch.where(seen | alone, scores, -torch.inf).softmax(1)
    weights = torch.where(visible.view(-1, 1, 1), weights, 0.0)
    return torch.einsum("tsh,shd->thd", weights, mapped.unflatten(-1, (heads, -1))).flatten(1)
