"""The same code on a GPU. Rounding differs there, so that numbers are compared within a tolerance."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from hagmeta.capture import Steps
from hagmeta.config import RunConfig
from hagmeta.datasets.base import NodeDataset
from hagmeta.gpil import pseudo_episodes
from hagmeta.pack import Pack, no_progress
from hagmeta.pipeline import prepare, pretrain, run
from hagmeta.randomness import fold, keys

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
Small = Callable[..., RunConfig]
CPU, GPU = torch.device("cpu"), torch.device("cuda")


def trained(config: RunConfig, seeds: list[int], dataset: NodeDataset, device: torch.device) -> Pack:
    """A pack after a dozen steps of meta-training from its initial parameters."""
    stage = prepare(config, seeds, dataset, device)
    pack = pretrain(stage, None, no_progress)
    steps = Steps(pack, config.learning_rate, config.weight_decay, stage.capture())
    key = keys(seeds, "test")
    for number, episode in zip(range(12), pseudo_episodes(stage, stage.training()), strict=False):
        episode.learn(steps, fold(key, number))
    return pack


def largest_difference(one: Pack, other: Pack, index: int) -> float:
    state, expected = one.states()[index], other.states()[0]
    return max(float((value.cpu() - expected[name].cpu()).abs().max()) for name, value in state.items())


@pytest.mark.parametrize("encoder", ["gcn", "gat"])
def test_gpu_and_cpu_train_to_the_same_parameters(dataset: NodeDataset, small: Small, encoder: str) -> None:
    # Dropout masks are the same on both; Adam turns rounding into steps of its rate where gradients vanish.
    config = small(encoder=encoder, pretrain_epochs=0, learning_rate=1e-4)
    assert (
        largest_difference(trained(config, [3], dataset, GPU), trained(config, [3], dataset, CPU), 0) < 1e-3
    )


def test_a_seed_trains_alike_alone_and_in_a_pack(dataset: NodeDataset, small: Small) -> None:
    config = small(pretrain_epochs=0, learning_rate=1e-4)
    pack, alone = (trained(config, seeds, dataset, GPU) for seeds in ([0, 1, 3, 2], [3]))
    assert largest_difference(pack, alone, 2) < 1e-3


@pytest.mark.parametrize("protocol", ["strict", "released"])
def test_a_whole_run_agrees_with_the_cpu_on_average(
    dataset: NodeDataset, small: Small, protocol: str
) -> None:
    config = small(protocol=protocol, episodes=40, pretrain_epochs=60)
    accuracy = [
        np.mean([r["average_accuracy"] for r in run(config, range(8), dataset=dataset, device=device)])
        for device in (GPU, CPU)
    ]
    assert abs(accuracy[0] - accuracy[1]) < 0.03
