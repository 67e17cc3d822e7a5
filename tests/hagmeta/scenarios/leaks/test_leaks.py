"""Nothing that a model may not know changes anything that it does: to the bit.

Each check is also run on `released`, the authors' procedure, where it must find the leak.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from hagmeta.config.run_config import RunConfig
from hagmeta.datasets.base import Dataset
from hagmeta.engine.run import prepare, pretrain
from hagmeta.methods import METHODS
from hagmeta.sparse.graph import Graph
from hagmeta.testing import (
    check_no_leak,
    run_context,
    same_answers,
    same_parameters,
    with_noise_at,
    with_other_labels,
)

CPU = torch.device("cpu")
SEEDS = [0, 5]
Small = Callable[..., RunConfig]


# test_contract.py has all methods.
@pytest.mark.parametrize(
    "encoder", ["gat", *(pytest.param(each, marks=pytest.mark.slow) for each in ("mlp", "sage", "sgc"))]
)
def test_no_leak_through_an_encoder(encoder: str) -> None:
    check_no_leak("hag-meta", encoder=encoder)


def test_an_oracle_is_one_because_other_labels_change_it(dataset: Dataset, small: Small) -> None:
    # What it is allowed beyond the others does matter: with those labels replaced too, it answers otherwise.
    oracles = [name for name, method in METHODS.items() if method.traits.oracle]
    assert oracles == ["joint"]
    context = prepare(small(method="joint"), SEEDS, dataset, CPU)
    honest = prepare(small(method="frozen"), SEEDS, dataset, CPU)
    others = replace(context, scenarios=with_other_labels(honest, "permuted").scenarios)
    assert not same_answers(run_context(context)[1], run_context(others)[1])


def test_an_oracle_knows_no_class_before_it_is_met(dataset: Dataset, small: Small) -> None:
    context = prepare(small(method="joint"), SEEDS, dataset, CPU)
    scenarios = []
    for scenario in context.scenarios:
        labels = scenario.labels.copy()
        late = np.flatnonzero(scenario.test.labelled_from > 1)
        labels[late] = np.random.default_rng(0).integers(scenario.num_classes, size=len(late))
        assert np.isin(labels[late], scenario.test.met(1)).any()
        scenarios.append(replace(scenario, labels=labels))
    answers, others = run_context(context)[1], run_context(replace(context, scenarios=scenarios))[1]
    assert same_answers([seed[:2] for seed in answers], [seed[:2] for seed in others])
    assert not same_answers([seed[2:] for seed in answers], [seed[2:] for seed in others])


def test_released_learns_from_the_labels_that_strict_ignores(narrow: Dataset, small: Small) -> None:
    # The same check, on the authors' procedure: it must fail there, or it proves nothing.
    context = prepare(small(protocol="released", episodes=4), SEEDS, narrow, CPU)
    pack, answers = run_context(context)
    other_pack, other_answers = run_context(with_other_labels(context, "permuted"))
    assert not same_parameters(pack, other_pack)
    assert not same_answers(answers, other_answers)


def test_training_notices_noise_at_a_single_visible_node(dataset: Dataset, small: Small) -> None:
    # The check above has teeth: one visible node among the noisy ones is enough to fail it.
    context = prepare(small(), [3], dataset, CPU)
    seen = np.flatnonzero(context.scenarios[0].validation.arrived(0))
    noisy = replace(context, graph=Graph(with_noise_at(dataset, seen[:1]), CPU))
    packs = [pretrain(each) for each in (context, noisy)]
    assert not same_parameters(*packs)


def test_held_out_classes_are_invisible_and_unlabelled_in_training(dataset: Dataset, small: Small) -> None:
    context = prepare(small(val_classes=2), [0], dataset, CPU)
    scenario = context.scenarios[0]
    held_out = scenario.split.novel_train[-2:]
    assert not np.isin(held_out, scenario.meta_classes).any()
    assert not scenario.validation.arrived(0)[np.isin(dataset.labels, held_out)].any()
    noisy = replace(
        context, graph=Graph(with_noise_at(dataset, np.flatnonzero(~scenario.validation.arrived(0))), CPU)
    )
    assert same_parameters(pretrain(context), pretrain(noisy))
