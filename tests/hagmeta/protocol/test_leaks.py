"""Nothing that a model may not know changes anything that it does: to the bit.

Each check is also run on `released`, the authors' procedure, where it must find the leak.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from hagmeta.config import RunConfig
from hagmeta.datasets.base import Dataset
from hagmeta.methods import METHODS
from hagmeta.methods.closed_form import OnFeatures
from hagmeta.packs.pack import no_progress
from hagmeta.pipeline import prepare, pretrain
from hagmeta.sparse.graph import Graph
from hagmeta.testing import live, same_answers, same_parameters, trained, with_noise_at, with_other_labels

CPU = torch.device("cpu")
SEEDS = [0, 5]
SUPERVISED = {"method": "hag-meta", "gpil": False, "instead_of_gpil": "supervised"}
WAYS: dict[str, dict[str, Any]] = {method: {"method": method} for method in METHODS}
WAYS |= {"hag-meta supervised": SUPERVISED}
VARIANTS = {
    "hag-meta over a gat": {"method": "hag-meta", "encoder": "gat"},
    "hag-meta over sage": {"method": "hag-meta", "encoder": "sage"},
    "hag-meta over sgc": {"method": "hag-meta", "encoder": "sgc"},
    "icarl over an mlp": {"method": "icarl", "encoder": "mlp"},
    **WAYS,
}
Small = Tiny = Callable[..., RunConfig]


@pytest.mark.parametrize("variant", VARIANTS)
def test_strict_ignores_the_labels_of_test_and_unsupported_novel_nodes(
    tiny_graph: Dataset, tiny: Tiny, variant: str
) -> None:
    config = tiny(**VARIANTS[variant], episodes=2, validate_every=2)
    context = prepare(config, SEEDS, tiny_graph, CPU)
    pack, answers = live(context)
    for kind in ("permuted", "garbage"):
        other_pack, other_answers = live(with_other_labels(context, kind))
        assert same_parameters(pack, other_pack), kind
        assert same_answers(answers, other_answers), kind


def test_an_oracle_is_one_because_other_labels_change_it(dataset: Dataset, small: Small) -> None:
    # What it is allowed beyond the others does matter: with those labels replaced too, it answers otherwise.
    oracles = [name for name, method in METHODS.items() if method.traits.oracle]
    assert oracles == ["joint"]
    context = prepare(small(method="joint"), SEEDS, dataset, CPU)
    honest = prepare(small(method="frozen"), SEEDS, dataset, CPU)
    others = replace(context, scenarios=with_other_labels(honest, "permuted").scenarios)
    assert not same_answers(live(context)[1], live(others)[1])


def test_an_oracle_knows_no_class_before_it_is_met(dataset: Dataset, small: Small) -> None:
    context = prepare(small(method="joint"), SEEDS, dataset, CPU)
    scenarios = []
    for scenario in context.scenarios:
        labels = scenario.labels.copy()
        late = np.flatnonzero(scenario.test.readable_from > 1)
        labels[late] = np.random.default_rng(0).integers(scenario.num_classes, size=len(late))
        assert np.isin(labels[late], scenario.test.met(1)).any()
        scenarios.append(replace(scenario, labels=labels))
    answers, others = live(context)[1], live(replace(context, scenarios=scenarios))[1]
    assert same_answers([seed[:2] for seed in answers], [seed[:2] for seed in others])
    assert not same_answers([seed[2:] for seed in answers], [seed[2:] for seed in others])


@pytest.mark.parametrize("way", WAYS)
def test_released_learns_from_the_labels_that_strict_ignores(narrow: Dataset, small: Small, way: str) -> None:
    # The same check, on the authors' procedure: it must fail there, or it proves nothing.
    context = prepare(small(**WAYS[way], protocol="released", episodes=4), SEEDS, narrow, CPU)
    pack, answers = live(context)
    other_pack, other_answers = live(with_other_labels(context, "permuted"))
    method = METHODS[WAYS[way]["method"]]
    stays = way in ("frozen", "teen", "tlp") or issubclass(method, OnFeatures)
    assert same_parameters(pack, other_pack) == stays
    assert not same_answers(answers, other_answers)


@pytest.mark.parametrize("variant", VARIANTS)
def test_training_ignores_features_and_edges_of_invisible_nodes(
    tiny_graph: Dataset, tiny: Tiny, variant: str
) -> None:
    context = prepare(tiny(**VARIANTS[variant], episodes=4), [3], tiny_graph, CPU)
    hidden = np.flatnonzero(~context.scenarios[0].validation.arrived(0))
    assert len(hidden) > 100
    noisy = replace(context, graph=Graph(with_noise_at(tiny_graph, hidden), CPU))
    assert same_parameters(trained(context), trained(noisy))


@pytest.mark.parametrize("way", WAYS)
def test_sessions_ignore_features_and_edges_of_classes_still_to_come(
    tiny_graph: Dataset, tiny: Tiny, way: str
) -> None:
    context = prepare(tiny(**WAYS[way], episodes=2, validate_every=2), [3], tiny_graph, CPU)
    late = np.flatnonzero(context.scenarios[0].test.arrival > 1)
    noisy = replace(context, graph=Graph(with_noise_at(tiny_graph, late), CPU))
    answers, others = live(context)[1], live(noisy)[1]
    assert same_answers([seed[:2] for seed in answers], [seed[:2] for seed in others])
    assert not same_answers([seed[2:] for seed in answers], [seed[2:] for seed in others])


def test_training_notices_noise_at_a_single_visible_node(dataset: Dataset, small: Small) -> None:
    # The check above has teeth: one visible node among the noisy ones is enough to fail it.
    context = prepare(small(), [3], dataset, CPU)
    seen = np.flatnonzero(context.scenarios[0].validation.arrived(0))
    noisy = replace(context, graph=Graph(with_noise_at(dataset, seen[:1]), CPU))
    packs = [pretrain(each, None, no_progress) for each in (context, noisy)]
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
    assert same_parameters(pretrain(context, None, no_progress), pretrain(noisy, None, no_progress))
