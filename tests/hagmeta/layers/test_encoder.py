from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, stack_module_state, vmap
from torch.utils._pytree import tree_map
from torch_geometric.nn import GATConv, GCNConv, SAGEConv, SGConv
from torch_geometric.utils import subgraph, to_undirected

from hagmeta.config.run_config import RunConfig
from hagmeta.datasets.base import Dataset
from hagmeta.layers.encoders.gat import GraphAttention
from hagmeta.layers.encoders.gcn import HiddenConvolution
from hagmeta.layers.encoders.registry import ENCODERS, make_encoder
from hagmeta.packs.randomness import dropout, keys, seeded
from hagmeta.sparse.graph import ClassMeans, Graph, View
from hagmeta.sparse.plain import PlainGraph

CPU = torch.device("cpu")
Twin = Callable[[Any, Tensor, Tensor], Tensor]
NODES, FEATURES, CLASSES = 40, 6, 4
HEADS = 3
every_encoder = pytest.mark.parametrize("kind", ENCODERS)
CHOSEN = torch.tensor([[5, 1, 5, 39], [2, 2, 6, 10]])  # visible nodes of either seed, one of them twice


def config(encoder: str) -> RunConfig:
    return RunConfig.of(encoder=encoder, hidden=6, embedding=5, heads=HEADS)


def tiny() -> Dataset:
    """The last node has no neighbours."""
    rng = np.random.default_rng(0)
    pairs = np.sort(rng.integers(NODES - 1, size=(90, 2)), axis=1)
    edges = np.unique(pairs[pairs[:, 0] != pairs[:, 1]], axis=0)
    features = scipy.sparse.csr_matrix(rng.normal(size=(NODES, FEATURES)).astype(np.float32))
    return Dataset("tiny", edges, np.arange(NODES) % CLASSES, features, ("a", "b", "c", "d"))


def dense_features() -> np.ndarray:
    assert not isinstance(DATASET.features, np.ndarray)
    dense: np.ndarray = DATASET.features.toarray()
    return dense


DATASET = tiny()
GRAPH = Graph(DATASET, CPU)
PLAIN = PlainGraph(DATASET, CPU)
VISIBLE = np.stack([DATASET.labels != 0, DATASET.labels != 3])  # what each of two seeds can see


class Reading(nn.Module):
    """An encoder, and the three ways to read what it returns."""

    def __init__(self, kind: str, seed: int) -> None:
        super().__init__()
        self.encoder = seeded(seed, "init/encoder", lambda: make_encoder(FEATURES, config(kind)))
        for name, value in self.encoder.named_parameters():
            if name.endswith("bias"):  # zero at first, which would hide a bias in the wrong place
                nn.init.normal_(value, generator=torch.Generator().manual_seed(seed))

    def forward(
        self, graph: Graph, view: View, nodes: Tensor, means: ClassMeans, key: Tensor | None
    ) -> tuple[Tensor, ...]:
        embedding = self.encoder(graph, view, key)
        return embedding.all(), embedding.at(nodes), embedding.means(means)


def class_means(graph: Graph = GRAPH, visible: np.ndarray = VISIBLE) -> tuple[ClassMeans, Tensor]:
    """Over the visible nodes of each class, and the same written out."""
    dense = (DATASET.labels == np.arange(CLASSES)[:, None]) & visible[:, None, :]
    dense = (dense / dense.sum(-1, keepdims=True).clip(min=1)).astype(np.float32)
    return graph.class_means([scipy.sparse.csr_matrix(d) for d in dense], visible), torch.from_numpy(dense)


def read(
    modules: list[Reading],
    key: Tensor | None = None,
    graph: Graph = GRAPH,
    seeds: tuple[int, ...] = (0, 1),
) -> tuple[Tensor, ...]:
    """Read the modules of some seeds, packed."""
    chosen, visible = list(seeds), VISIBLE[list(seeds)]
    parameters, _ = stack_module_state([modules[seed] for seed in seeds])
    means = class_means(graph, visible)[0]

    def one(state: dict[str, Tensor], view: View, nodes: Tensor, key: Tensor | None) -> Any:
        return functional_call(modules[0], state, (graph, view, nodes, means, key))

    in_dims = (0, 0, 0, None if key is None else 0)
    key = None if key is None else key[chosen]
    result: tuple[Tensor, ...] = vmap(one, in_dims=in_dims)(
        parameters, graph.view(visible), CHOSEN[chosen], key
    )
    return result


def read_plainly(module: Reading, seed: int, graph: Graph, key: Tensor | None) -> tuple[Tensor, ...]:
    """Read the module of one seed, called as any other."""
    visible = VISIBLE[[seed]]
    view = tree_map(lambda each: each[0], graph.view(visible))
    result: tuple[Tensor, ...] = module(graph, view, CHOSEN[seed], class_means(graph, visible)[0], key)
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


