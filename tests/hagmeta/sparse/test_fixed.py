"""Inputs propagated once per view, compared with inputs propagated in every step."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.func import vmap

from hagmeta import datasets
from hagmeta.config.run_config import RunConfig, resolve
from hagmeta.engine.context import Context
from hagmeta.engine.run import prepare
from hagmeta.layers.encoders.base import Encoder
from hagmeta.layers.encoders.gcn import GCN
from hagmeta.layers.encoders.registry import ENCODERS
from hagmeta.packs.pack import Pack
from hagmeta.packs.randomness import keys
from hagmeta.sparse.graph import Graph, View
from hagmeta.sparse.matrices import DenseSeedwiseMatrix, SeedwiseMatrix
from hagmeta.sparse.products import matmul
from hagmeta.testing import records_of

CPU = torch.device("cpu")
on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
DEVICES = [CPU, pytest.param(torch.device("cuda"), marks=on_gpu)]
WORDS = "synthetic:nodes=700,edges=4000,features=150,classes=14,seed=1"
DENSE = WORDS.replace("150", "20") + ",dense=1"
ONCE = [name for name, encoder in ENCODERS.items() if encoder.propagates]
SEEDS = [0, 1, 2]  # their views have different sizes


def config(dataset: str, **settings: object) -> RunConfig:
    task = dict(classes=(4, 5, 5), n_way=2, k_shot=3, hidden=24, embedding=8)
    return resolve(RunConfig.of(dataset=dataset, **{**task, **settings}))  # type: ignore[arg-type]


def context(
    dataset: str, device: torch.device = CPU, seeds: list[int] = SEEDS, **settings: object
) -> Context:
    chosen = config(dataset, inputs="svd" if dataset == WORDS else "raw", **settings)
    return prepare(chosen, seeds, datasets.load(dataset, Path()), device)


def seen(context: Context) -> View:
    views = context.known.views
    return views.view(context.scenarios, [views.seen_first(scenario) for scenario in context.scenarios])


def encoded(encoder: str, context: Context, *, once: bool) -> tuple[Tensor, dict[str, Tensor]]:
    """Return embeddings (pack, nodes, width) of some visible nodes, and the gradients of a sum of them."""
    view, graph = seen(context), context.graph
    if once:
        graph = graph.propagated_once({ENCODERS[encoder].propagates}, view, context.seeds)
    modules: list[Encoder] = []
    for seed in context.seeds:
        torch.manual_seed(seed)
        modules.append(ENCODERS[encoder](context.known.views.sizes.features, context.settings))
    pack = Pack([_Wrapped(module) for module in modules], graph.device)
    nodes = torch.stack([visible.nonzero().squeeze(-1)[:50] for visible in view.visible])
    key = keys(context.seeds, "test").to(graph.device)
    embedded = pack.run("at", (graph,), view, key, nodes)
    (embedded * torch.linspace(-1, 1, 8, device=graph.device)).sin().sum().backward()
    return embedded.detach(), {
        name: value.grad for name, value in pack.parameters.items() if value.grad is not None
    }


class _Wrapped(torch.nn.Module):
    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, step: str, graph: Graph, view: View, key: Tensor, nodes: Tensor) -> Tensor:
        if step == "around":
            assert isinstance(self.encoder, GCN)
            return self.encoder.at_few_nodes(graph, view, key).at(nodes)
        found: Tensor = self.encoder(graph, view, key).at(nodes)
        return found


def close(given: Tensor, expected: Tensor) -> None:
    given, expected = given.detach(), expected.detach()
    assert float((given - expected).norm()) <= 1e-5 * float(expected.norm()) + 1e-7


@pytest.mark.parametrize("device", DEVICES, ids=str)
@pytest.mark.parametrize("dataset", [WORDS, DENSE])
@pytest.mark.parametrize("encoder", ONCE)
def test_values_and_gradients_are_those_of_every_step(
    encoder: str, dataset: str, device: torch.device
) -> None:
    each = context(dataset, device, encoder=encoder)
    (once, slopes), (every, expected) = (encoded(encoder, each, once=it_is) for it_is in (True, False))
    close(once, every)
    assert slopes.keys() == expected.keys() and slopes
    for name, slope in slopes.items():
        close(slope, expected[name])


@pytest.mark.parametrize("dataset", [WORDS, DENSE])
def test_a_seed_has_the_same_bits_alone_and_in_a_pack(dataset: str) -> None:
    together, slopes = encoded("gcn", context(dataset), once=True)
    alone, own = encoded("gcn", context(dataset, seeds=[1]), once=True)
    assert torch.equal(together[1], alone[0])
    for name, slope in own.items():
        assert torch.equal(slopes[name].select(-2, 1), slope.select(-2, 0)), name


@pytest.mark.parametrize("device", DEVICES, ids=str)
def test_members_with_the_same_seed_share_a_matrix(device: torch.device) -> None:
    each = context(DENSE, device)
    view = seen(each)
    members = [0, 1, 1, 2, 1]
    several = View(*(part[members] for part in view[:3]))
    fixed = each.graph.propagated_once({"aggregated"}, several, members).fixed["aggregated"]
    weights = torch.randn(5, 20, 24, device=device)
    single = each.graph.propagated_once({"aggregated"}, view, SEEDS).fixed["aggregated"]
    close(fixed.spread(weights)[:, [0, 4, 3]], single.spread(weights[[0, 4, 3]]))
    dense = torch.randn(700, 5, 24, device=device)
    close(fixed.collect(dense)[[0, 2, 3]], single.collect(dense[:, [0, 2, 3]]))


@pytest.mark.parametrize("device", DEVICES, ids=str)
@pytest.mark.parametrize("once", [False, True])
def test_a_layer_around_a_few_nodes_gives_their_embeddings(once: bool, device: torch.device) -> None:
    each = context(DENSE, device)
    view, graph = seen(each), each.graph
    if once:
        graph = graph.propagated_once({"aggregated"}, view, SEEDS)
    torch.manual_seed(0)
    pack = Pack([_Wrapped(GCN(20, each.settings)) for _ in SEEDS], device)
    nodes = torch.stack([visible.nonzero().squeeze(-1)[40:45] for visible in view.visible])
    found = []
    for step in ("around", "at"):
        embedded = pack.run(step, (graph,), view, keys(SEEDS, "test").to(device), nodes)
        embedded.sin().sum().backward()
        found.append((embedded, *(value.grad for value in pack.parameters.values())))
        for value in pack.parameters.values():
            value.grad = None
    for given, expected in zip(*found, strict=True):
        close(given, expected)


def test_it_pays_for_dense_inputs_and_many_steps() -> None:
    dense, words = context(DENSE).graph, context(WORDS).graph
    assert dense.pays_once("raw", steps=1000, columns=32)
    assert not dense.pays_once("raw", steps=1, columns=8)  # 16 columns there and back instead of 20
    assert not words.pays_once("raw", steps=1000, columns=32)
    assert not words.pays_once("tf-idf", steps=1000, columns=32)


def test_phases_share_propagated_inputs_of_equal_views() -> None:
    each = context(DENSE, episodes=100)
    training = each.known.training()
    assert training.graph.fixed
    streams = [scenario.validation for scenario in each.scenarios]
    assert each.known.session(streams, 0, learns=False).graph is training.graph
    tested = [scenario.test for scenario in each.scenarios]
    later = each.known.session(tested, 1, learns=False)
    assert not later.graph.fixed, "another view, without steps"


@pytest.mark.parametrize("method", ["hag-meta", pytest.param("posterior-means", marks=pytest.mark.slow)])
def test_whole_runs_agree(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    short = dict(pretrain_epochs=10, episodes=6, validate_every=3, finetune_steps=2)
    chosen, dataset = config(DENSE, method=method, **short), datasets.load(DENSE, Path())
    once = records_of(chosen, [0], dataset)[0]
    monkeypatch.setattr(Graph, "pays_once", lambda *arguments: False)
    every = records_of(chosen, [0], dataset)[0]
    np.testing.assert_allclose(once["accuracy"], every["accuracy"], atol=0.01)


@on_gpu
@pytest.mark.parametrize("filled", [0.1, 0.9])
def test_class_means_of_dense_graphs(filled: float) -> None:
    gpu = torch.device("cuda")
    transposed = torch.rand(5000, 3, 7, device=gpu) * (torch.rand(5000, 3, 7, device=gpu) < filled)
    transposed[..., 2] = 0
    transposed = transposed / 1000
    matrix = SeedwiseMatrix.from_transposed(transposed)
    assert isinstance(matrix, DenseSeedwiseMatrix) == (filled == 0.9)
    rows = torch.randn(3, 5000, 16, device=gpu, requires_grad=True)
    given = vmap(lambda x: matmul(matrix, x))(rows)
    expected = torch.einsum("npc,pnw->pcw", transposed, rows)
    close(given, expected)
    slopes = [torch.autograd.grad(each.sin().sum(), rows)[0] for each in (given, expected)]
    close(*slopes)
