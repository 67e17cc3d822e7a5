from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch
import torch.nn.functional as F
from torch import Tensor

from hagmeta.config.run_config import RunConfig
from hagmeta.datasets.base import Dataset
from hagmeta.engine.context import Context
from hagmeta.engine.run import prepare, pretrain, train_and_evaluate
from hagmeta.engine.training.meta_training import Episode, few_shot_episodes, meta_train
from hagmeta.methods.meta_learning.amm_gnn import MatchedGCN, cosines, half_shares
from hagmeta.packs.pack import Pack
from hagmeta.packs.randomness import keys
from hagmeta.sparse.graph import Graph, View

CPU = torch.device("cpu")
SEEDS = [0, 5]
Small = Callable[..., RunConfig]


def lived(config: RunConfig, dataset: Dataset) -> tuple[dict[str, Tensor], list[np.ndarray]]:
    """Return the meta-learnt parameters and all predictions."""
    context = prepare(config, SEEDS, dataset, CPU)
    pack = pretrain(context)
    evaluators, _ = train_and_evaluate(context, pack)
    return pack.snapshot(), [answer for each in evaluators for answer in each.predictions.predicted]


def trained(config: RunConfig, dataset: Dataset) -> tuple[Context, Pack, Episode]:
    context = prepare(config, SEEDS, dataset, CPU)
    pack = pretrain(context)
    meta_train(context, pack)
    (episode,) = islice(few_shot_episodes(context, context.known.training()), 1)
    return context, pack, episode


def of_seed(view: View, seed: int) -> View:
    visible, scale, log_degree = (part[seed] for part in view[:3])
    return View(visible, scale, log_degree, inputs=tuple(part[seed] for part in view.inputs))


@pytest.mark.parametrize("protocol", ["strict", pytest.param("released", marks=pytest.mark.slow)])
def test_without_matching_it_is_meta_gnn_to_the_bit(tiny_graph: Dataset, tiny: Small, protocol: str) -> None:
    common: dict[str, Any] = {"protocol": protocol, "episodes": 3}
    states, answers = lived(tiny(method="amm-gnn", matching=0.0, **common), tiny_graph)
    expected, known = lived(tiny(method="meta-gnn", **common), tiny_graph)
    assert all(torch.equal(states[name], value) for name, value in expected.items())
    assert states.keys() - expected.keys() == {"matcher.weight", "matcher.bias"}
    for answer, other in zip(answers, known, strict=True):
        np.testing.assert_equal(answer, other)


def test_a_scaled_and_shifted_weight_equals_scaled_and_shifted_inputs() -> None:
    # Against the definition, in double precision, on a dense graph of six nodes of which one is hidden.
    random = np.random.default_rng(0)
    features = random.random((6, 4)).astype(np.float32)
    edges = np.array([[0, 1], [0, 2], [1, 3], [2, 3], [3, 4], [0, 5], [4, 5]])
    dataset = Dataset("tiny", edges, np.zeros(6, dtype=np.int64), scipy.sparse.csr_matrix(features), ("one",))
    graph = Graph(dataset, CPU)
    view = of_seed(graph.view(np.array([[True] * 5 + [False]])), 0)
    scale, shift = (torch.tensor(random.random(4), dtype=torch.float32) for _ in range(2))
    encoder = MatchedGCN(4, RunConfig.of(hidden=3, embedding=2))
    found = encoder(graph, view._replace(session_statistics=(scale, shift)), None).all()

    near = torch.from_numpy(dataset.adjacency.toarray()).double() * view.visible * view.visible[:, None]
    root = near.sum(1).clamp(min=1).rsqrt()
    spread = near * root * root[:, None]
    inputs = torch.from_numpy(features).double() * scale + shift
    weights = [parameter.detach().double() for parameter in encoder.parameters()]
    hidden = F.relu(spread @ inputs @ weights[0] + weights[1])
    expected = spread @ hidden @ weights[2] + weights[3]
    torch.testing.assert_close(found[:5].double(), expected[:5], rtol=1e-5, atol=1e-6)


def test_halves_average_their_supports() -> None:
    shares = half_shares(torch.tensor([3, 1, 4, 1, 0]), 6)
    expected = [[1 / 3, 0], [0, 1], [0, 0], [1 / 3, 0], [1 / 3, 0], [0, 0]]
    torch.testing.assert_close(shares, torch.tensor(expected))
    assert half_shares(torch.tensor([2]), 3)[2].tolist() == [1, 1]
    assert not half_shares(torch.tensor([], dtype=torch.int64), 3).any()


def test_agreement_is_the_cosine_of_both_draws() -> None:
    drawn = torch.randn(20, 2, 2, generator=torch.Generator().manual_seed(0))
    expected = F.cosine_similarity(drawn[:, 0], drawn[:, 1], dim=0)
    torch.testing.assert_close(cosines(drawn), expected)
    assert cosines(torch.zeros(20, 2, 2)).tolist() == [0, 0]


def test_matching_learns_from_the_queries_and_agreement_lowers_the_loss(
    dataset: Dataset, small: Small
) -> None:
    settings: dict[str, Any] = {"method": "amm-gnn", "agreement": 0.0, "episodes": 2, "dropout": 0.0}
    _, pack, episode = trained(small(**settings), dataset)
    key = keys(SEEDS, "dropout")
    without, logits = episode.loss(pack, key)
    (gradient,) = torch.autograd.grad(without.sum(), [pack.parameters["matcher.weight"]])
    assert (gradient != 0).all()
    _, other, episode = trained(small(**settings | {"agreement": 0.5}), dataset)
    other.restore(pack.snapshot())
    weighted, same = episode.loss(other, key)
    assert torch.equal(logits, same)
    assert ((without - weighted) <= 0.5 * 2 + 1e-6).all() and (weighted < without).all()


@pytest.mark.parametrize("inputs", ["raw", "tf-idf", "svd"])
def test_scales_come_from_the_inputs_of_the_supports(dataset: Dataset, small: Small, inputs: str) -> None:
    context, _, episode = trained(small(method="amm-gnn", inputs=inputs, episodes=1), dataset)
    nodes = episode.task.support.flatten(1)
    for seed in range(len(SEEDS)):
        view = of_seed(episode.view, seed)
        found = context.graph.summed(half_shares(nodes[seed], dataset.num_nodes), view)
        rows = context.graph.dense_inputs(view, nodes[seed])
        expected = torch.stack([rows[::2].mean(0), rows[1::2].mean(0)], dim=-1)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)