def pyg_sage(encoder: Any, features: Tensor, edges: Tensor) -> Tensor:
    hidden = features
    for layer, activation in ((encoder.first, torch.relu), (encoder.second, lambda x: x)):
        own, neighbour = layer.weight.data.chunk(2, dim=-1)
        same = SAGEConv(*own.shape, aggr="mean")
        same.lin_r.weight.data, same.lin_l.weight.data = own.T, neighbour.T
        same.lin_l.bias.data = layer.bias.data
        hidden = activation(same(hidden, edges))
    return hidden


def pyg_sgc(encoder: Any, features: Tensor, edges: Tensor) -> Tensor:
    same = SGConv(*encoder.weight.shape, K=2)
    same.lin.weight.data, same.lin.bias.data = encoder.weight.data.T, encoder.bias.data
    result: Tensor = same(features, edges)
    return result


TWINS = {"gcn": pyg_gcn, "gat": pyg_gat, "sage": pyg_sage, "sgc": pyg_sgc, "mlp": plain_mlp}


@pytest.mark.parametrize(("kind", "twin"), TWINS.items())
@torch.no_grad()
def test_an_encoder_is_pyg_s_on_the_visible_subgraph(kind: str, twin: Twin) -> None:
    modules = [Reading(kind, seed) for seed in range(2)]
    everywhere, _, _ = read(modules)
    for seed, module in enumerate(modules):
        nodes, features, edges = visible_subgraph(seed)
        expected = twin(module.encoder, features, edges)
        torch.testing.assert_close(everywhere[seed, nodes], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("training", [False, True])
@every_encoder
def test_some_nodes_and_means_agree_with_all_nodes(kind: str, training: bool) -> None:
    modules = [Reading(kind, seed) for seed in range(2)]
    everywhere, some, means = read(modules, keys([0, 1], "dropout") if training else None)
    torch.testing.assert_close(some, everywhere[torch.arange(2)[:, None], CHOSEN], rtol=1e-4, atol=1e-5)
    average = class_means()[1]
    met = average.sum(-1) > 0  # what a class without nodes has for a mean, nobody asks
    torch.testing.assert_close(means[met], (average @ everywhere)[met], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["gcn", "gat", "sage", "mlp"])
def test_dropout_is_drawn_in_training_alone(kind: str) -> None:
    modules = [Reading(kind, seed) for seed in range(2)]
    evaluated, trained = read(modules)[0], read(modules, keys([0, 1], "dropout"))[0]
    assert torch.equal(evaluated, read(modules)[0])
    assert not torch.allclose(evaluated, trained)


def with_other_invisible_nodes(kind: type[Graph]) -> Graph:
    """The same graph where seed 0 can see it: its invisible nodes have other features and other edges."""
    rng = np.random.default_rng(1)
    hidden = np.flatnonzero(~VISIBLE[0])
    features = dense_features()
    features[hidden] = rng.normal(size=(len(hidden), FEATURES)) * 100
    inside = VISIBLE[0][DATASET.edges].all(1)
    pairs = np.stack([rng.choice(hidden, 60), rng.integers(NODES, size=60)], axis=1)
    pairs = np.sort(pairs[pairs[:, 0] != pairs[:, 1]], axis=1)
    edges = np.unique(np.concatenate([DATASET.edges[inside], pairs]), axis=0)
    other = replace(DATASET, edges=edges, features=scipy.sparse.csr_matrix(features))
    return kind(other, CPU)


@every_encoder
@torch.no_grad()
def test_invisible_nodes_change_nothing(kind: str) -> None:
    module = Reading(kind, 0)
    key = keys([0], "dropout")
    packed = [read([module], key, graph, (0,)) for graph in (GRAPH, with_other_invisible_nodes(Graph))]
    for (everywhere, some, means), (others, other_some, other_means) in [packed]:
        assert torch.equal(everywhere[:, VISIBLE[0]], others[:, VISIBLE[0]])
        assert torch.equal(some, other_some)
        assert torch.equal(means[:, 1:], other_means[:, 1:])  # nothing is visible of class 0
    plain = [
        read_plainly(module, 0, graph, key[0]) for graph in (PLAIN, with_other_invisible_nodes(PlainGraph))
    ]
    assert torch.equal(plain[0][0][VISIBLE[0]], plain[1][0][VISIBLE[0]])
    assert torch.equal(plain[0][1], plain[1][1])
    assert torch.equal(plain[0][2][1:], plain[1][2][1:])


@every_encoder
@torch.no_grad()
def test_a_seed_is_encoded_alike_alone_and_in_a_pack(kind: str) -> None:
    modules, key = [Reading(kind, seed) for seed in range(2)], keys([0, 1], "dropout")
    packed = read(modules, key)
    for seed in range(2):
        for together, alone in zip(packed, read(modules, key, GRAPH, (seed,)), strict=True):
            assert torch.equal(together[seed], alone[0])


@pytest.mark.parametrize("normalisation", ["visible", "whole"])
@every_encoder
@torch.no_grad()
def test_plain_mode_encodes_alike(kind: str, normalisation: str) -> None:
    modules, key = [Reading(kind, seed) for seed in range(2)], keys([0, 1], "dropout")
    packed = read(modules, key, Graph(DATASET, CPU, normalisation))
    for seed, module in enumerate(modules):
        plain = read_plainly(module, seed, PlainGraph(DATASET, CPU, normalisation), key[seed])
        met = class_means()[1][seed].sum(-1) > 0
        torch.testing.assert_close(plain[0][VISIBLE[seed]], packed[0][seed][VISIBLE[seed]])
        torch.testing.assert_close(plain[1], packed[1][seed])
        torch.testing.assert_close(plain[2][met], packed[2][seed][met])


@pytest.mark.parametrize("degrees", ["visible", "whole"])
@torch.no_grad()
def test_means_divide_by_the_neighbours_that_normalisation_counts(degrees: str) -> None:
    # `released` normalises over the whole graph, and masks without normalising again.
    graph = Graph(DATASET, CPU, degrees)
    adjacency = torch.from_numpy(DATASET.adjacency.toarray()) - torch.eye(NODES)
    seen = torch.from_numpy(VISIBLE[0]).float()
    count = adjacency @ (seen if degrees == "visible" else torch.ones(NODES))
    rows = torch.randn(NODES, 3, generator=torch.Generator().manual_seed(0))
    expected = (adjacency * seen) @ rows / count.clamp(min=1).unsqueeze(-1)
    found = vmap(graph.neighbour_means)(rows.unsqueeze(0), graph.view(VISIBLE[:1]))[0]
    torch.testing.assert_close(found[VISIBLE[0]], expected[VISIBLE[0]])
    assert not found[~VISIBLE[0]].any()


@every_encoder
def test_an_encoder_can_be_differentiated_twice(kind: str) -> None:
    # Those of plain mode are torch's own. A pack's, inside of vmap as MAML takes them, must be the same.
    module = Reading(kind, 0)
    if kind == "gat":
        module.encoder = make_encoder(FEATURES, config(kind), twice=True)
    parameters = {name: value.detach() for name, value in module.named_parameters()}

    def second(
        graph: Graph, means: ClassMeans, parameters: dict[str, Tensor], view: View, nodes: Tensor
    ) -> dict[str, Tensor]:
        def loss(state: dict[str, Tensor]) -> Tensor:
            _, some, averages = functional_call(module, state, (graph, view, nodes, means, None))
            return (some**3).mean() + (averages**3).mean()

        def slope(state: dict[str, Tensor]) -> Tensor:
            return torch.stack([value.square().sum() for value in grad(loss)(state).values()]).sum()

        loss(parameters)  # constant matrices are made outside of derivatives
        result: dict[str, Tensor] = grad(slope)(parameters)
        return result

    def given(graph: Graph) -> tuple[Any, ...]:
        """What belongs to the seed, with a pack axis of one."""
        packed = {name: value.unsqueeze(0) for name, value in parameters.items()}
        return packed, graph.view(VISIBLE[:1]), CHOSEN[:1]

    means, plain_means = (class_means(graph, VISIBLE[:1])[0] for graph in (GRAPH, PLAIN))
    packed = vmap(partial(second, GRAPH, means))(*given(GRAPH))
    plain = second(PLAIN, plain_means, *tree_map(lambda each: each[0], given(PLAIN)))
    for name, value in plain.items():
        assert value.any(), name
        torch.testing.assert_close(packed[name][0], value, rtol=1e-3, atol=1e-4)


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


@pytest.mark.parametrize("size", [1, 30, 100])
@torch.no_grad()
def test_graph_attention_with_large_features(size: float) -> None:
    rng = np.random.default_rng(0)
    pairs = np.sort(rng.integers(40, size=(90, 2)), axis=1)
    edges = np.unique(pairs[pairs[:, 0] != pairs[:, 1]], axis=0)
    features = (rng.normal(size=(40, 6)) * size).astype(np.float32)
    graph = Graph(Dataset("d", edges, np.zeros(40, dtype=np.int64), features, ("a",)), CPU)
    torch.manual_seed(0)
    layer = GraphAttention(6, 4, 2)
    same = GATConv(6, 2, heads=2)
    same.lin.weight.data, same.bias.data = layer.weight.data.T, layer.bias.data
    same.att_src.data, same.att_dst.data = layer.source.data[None], layer.target.data[None]
    expected = same(torch.from_numpy(features), to_undirected(torch.from_numpy(edges.T), num_nodes=40))
    view = graph.view(np.ones((1, 40), dtype=bool))
    ours = vmap(lambda v: layer(graph, v))(view)[0]
    torch.testing.assert_close(ours, expected, rtol=1e-3, atol=1e-3 * size)
