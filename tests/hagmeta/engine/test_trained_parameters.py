"""The number of trained parameters of a record is that of the parameters that training changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from hagmeta.config.run_config import RunConfig, resolve
from hagmeta.datasets.base import Dataset
from hagmeta.engine.options import Mode
from hagmeta.engine.run import prepare, pretrain, train_and_evaluate, trained_parameters
from hagmeta.methods import make_method

CPU = torch.device("cpu")
Tiny = Callable[..., RunConfig]


@pytest.mark.parametrize(("mode", "seeds"), [("plain", [0]), ("captured", [0, 1])])
@pytest.mark.parametrize(
    "case",
    [
        {"method": "hag-meta"},
        {"method": "er-gnn"},  # has a head
        {"method": "sgc-lda", "features": "encoder"},  # its encoder is frozen after pre-training
        {"method": "ewc"},  # has parameters that only hooks change
        {"gpil": False, "pretrain_epochs": 0, "k_shot": 3},  # trained in sessions only
        {"gpil": False, "finetune_steps": 0},  # trained in pre-training only
    ],
    ids=str,
)
def test_counted_are_the_parameters_that_change(
    tiny_graph: Dataset, tiny: Tiny, case: dict[str, Any], mode: Mode, seeds: list[int]
) -> None:
    context = prepare(resolve(tiny(**case)), seeds, tiny_graph, CPU, mode=mode)
    before = dict(make_method(context.members[0], context.known.views.sizes, seeds[0]).named_parameters())
    pack = pretrain(context)
    train_and_evaluate(context, pack)
    after = pack.states()[0]
    changed = [
        value.numel()
        for name, value in before.items()
        if (value.requires_grad or name.startswith("encoder.")) and not after[name].equal(value)
    ]
    assert trained_parameters(context, pack) == sum(changed) > 0


@pytest.mark.parametrize(
    "case",
    [{"method": "random-encoder"}, {"gpil": False, "pretrain_epochs": 0, "finetune_steps": 0}],
    ids=str,
)
def test_nothing_is_counted_without_training(tiny_graph: Dataset, tiny: Tiny, case: dict[str, Any]) -> None:
    context = prepare(resolve(tiny(**case)), [0], tiny_graph, CPU)
    pack = pretrain(context)
    train_and_evaluate(context, pack)
    assert trained_parameters(context, pack) == 0
