"""Members of a pack may differ in some settings. Each run equals that in a pack of seeds, bit by bit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from hagmeta.config import RunConfig, may_differ, resolve
from hagmeta.datasets.base import Dataset
from hagmeta.methods import METHODS
from hagmeta.packs.pack import no_progress
from hagmeta.pipeline import Member, live, prepare_members, pretrain

CPU = torch.device("cpu")
Tiny = Callable[..., RunConfig]
SEEDS = (3, 0, 5)
# For every setting that any method lets differ: three values on one branch of the code.
VALUES: dict[str, tuple[Any, ...]] = {
    "learning_rate": (0.005, 0.05, 0.01),
    "weight_decay": (0.0005, 0.0, 0.05),
    "finetune_rate": (0.02, 0.005, 0.05),
    "dropout": (0.5, 0.2, 0.999),
    "smoothing": (0.3, 1.0, 0.6),
    "logit_adjustment": (0.5, 2.0, 1.0),
    "nla_rate": ("common", 0.1, 0.001),
    "nla_decay": (0.1, "common", 0.0),
    "distillation": (0.0, 2.0, 1.0),
    "temperature": (2.0, 1.0, 5.0),
    "cosine_scale": (16.0, 1.0, 40.0),
    "ridge": (0.1, 3.0, 0.01),
    "shrinkage": (0.1, 1.0, 0.5),
    "tukey": (0.7, 0.3, 0.9),
    "unlabelled": (0.1, 1.0, 0.01),
    "coupling": (4.0, 0.5, 1.0),
    "inner_rate": (0.02, 0.2, 0.001),
}


def mixed(config: RunConfig) -> list[Member]:
    """Return three members that differ in every setting that may."""
    names = may_differ(resolve(config))
    changed = [replace(config, **{name: VALUES[name][member] for name in names}) for member in range(3)]
    return list(zip(changed, SEEDS, strict=True))


def lived(members: list[Member], dataset: Dataset) -> list[Any]:
    """Return the final parameters, the predictions and the validation scores of each member."""
    context = prepare_members([(resolve(config), seed) for config, seed in members], dataset, CPU)
    pack = pretrain(context, None, no_progress)
    evaluators, validation = live(context, pack)
    made = [(vars(e.predictions), e.diagnostics()) for e in evaluators]
    states = [{name: value.numpy() for name, value in state.items()} for state in pack.states()]
    return list(zip(states, made, validation, strict=True))


@pytest.mark.parametrize("method", METHODS)
def test_a_member_is_the_same_to_the_bit_in_a_mixed_pack_and_in_one_of_seeds(
    tiny_graph: Dataset, tiny: Tiny, method: str
) -> None:
    members = mixed(tiny(method=method, pretrain_epochs=3, episodes=2))
    assert len({config.hash() for config, _ in members}) == 3
    for place, (together, (config, _)) in enumerate(zip(lived(members, tiny_graph), members, strict=True)):
        # At the same place of a pack, because the last few numbers of an array may be rounded differently.
        of_seeds = lived([(config, seed) for seed in SEEDS], tiny_graph)
        np.testing.assert_equal(together, of_seeds[place])
