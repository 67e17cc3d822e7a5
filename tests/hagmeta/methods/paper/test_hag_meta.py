from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from hagmeta.config.run_config import RunConfig
from hagmeta.datasets.base import Dataset
from hagmeta.engine.context import Context
from hagmeta.engine.run import prepare, pretrain
from hagmeta.engine.training.meta_training import meta_train
from hagmeta.methods import MetaTraining, Method, Sizes, make_method
from hagmeta.methods.paper.hag_meta import binary_loss, categorical_loss
from hagmeta.packs.pack import Pack
from hagmeta.packs.randomness import keys
from hagmeta.scenarios.scenario import TRAIN
from hagmeta.testing import check_packs, check_plain

CPU = torch.device("cpu")
Small = Callable[..., RunConfig]
SEEDS = [0, 5]
TOGGLES = [dict(zip(("gpil", "nla", "tla"), on, strict=True)) for on in product([False, True], repeat=3)]
SIZES = Sizes(features=30, base_classes=4, n_way=2, classes=14)


def normal(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def method_of(config: RunConfig, seed: int = 0) -> Method:
    return make_method(config, SIZES, seed)


@pytest.mark.parametrize("nla", [False, True])
@pytest.mark.parametrize("tla", [False, True])
def test_a_toggle_that_is_off_leaves_no_parameters(small: Small, nla: bool, tla: bool) -> None:
    parts = {name.partition(".")[0] for name, _ in method_of(small(nla=nla, tla=tla)).named_parameters()}
    expected = {"encoder"} | ({"node_attention"} if nla else set()) | ({"task_attention"} if tla else set())
    assert parts == expected


@pytest.mark.parametrize("encoder", ["gcn", "gat"])
def test_with_a_seed_all_toggles_start_from_the_same_parameters(small: Small, encoder: str) -> None:
    full = dict(method_of(small(encoder=encoder)).named_parameters())
    for toggles in TOGGLES:
        mine = dict(method_of(small(encoder=encoder, loss="binary", **toggles)).named_parameters())
        assert all(torch.equal(value, full[name]) for name, value in mine.items()), toggles
    other = dict(method_of(small(encoder=encoder), seed=1).named_parameters())
    assert not torch.equal(other["encoder.first.weight"], full["encoder.first.weight"])


def test_supervised_instead_of_gpil_teaches_the_encoder_and_tla_and_leaves_nla_as_it_began(
    dataset: Dataset, small: Small
) -> None:
    learnt = {}
    for settings in ({}, {"gpil": False}, {"gpil": False, "instead_of_gpil": "supervised"}):
        context = prepare(small(weight_decay=0.1, **settings), SEEDS, dataset, CPU)
        pack = pretrain(context)
        before = pack.snapshot()
        meta_train(context, pack)
        learnt[context.meta_training] = {
            name.partition(".")[0] for name, value in pack.parameters.items() if not value.equal(before[name])
        }
    assert learnt == {
        MetaTraining.INCREMENTAL: {"encoder", "node_attention", "task_attention"},
        MetaTraining.NONE: set(),
        MetaTraining.SUPERVISED: {"encoder", "task_attention"},
    }


HELD_OUT: dict[str, Any] = {"n_way": 1, "classes": (2, 3, 4), "val_classes": 2}


def test_supervised_in_packs_and_plain() -> None:
    for check in (check_packs, check_plain):
        check("hag-meta", gpil=False, instead_of_gpil="supervised", pretrain_on="known", protocol="released")


def packed(context: Context) -> tuple[Pack, list[Method]]:
    sizes = Sizes(context.graph.num_features, len(context.scenarios[0].split.base), context.tasks.n_way, 14)
    methods = [make_method(context.settings, sizes, seed) for seed in SEEDS]
    return Pack(methods, CPU), methods


def visible_loops(context: Context, visible: np.ndarray) -> Tensor:
    return torch.from_numpy(context.graph.loops.toarray() * np.outer(visible, visible))


def embeddings(context: Context, encoder: Any, visible: np.ndarray) -> Tensor:
    """What a GCN gives every node, from dense matrices alone."""
    loops = visible_loops(context, visible)
    scale = loops.sum(1).clamp(min=1).rsqrt()
    adjacency = scale[:, None] * loops * scale
    features = context.graph.features.product(torch.eye(context.graph.num_features))
    hidden = torch.relu(adjacency @ features @ encoder.first.weight + encoder.first.bias)
    result: Tensor = adjacency @ hidden @ encoder.second.weight + encoder.second.bias
    return result


def support_weights(context: Context, attention: Any, visible: np.ndarray, support: np.ndarray) -> Tensor:
    """Equations 7 to 10 for supports (classes, shots); equal weights without NLA."""
    if attention is None:
        return torch.full(support.shape, 1 / support.shape[-1])
    score = attention.last(torch.relu(embeddings(context, attention.convolutions, visible))).squeeze(-1)
    score = torch.sigmoid(score * visible_loops(context, visible).sum(1).log())
    return score[support].softmax(-1)


@pytest.mark.parametrize("nla", [False, True])
@torch.no_grad()
def test_answers_are_distances_to_train_means_and_weighted_supports(
    dataset: Dataset, small: Small, nla: bool
) -> None:
    # Without NLA, and with or without TLA, which only weighs losses, it is the paper's Proto-GNN.
    context = prepare(small(nla=nla), SEEDS, dataset, CPU)
    pack, methods = packed(context)
    streams = [scenario.test for scenario in context.scenarios]
    known = context.known.session(streams, 2)
    shared = context.tasks.shared(known, streams[0].sizes(2))
    (logits,) = pack.run("logits", (shared,), known.view, (context.tasks.session(streams, 2),))
    for index, (scenario, stream, method) in enumerate(zip(context.scenarios, streams, methods, strict=True)):
        visible, support = stream.arrived(2), np.concatenate(stream.support)
        embedded = embeddings(context, method.encoder, visible)
        means = [embedded[scenario.nodes_of(np.array([c]), TRAIN)].mean(0) for c in stream.known]
        weights = support_weights(context, method.node_attention, visible, support)
        cached = (weights.unsqueeze(-1) * embedded[support]).sum(1)
        queries = embedded[stream.queries[2]]
        distances = (queries[:, None] - torch.cat([torch.stack(means), cached])).square().sum(-1)
        ours = logits[index, : len(queries)].softmax(-1)
        torch.testing.assert_close(ours, (-distances).softmax(-1), rtol=1e-3, atol=1e-6)


@torch.no_grad()
def test_tla_weighs_the_loss_of_a_class_by_one_plus_its_weight(dataset: Dataset, small: Small) -> None:
    # Without dropout, the logits of both are the same and only the weights of the loss differ.
    losses, logits = {}, {}
    for tla in (False, True):
        context = prepare(small(tla=tla, dropout=0.0), SEEDS, dataset, CPU)
        streams = [scenario.test for scenario in context.scenarios]
        known = context.known.session(streams, 1)
        shared = context.tasks.shared(known, streams[0].sizes(1))
        target = torch.arange(11).expand(2, -1)
        task = context.tasks.session(streams, 1)._replace(query=torch.arange(22).view(2, 11))
        key = keys(SEEDS, "dropout")
        losses[tla], logits[tla] = packed(context)[0].run("loss", (shared,), known.view, task, target, key)
    assert torch.equal(logits[False], logits[True])
    # The classes' weights sum to one, so that the weighted loss is above the plain one, by at most its worst.
    plain = torch.nn.functional.cross_entropy(logits[True].mT, target, reduction="none")
    torch.testing.assert_close(losses[False], plain.mean(-1))
    extra = (losses[True] - losses[False]) * 11
    assert (plain.amin(-1) <= extra).all() and (extra <= plain.amax(-1)).all()


@pytest.mark.parametrize("loss", ["categorical", "binary"])
def test_losses_are_the_printed_formulas(loss: str) -> None:
    logits, target, weights = (
        normal(6, 4),
        torch.tensor([0, 3, 1, 1, 2, 0]),
        torch.tensor([1.0, 1.5, 2.0, 1.25]),
    )
    share = np.exp(logits.double().numpy())
    share /= share.sum(axis=1, keepdims=True)
    expected = 0.0
    for row, truth in zip(share, target.tolist(), strict=True):
        if loss == "categorical":
            expected -= weights[truth].item() * np.log(row[truth])
        else:
            for c in range(4):
                expected -= weights[c].item() * np.log(row[c] if c == truth else 1 - row[c])
    function = {"categorical": categorical_loss, "binary": binary_loss}[loss]
    assert function(logits, target, weights).item() == pytest.approx(expected / 6, rel=1e-5)


@pytest.mark.parametrize("function", [categorical_loss, binary_loss])
def test_losses_of_the_surest_answers_stay_finite(function: Callable[..., Tensor]) -> None:
    logits = torch.tensor([[1000.0, -1000.0], [-1000.0, 1000.0]], requires_grad=True)
    for target in (torch.tensor([0, 1]), torch.tensor([1, 0])):
        loss = function(logits, target, torch.ones(2))
        (gradient,) = torch.autograd.grad(loss, logits)
        assert loss.isfinite() and gradient.isfinite().all()
