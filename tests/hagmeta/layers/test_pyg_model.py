from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad
from torch.utils._pytree import tree_map
from torch_geometric.nn import BatchNorm, GCNConv, GINConv, SAGEConv, global_mean_pool
from torch_geometric.nn.models import GraphSAGE
from torch_geometric.utils import subgraph, to_undirected

from hagmeta.common.errors import UserError
from hagmeta.config.remarks import remarks
from hagmeta.config.run_config import RunConfig, resolve
from hagmeta.datasets.base import Dataset
from hagmeta.layers.encoders.pyg_model import adapted
from hagmeta.layers.encoders.registry import ENCODERS
from hagmeta.packs.randomness import keys, seeded
from hagmeta.sparse.graph import View
from hagmeta.sparse.inputs import Inputs
from hagmeta.sparse.plain import PlainGraph
from hagmeta.testing import records_of
from tests.hagmeta.kinds import one_of_each_kind

CPU = torch.device("cpu")
NODES, FEATURES = 40, 6
SETTINGS = RunConfig.of(hidden=6, embedding=5, dropout=0.3)


class Own(nn.Module):
    """A user's model, with pooling and normalisation that look at all nodes at once."""

    def __init__(self, in_channels: int, hidden_channels: int, out_channels: int) -> None:
        super().__init__()
        self.first = GCNConv(in_channels, hidden_channels)
        self.norm = BatchNorm(hidden_channels, track_running_stats=False)
        self.second = SAGEConv(hidden_channels, out_channels)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        hidden = F.dropout(self.norm(self.first(x, edge_index)).relu(), 0.5, self.training)
        return self.second(hidden, edge_index) + global_mean_pool(x, None).sum()


class Isomorphism(nn.Module):
    """One whose buffer (``eps``) never changes."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.layer = GINConv(nn.Linear(in_channels, out_channels))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.layer(x, edge_index)


def tiny(seed: int = 0) -> Dataset:
    """Its even nodes, and the edges among them, are the same for every seed."""
    fixed, rng = np.random.default_rng(0), np.random.default_rng(seed)
    even = 2 * fixed.integers(NODES // 2, size=(50, 2))
    odd = np.stack([2 * rng.integers(NODES // 2, size=30) + 1, rng.integers(NODES, size=30)], axis=1)
    pairs = np.sort(np.concatenate([even, odd]), axis=1)
    edges = np.unique(pairs[pairs[:, 0] != pairs[:, 1]], axis=0)
    features = fixed.poisson(1.0, size=(NODES, FEATURES)).astype(np.float32)
    features[1::2] = rng.poisson(5.0, size=(NODES // 2, FEATURES))
    labels = np.arange(NODES) % 4
    return Dataset("tiny", edges, labels, scipy.sparse.csr_matrix(features), ("a", "b", "c", "d"))


VISIBLE = np.arange(NODES) % 2 == 0
GRAPH = PlainGraph(tiny(), CPU)


def view_of(graph: PlainGraph, inputs: Inputs | None = None) -> View:
    view = tree_map(lambda each: each[0], graph.view(VISIBLE[None]))
    return view._replace(inputs=tuple(map(torch.from_numpy, inputs))) if inputs else view


def encoder_of(model: Any, seed: int = 0) -> Any:
    return seeded(seed, "init/encoder", lambda: adapted(model)(FEATURES, SETTINGS))


@torch.no_grad()
def test_a_model_runs_on_the_visible_subgraph() -> None:
    encoder, nodes = encoder_of(Own), torch.arange(0, NODES, 2)
    everywhere = encoder(GRAPH, view_of(GRAPH), None)
    edges = to_undirected(torch.from_numpy(tiny().edges.T), num_nodes=NODES)
    inside, _ = subgraph(nodes, edges, relabel_nodes=True, num_nodes=NODES)
    features = tiny().features[nodes.numpy()].toarray()
    expected = encoder.model(torch.from_numpy(features), inside)
    torch.testing.assert_close(everywhere.all()[nodes], expected)
    assert not everywhere.all()[1::2].any()
    assert torch.equal(everywhere.at(torch.tensor([4, 0, 4])), everywhere.all()[[4, 0, 4]])
    members = scipy.sparse.csr_matrix((VISIBLE / VISIBLE.sum()).astype(np.float32)[None])
    means = everywhere.means(GRAPH.class_means([members], VISIBLE[None]))
    torch.testing.assert_close(means[0], expected.mean(0))


@pytest.mark.parametrize("training", [False, True])
@torch.no_grad()
def test_invisible_nodes_change_nothing(training: bool) -> None:
    encoder, other = encoder_of(Own), PlainGraph(tiny(seed=1), CPU)
    key = keys([0], "dropout")[0] if training else None
    one, two = (encoder(graph, view_of(graph), key).all() for graph in (GRAPH, other))
    assert torch.equal(one, two)


@torch.no_grad()
def test_dropout_repeats_for_a_key_and_draws_from_nothing_else() -> None:
    encoder, view = encoder_of(Own), view_of(GRAPH)
    first, second = keys([0, 1], "dropout")
    drawn = encoder(GRAPH, view, first).all()
    before = torch.random.get_rng_state()
    assert torch.equal(drawn, encoder(GRAPH, view, first).all())
    assert not torch.equal(drawn, encoder(GRAPH, view, second).all())
    assert torch.equal(encoder(GRAPH, view, None).all(), encoder(GRAPH, view, None).all())
    assert torch.equal(before, torch.random.get_rng_state())


def test_parameters_are_drawn_from_the_seed() -> None:
    torch.manual_seed(1)
    one = encoder_of(GraphSAGE, 3).state_dict()
    torch.manual_seed(2)
    same, other = encoder_of(GraphSAGE, 3).state_dict(), encoder_of(GraphSAGE, 4).state_dict()
    assert all(torch.equal(value, same[name]) for name, value in one.items())
    assert not torch.equal(next(iter(one.values())), next(iter(other.values())))


@pytest.mark.parametrize("kind", ["tf-idf", "svd"])
def test_inputs_are_those_of_the_other_encoders(kind: str) -> None:
    view = view_of(GRAPH, GRAPH.inputs(kind, VISIBLE))
    nodes = torch.arange(0, NODES, 2)
    expected = GRAPH.mapped(torch.eye(FEATURES), view)[nodes]
    torch.testing.assert_close(GRAPH.dense_inputs(view, nodes), expected)


def test_a_model_can_be_differentiated_twice() -> None:
    encoder, view = encoder_of(Own), view_of(GRAPH)
    parameters = {name: value.detach() for name, value in encoder.named_parameters()}

    def loss(state: dict[str, Tensor]) -> Tensor:
        return functional_call(encoder, state, (GRAPH, view, None)).all().pow(3).mean()

    def slope(state: dict[str, Tensor]) -> Tensor:
        return torch.stack([value.square().sum() for value in grad(loss)(state).values()]).sum()

    loss(parameters)  # the subgraph is made outside of derivatives, as constant matrices are
    second = grad(slope)(parameters)
    # A step along it changes the slope as much as it says.
    step = 1e-3 / torch.stack([value.square().sum() for value in second.values()]).sum().sqrt()
    moved = {name: value + step * second[name] for name, value in parameters.items()}
    expected = step * torch.stack([value.square().sum() for value in second.values()]).sum()
    assert float(slope(moved) - slope(parameters)) == pytest.approx(float(expected), rel=0.05)


@pytest.mark.parametrize(
    "reference",
    [
        "pyg:torch_geometric.nn.models:GCN",
        pytest.param("pyg:torch_geometric.nn.models:GraphSAGE", marks=pytest.mark.slow),
        pytest.param("pyg:torch_geometric.nn.models:GIN", marks=pytest.mark.slow),
        "pyg:torch_geometric.nn.models:GAT",
        "pyg:torch_geometric.nn:GCNConv",
        "pyg:torch_geometric.nn:TAGConv",
    ],
)
def test_pyg_s_models_and_layers_are_encoders(reference: str) -> None:
    encoder = ENCODERS.find(reference)
    assert encoder is ENCODERS.find(reference) and not encoder.packs
    assert ENCODERS.name_of(reference).startswith(f"pyg:{reference.rpartition(':')[2]}@")
    made = encoder(FEATURES, SETTINGS)
    assert made(GRAPH, view_of(GRAPH), None).all().shape == (NODES, SETTINGS.embedding)


def test_only_parameters_are_kept_of_a_model() -> None:
    one, other = encoder_of(Isomorphism, 0), encoder_of(Isomorphism, 1)
    assert [name for name, _ in one.model.named_buffers()] == ["layer.eps"]
    other.load_state_dict({name: value.detach() for name, value in one.named_parameters()})
    view = view_of(GRAPH)
    assert torch.equal(one(GRAPH, view, None).all(), other(GRAPH, view, None).all())


class NoOutputs(nn.Module):
    def __init__(self, in_channels: int, hidden_channels: int) -> None:
        super().__init__()


class Map(nn.Module):
    """A linear map, for models that get one thing wrong."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.map = nn.Linear(in_channels, out_channels)

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        return self.map(x)


