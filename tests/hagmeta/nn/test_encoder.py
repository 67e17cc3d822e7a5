from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap
from torch.utils._pytree import tree_map
from torch_geometric.nn import GATConv, GCNConv
from torch_geometric.utils import subgraph, to_undirected

from hagmeta.config import RunConfig
from hagmeta.datasets.base import NodeDataset
from hagmeta.nn.encoders import make_encoder
from hagmeta.nn.gat import GraphAttention
from hagmeta.nn.gcn import HiddenConvolution
from hagmeta.packs.randomness import dropout, keys, seeded
from hagmeta.sparse.graph import ClassMeans, Graph, View

CPU = torch.device("cpu")
Twin = Callable[[Any, Tensor, Tensor], Tensor]
NODES, FEATURES, CLASSES = 40, 6, 4
HEADS = 3
CHOSEN = torch.tensor([[5, 1, 5, 39], [2, 2, 6, 10]])  # visible nodes of either seed, one of them twice


def config(encoder: str) -> RunConfig:
    return RunConfig(encoder=encoder, hidden=6, embedding=5, heads=HEADS)


def tiny() -> NodeDataset:
    """The last node has no neighbours."""
    rng = np.random.default_rng(0)
    pairs = np.sort(rng.integers(NODES - 1, size=(90, 2)), axis=1)
    edges = np.unique(pairs[pairs[:, 0] != pairs[:, 1]], axis=0)
    features = scipy.sparse.csr_matrix(rng.normal(size=(NODES, FEATURES)).astype(np.float32))
    return NodeDataset("tiny", edges, np.arange(NODES) % CLASSES, features, ("a", "b", "c", "d"))


def dense_features() -> np.ndarray:
    assert not isinstance(DATASET.features, np.ndarray)
    dense: np.ndarray = DATASET.features.toarray()
    return dense


DATASET = tiny()
GRAPH = Graph(DATASET, CPU)
VISIBLE = np.stack([DATASET.labels != 0, DATASET.labels != 3])  # what each of two seeds can see


class Reading(nn.Module):
    """An encoder, and the three ways to read what it returns."""

    def __init__(self, kind: str, seed: int) -> None:
        super().__init__()
        self.encoder = seeded(seed, "init/encoder", lambda: make_encoder(FEATURES, config(kind)))
        for name, value in self.encoder.named_parameters():
            if name.endswith("bias"):  # zero at first, which would hide a bias in the wrong place
                nn.init.normal_(value, generator=torch.Generator().manual_seed(seed))

    def forward(self, view: View, nodes: Tensor, means: ClassMeans, key: Tensor | None) -> tuple[Tensor, ...]:
        embedding = self.encoder(GRAPH, view, key)
        return embedding.all(), embedding.at(nodes), embedding.means(means)


def class_means() -> tuple[ClassMeans, Tensor]:
    """Over the visible nodes of each class, and the same written out."""
    dense = (DATASET.labels == np.arange(CLASSES)[:, None]) & VISIBLE[:, None, :]
    dense = (dense / dense.sum(-1, keepdims=True).clip(min=1)).astype(np.float32)
    return GRAPH.class_means([scipy.sparse.csr_matrix(d) for d in dense], VISIBLE), torch.from_numpy(dense)


def read(modules: list[Reading], key: Tensor | None = None) -> tuple[Tensor, ...]:
    parameters, _ = stack_module_state(modules)
    means = class_means()[0]

    def one(state: dict[str, Tensor], view: View, nodes: Tensor, key: Tensor | None) -> Any:
        return functional_call(modules[0], state, (view, nodes, means, key))

    in_dims = (0, 0, 0, None if key is None else 0)
    result: tuple[Tensor, ...] = vmap(one, in_dims=in_dims)(parameters, GRAPH.view(VISIBLE), CHOSEN, key)
    return result


