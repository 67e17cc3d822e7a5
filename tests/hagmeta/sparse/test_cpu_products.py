"""Compiled products on a CPU compared with the same operations in torch."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
import torch
from torch import Tensor
from torch.func import vmap

from hagmeta.config.run_config import RunConfig
from hagmeta.datasets.base import Dataset
from hagmeta.layers.encoders.gcn import GCN
from hagmeta.packs.randomness import Rate, keys, relu_dropout
from hagmeta.sparse.graph import Graph, View
from hagmeta.sparse.matrices import SparseMatrix, SymmetricMatrix
from hagmeta.sparse.products import aggregate, attend, hidden_layer, matmul

CPU = torch.device("cpu")
PACK, NODES, HUB = 3, 30, 7
WIDTH = 13  # neither a whole word of draws nor a whole vector


def random_sparse(rows: int, columns: int, seed: int) -> scipy.sparse.csr_matrix:
    rng = np.random.default_rng(seed)
    dense = (rng.random((rows, columns)) < 0.3) * rng.normal(size=(rows, columns))
    return scipy.sparse.csr_matrix(dense.astype(np.float32))


def random_adjacency() -> scipy.sparse.csr_matrix:
    """Return a symmetric matrix with a full diagonal. One node is next to all others."""
    dense = np.random.default_rng(0).random((NODES, NODES)) < 0.1
    dense = dense | dense.T
    dense[HUB, :] = dense[:, HUB] = True
    np.fill_diagonal(dense, True)
    return scipy.sparse.csr_matrix(dense.astype(np.float32))


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def scales() -> Tensor:
    """Return one row per seed. Each seed has other invisible nodes."""
    return torch.rand(PACK, NODES, generator=torch.Generator().manual_seed(1)).clamp(min=0.3) - 0.3


@pytest.mark.parametrize("rate", [0.0, 0.4])
def test_a_hidden_layer_drops_what_torch_drops(rate: float) -> None:
    adjacency, scale, key = SymmetricMatrix(random_adjacency(), CPU), scales(), keys([0, 1, 2], "test")
    given = normal(PACK, NODES, WIDTH), normal(PACK, WIDTH, seed=1)

    def ours(mapped: Tensor, bias: Tensor) -> Tensor:
        one = vmap(lambda s, m, b, k: hidden_layer(adjacency, s, m, b, k, Rate(rate).threshold))
        return one(scale, mapped, bias, key)

    def plain(mapped: Tensor, bias: Tensor) -> Tensor:
        summed = vmap(lambda s, m: aggregate(adjacency, s, m))(scale, mapped)
        return vmap(lambda x, b, k: relu_dropout(x, b, rate, k))(summed, bias, key)

    found = []
    for function in (ours, plain):
        variables = [tensor.clone().requires_grad_() for tensor in given]
        value = function(*variables)
        gradients = torch.autograd.grad((value**3).sum() / 100, variables)
        found.append((value, *gradients))
    assert torch.equal(found[0][0] == 0, found[1][0] == 0)
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


def test_rows_that_are_not_needed_are_zero_and_have_no_gradient() -> None:
    features, needed = SparseMatrix(random_sparse(12, NODES, 1), CPU), torch.arange(12) % 2.0
    variable = normal(NODES, WIDTH).requires_grad_()
    some, every = matmul(features, variable, needed), matmul(features, variable)
    assert torch.equal(some, every * needed.unsqueeze(-1))
    gradients = [torch.autograd.grad(value.sum(), variable)[0] for value in (some, every[1::2])]
    torch.testing.assert_close(*gradients)


def test_few_nodes_get_the_same_embeddings_and_gradients_to_the_bit() -> None:
    edges = np.argwhere(np.triu(random_adjacency().toarray(), 1))
    edges = edges[(edges != HUB).all(1)]  # so that some nodes are far from the chosen ones
    labels = np.arange(NODES) % 3
    graph = Graph(Dataset("tiny", edges, labels, random_sparse(NODES, 20, 3), ("a", "b", "c")), CPU)
    encoder = GCN(20, RunConfig.of(hidden=WIDTH, embedding=5))
    view = View(*(part[0] for part in graph.view((labels != 0)[None])[:3]))
    nodes, key = torch.tensor([1, 4, 1]), torch.tensor(7)
    assert 0 < graph.neighbourhood(view, nodes)[1].sum() < (labels != 0).sum()
    found = []
    for embedding in (encoder.at_few_nodes(graph, view, key), encoder(graph, view, key)):
        value = embedding.at(nodes)
        found.append((value, *torch.autograd.grad(value.square().sum(), list(encoder.parameters()))))
    assert all(torch.equal(few, every) for few, every in zip(*found, strict=True))


def test_no_bit_of_a_product_depends_on_the_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    from hagmeta.sparse.numba import backend as numba_backend

    monkeypatch.setattr(numba_backend, "LEAST_SHARE", 1)
    adjacency, scale = SymmetricMatrix(random_adjacency(), CPU), scales()
    tensors = [normal(PACK, NODES, size) for size in (12, 4, 4)]
    found, before = [], torch.get_num_threads()
    for threads in (1, 3):
        torch.set_num_threads(threads)
        found.append(
            (
                vmap(lambda s, h: aggregate(adjacency, s, h))(scale, tensors[0]),
                vmap(lambda s, *x: attend(adjacency, s, *x))((scale > 0).float(), *tensors),
            )
        )
    torch.set_num_threads(before)
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))
