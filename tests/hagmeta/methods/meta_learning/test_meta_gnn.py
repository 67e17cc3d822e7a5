from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any

import pytest
import torch
from torch import Tensor

from hagmeta.config.run_config import RunConfig
from hagmeta.datasets.base import Dataset
from hagmeta.engine.context import Context
from hagmeta.engine.run import prepare, pretrain
from hagmeta.engine.sessions import evaluate_streams
from hagmeta.engine.training.meta_training import Episode, few_shot_episodes
from hagmeta.packs.pack import Pack
from hagmeta.packs.randomness import keys

CPU = torch.device("cpu")
SEEDS = [0, 5]
KEY = keys(SEEDS, "dropout")
Small = Callable[..., RunConfig]


def trained_a_little(config: RunConfig, dataset: Dataset) -> tuple[Context, Pack, Episode]:
    context = prepare(config, SEEDS, dataset, CPU)
    pack = pretrain(context)
    (episode,) = islice(few_shot_episodes(context, context.known.training()), 1)
    return context, pack, episode


def gradients(pack: Pack, episode: Episode) -> dict[str, Tensor]:
    losses, _ = episode.loss(pack, KEY)
    values = torch.autograd.grad(losses.sum(), list(pack.parameters.values()))
    return dict(zip(pack.parameters, values, strict=True))


@torch.no_grad()
def slope_along(pack: Pack, episode: Episode, direction: dict[str, Tensor]) -> float:
    """The change of the losses along a direction of length one, by central differences."""
    length = length_of(direction)
    step, before, losses = 2e-3, pack.snapshot(), []
    for sign in (1, -1):
        pack.restore({n: before[n] + sign * step * direction[n] / length for n in before})
        losses.append(float(episode.loss(pack, KEY)[0].double().sum()))
    pack.restore(before)
    return (losses[0] - losses[1]) / (2 * step)


def length_of(direction: dict[str, Tensor]) -> float:
    return float(torch.sqrt(sum(value.square().sum() for value in direction.values())))


@pytest.mark.parametrize("encoder", ["gcn", pytest.param("gat", marks=pytest.mark.slow)])
def test_the_gradient_through_the_inner_steps_is_that_of_finite_differences(
    dataset: Dataset, small: Small, encoder: str
) -> None:
    # Along its own gradient a loss rises by the gradient's length.
    config = small(method="meta-gnn", encoder=encoder, inner_rate=0.1, inner_steps=3)
    _, pack, episode = trained_a_little(config, dataset)
    gradient = gradients(pack, episode)
    assert slope_along(pack, episode, gradient) == pytest.approx(length_of(gradient), rel=0.02)


def test_first_order_leaves_the_way_through_the_inner_steps_out(dataset: Dataset, small: Small) -> None:
    settings: dict[str, Any] = {"method": "meta-gnn", "inner_rate": 0.3, "inner_steps": 3}
    _, pack, episode = trained_a_little(small(**settings), dataset)
    _, other, _ = trained_a_little(small(**settings, first_order=True), dataset)
    assert torch.equal(episode.loss(pack, KEY)[0], episode.loss(other, KEY)[0])
    second, first = gradients(pack, episode), gradients(other, episode)
    difference = {name: second[name] - first[name] for name in second}
    assert length_of(difference) > 0.05 * length_of(second)
    # So it is not the slope of the loss, though it points up.
    slope = slope_along(pack, episode, first)
    assert slope > 0 and abs(slope - length_of(first)) > 0.05 * slope


def test_without_inner_steps_it_classifies_by_distance_to_means(dataset: Dataset, small: Small) -> None:
    logits = []
    for method in ("meta-gnn", "frozen"):
        context = prepare(small(method=method, inner_steps=0, pretrain_on="base"), SEEDS, dataset, CPU)
        pack = pretrain(context)
        streams = [scenario.test for scenario in context.scenarios]
        known = context.known.session(streams, 2)
        shared = context.tasks.shared(known, streams[0].sizes(2))
        with torch.no_grad():
            logits += pack.run("logits", (shared,), known.view, (context.tasks.session(streams, 2),))
    torch.testing.assert_close(logits[0], logits[1], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("steps", [1, 4])
def test_inner_steps_lower_the_loss_on_the_supports(dataset: Dataset, small: Small, steps: int) -> None:
    losses = []
    for count in (0, steps):
        config = small(method="meta-gnn", inner_steps=count, dropout=0.0)
        _, pack, episode = trained_a_little(config, dataset)
        support = episode.task.support.flatten(1)
        target = torch.arange(2).repeat_interleave(3).expand(2, -1)
        task = episode.task._replace(query=support)
        losses.append(pack.run("loss", (episode.shared,), episode.view, task, target, KEY)[0])
    assert (losses[1] < losses[0]).all()


def test_a_session_leaves_what_was_meta_learnt_as_it_was(dataset: Dataset, small: Small) -> None:
    context = prepare(small(method="meta-gnn"), SEEDS, dataset, CPU)
    pack = pretrain(context)
    before = pack.snapshot()
    evaluate_streams(context, pack, [scenario.test for scenario in context.scenarios], "test")
    assert all(torch.equal(value, before[name]) for name, value in pack.snapshot().items())