class OneArgument(Map):
    def forward(self, x: Tensor) -> Any:  # type: ignore[override]
        return self.map(x)


class Pooled(Map):
    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        return self.map(x).mean(0, keepdim=True)


class Fixed(Map):
    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        return self.map(x).detach()


class AlwaysDrops(Map):
    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        return F.dropout(self.map(x))


class Normed(Map):
    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__(in_channels, out_channels)
        self.norm = BatchNorm(out_channels)

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        return self.norm(self.map(x))


BAD: list[tuple[Any, str]] = [
    (NoOutputs, "NoOutputs: the constructor has no parameter out_channels; add it."),
    (OneArgument, "forward(x, edge_index) fails: TypeError: "),
    (Pooled, "returns a tensor of shape (1, 16) for 5 nodes and out_channels=16; expected a tensor of"),
    (Fixed, "it has no trainable parameters."),
    (AlwaysDrops, "its output is random in evaluation mode; call F.dropout(..., training=self.training)."),
    (Normed, "training changes the buffer norm.module.running_mean, which is not saved; use LayerNorm"),
    (tiny, "encoder tiny: expected a class that inherits from torch.nn.Module."),
    (dict, "encoder dict: expected a class that inherits from torch.nn.Module."),
]


@pytest.mark.parametrize(("model", "words"), BAD, ids=[model.__name__ for model, _ in BAD])
def test_a_model_that_does_not_fit_is_refused_in_one_line(model: Any, words: str) -> None:
    with pytest.raises(UserError) as refused:
        adapted(model)
    assert words in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.parametrize("method", one_of_each_kind(["hag-meta", "meta-gnn", "posterior-means"]))
def test_a_run_with_a_model_repeats(tiny_graph: Dataset, tiny: Any, method: str) -> None:
    config = tiny(method=method, encoder=f"pyg:{__file__}:Own")
    assert "one seed at a time" in " ".join(remarks(resolve(config)))
    first = records_of(config, [0, 1], tiny_graph)
    again = records_of(config, [1], tiny_graph)
    assert first[1]["matrix"] == again[0]["matrix"]
    assert first[1]["accuracy"] != first[0]["accuracy"]
