from __future__ import annotations

from collections.abc import Callable

import torch

from hagmeta.config.run_config import RunConfig
from hagmeta.datasets.base import Dataset
from hagmeta.engine.run import prepare, pretrain, train_and_evaluate
from hagmeta.methods import make_method


def test_weights_stay_those_that_the_seed_draws(tiny_graph: Dataset, tiny: Callable[..., RunConfig]) -> None:
    context = prepare(tiny(method="random-encoder"), [3], tiny_graph, torch.device("cpu"))
    drawn = make_method(context.settings, context.known.views.sizes, 3).state_dict()
    pack = pretrain(context)
    train_and_evaluate(context, pack)
    (state,) = pack.states()
    assert state.keys() == drawn.keys()
    assert all(torch.equal(value, drawn[name]) for name, value in state.items())