def visible_subgraph(seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Its nodes, their features and their edges, numbered anew."""
    nodes = torch.from_numpy(np.flatnonzero(VISIBLE[seed]))
    edges = to_undirected(torch.from_numpy(DATASET.edges.T), num_nodes=NODES)
    inside, _ = subgraph(nodes, edges, relabel_nodes=True, num_nodes=NODES)
    return nodes, torch.from_numpy(dense_features())[nodes], inside


def pyg_gcn(encoder: Any, features: Tensor, edges: Tensor) -> Tensor:
    hidden = features
    for layer, activation in ((encoder.first, torch.relu), (encoder.second, lambda x: x)):
        same = GCNConv(*layer.weight.shape)
        same.lin.weight.data, same.bias.data = layer.weight.data.T, layer.bias.data
        hidden = activation(same(hidden, edges))
    return hidden


def pyg_gat(encoder: Any, features: Tensor, edges: Tensor) -> Tensor:
    hidden = features
    for layer, activation in ((encoder.first, nn.functional.elu), (encoder.second, lambda x: x)):
        heads, width = layer.source.shape
        same = GATConv(len(layer.weight), width, heads=heads, negative_slope=0.2, add_self_loops=True)
        same.lin.weight.data, same.bias.data = layer.weight.data.T, layer.bias.data
        same.att_src.data, same.att_dst.data = layer.source.data[None], layer.target.data[None]
        hidden = activation(same(hidden, edges))
    return hidden


def plain_mlp(encoder: Any, features: Tensor, edges: Tensor) -> Tensor:
    hidden = torch.relu(features @ encoder.weight + encoder.bias)
    return hidden @ encoder.second.weight.T + encoder.second.bias


@pytest.mark.parametrize(("kind", "twin"), [("gcn", pyg_gcn), ("gat", pyg_gat), ("mlp", plain_mlp)])
@torch.no_grad()
def test_an_encoder_is_pyg_s_on_the_visible_subgraph(kind: str, twin: Twin) -> None:
    modules = [Reading(kind, seed) for seed in range(2)]
    everywhere, _, _ = read(modules)
    for seed, module in enumerate(modules):
        nodes, features, edges = visible_subgraph(seed)
        expected = twin(module.encoder, features, edges)
        torch.testing.assert_close(everywhere[seed, nodes], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("kind", ["gcn", "gat", "mlp"])
def test_some_nodes_and_means_agree_with_all_nodes(kind: str, training: bool) -> None:
    modules = [Reading(kind, seed) for seed in range(2)]
    everywhere, some, means = read(modules, keys([0, 1], "dropout") if training else None)
    torch.testing.assert_close(some, everywhere[torch.arange(2)[:, None], CHOSEN], rtol=1e-4, atol=1e-5)
    average = class_means()[1]
    met = average.sum(-1) > 0  # what a class without nodes has for a mean, nobody asks
    torch.testing.assert_close(means[met], (average @ everywhere)[met], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["gcn", "gat", "mlp"])
def test_dropout_is_drawn_in_training_alone(kind: str) -> None:
    modules = [Reading(kind, seed) for seed in range(2)]
    evaluated, trained = read(modules)[0], read(modules, keys([0, 1], "dropout"))[0]
    assert torch.equal(evaluated, read(modules)[0])
    assert not torch.allclose(evaluated, trained)


def test_the_hidden_layer_drops_after_its_relu() -> None:
    # Written for speed, it must be what it says, with its first and second derivatives.
    layer = HiddenConvolution(FEATURES, 7)
    generator = torch.Generator().manual_seed(0)
    given = torch.randn(FEATURES, 7, generator=generator), torch.randn(7, generator=generator)
    view, key, rate = tree_map(lambda each: each[0], GRAPH.view(VISIBLE)), keys([3], "dropout")[0], 0.3
    mask = dropout(torch.ones(NODES, 7), rate, key)
    features = torch.from_numpy(dense_features())

    def ours(weight: Tensor, bias: Tensor) -> Tensor:
        result: Tensor = functional_call(layer, {"weight": weight, "bias": bias}, (GRAPH, view, rate, key))
        return result

    def plain(weight: Tensor, bias: Tensor) -> Tensor:
        return torch.relu(GRAPH.aggregate(features @ weight, view) + bias) * mask

    found = []
    for function in (ours, plain):
        weight, bias = (tensor.clone().requires_grad_() for tensor in given)
        value = function(weight, bias)
        first = torch.autograd.grad((value**3).sum() / 100, (weight, bias), create_graph=True)
        second = torch.autograd.grad(first[0].square().sum() / 100, (weight, bias))
        found.append((value, *first, *second))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", ["gcn", "gat", "mlp"])
def test_every_parameter_of_an_encoder_learns(kind: str) -> None:
    modules = [Reading(kind, seed) for seed in range(2)]
    parameters, _ = stack_module_state(modules)
    means = class_means()[0]
    everywhere, _, _ = vmap(lambda p, v, n: functional_call(modules[0], p, (v, n, means, None)))(
        parameters, GRAPH.view(VISIBLE), CHOSEN
    )
    gradients = torch.autograd.grad(everywhere.square().sum(), list(parameters.values()))
    for name, gradient in zip(parameters, gradients, strict=True):
        assert gradient.isfinite().all() and gradient.flatten(1).any(1).all(), name


@pytest.mark.parametrize("size", [1, 30, 100])
@torch.no_grad()
def test_graph_attention_with_large_features(size: float) -> None:
    rng = np.random.default_rng(0)
    pairs = np.sort(rng.integers(40, size=(90, 2)), axis=1)
    edges = np.unique(pairs[pairs[:, 0] != pairs[:, 1]], axis=0)
    features = (rng.normal(size=(40, 6)) * size).astype(np.float32)
    graph = Graph(NodeDataset("d", edges, np.zeros(40, dtype=np.int64), features, ("a",)), CPU)
    torch.manual_seed(0)
    layer = GraphAttention(6, 4, 2)
    same = GATConv(6, 2, heads=2)
    same.lin.weight.data, same.bias.data = layer.weight.data.T, layer.bias.data
    same.att_src.data, same.att_dst.data = layer.source.data[None], layer.target.data[None]
    expected = same(torch.from_numpy(features), to_undirected(torch.from_numpy(edges.T), num_nodes=40))
    view = graph.view(np.ones((1, 40), dtype=bool))
    ours = vmap(lambda v: layer(graph, v))(view)[0]
    torch.testing.assert_close(ours, expected, rtol=1e-3, atol=1e-3 * size)
