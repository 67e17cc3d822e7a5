"""Which labels are learnt from, and which again: those that the settings forbid change nothing, to the bit.

Each check is also run on a planted leak, which it must find.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from hagmeta.config import RunConfig, resolve
from hagmeta.datasets.base import NodeDataset
from hagmeta.methods import METHODS
from hagmeta.packs.pack import State, no_progress
from hagmeta.phases.context import Context
from hagmeta.phases.pretrain import pretrained_encoders
from hagmeta.pipeline import prepare
from hagmeta.protocol.scenario import TEST, Scenario
from hagmeta.protocol.strict import Strict

CPU = torch.device("cpu")
SEEDS = [0, 5]
Small = Callable[..., RunConfig]


# Pre-training.


def with_garbage_at(context: Context, forbidden: Callable[[Scenario], np.ndarray]) -> Context:
    """The same scenarios, with other labels at forbidden nodes: those of any class, or of forbidden ones."""
    rng = np.random.default_rng(0)
    scenarios = []
    for scenario in context.scenarios:
        mask, labels = forbidden(scenario), scenario.labels.copy()
        others = np.unique(labels[mask])
        labels[mask] = rng.choice(others, mask.sum())
        assert (labels != scenario.labels).sum() > 20
        scenarios.append(replace(scenario, labels=labels))
    return replace(context, scenarios=scenarios)


def same_encoders(one: Context, other: Context) -> bool:
    states: list[list[State]] = [pretrained_encoders(each, None, no_progress) for each in (one, other)]
    pairs = zip(*states, strict=True)
    return all(torch.equal(value, right[name]) for left, right in pairs for name, value in left.items())


def of_novel_train(scenario: Scenario) -> np.ndarray:
    return np.isin(scenario.labels, scenario.split.novel_train)


def held_out_or_unseen(scenario: Scenario) -> np.ndarray:
    return ~np.isin(scenario.labels, scenario.trained)


def asked(scenario: Scenario) -> np.ndarray:
    return scenario.split.role == TEST


def test_pretraining_on_base_ignores_the_labels_of_all_other_classes(
    dataset: NodeDataset, small: Small
) -> None:
    context = prepare(small(pretrain_epochs=10), SEEDS, dataset, CPU)
    assert same_encoders(context, with_garbage_at(context, of_novel_train))
    # The same check must fail where those labels may be read, or it proves nothing.
    known = prepare(small(pretrain_epochs=10, pretrain_on="known"), SEEDS, dataset, CPU)
    assert not same_encoders(known, with_garbage_at(known, of_novel_train))
    assert not same_encoders(context, known)


@pytest.mark.parametrize("forbidden", [held_out_or_unseen, asked])
def test_pretraining_on_known_classes_ignores_held_out_and_novel_test_classes_and_test_nodes(
    dataset: NodeDataset, small: Small, forbidden: Callable[[Scenario], np.ndarray]
) -> None:
    settings = small(pretrain_epochs=10, pretrain_on="known", val_classes=2)
    context = prepare(settings, SEEDS, dataset, CPU)
    for scenario in context.scenarios:
        classes = context.protocol.pretrain_classes(scenario)
        assert set(classes) == set(scenario.split.base) | set(scenario.meta_classes)
    assert same_encoders(context, with_garbage_at(context, forbidden))


def test_the_check_finds_pretraining_on_held_out_classes(
    dataset: NodeDataset, small: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = small(pretrain_epochs=10, pretrain_on="known", val_classes=2)
    context = prepare(settings, SEEDS, dataset, CPU)
    monkeypatch.setattr(Strict, "pretrain_classes", lambda self, scenario: scenario.test.known)
    assert not same_encoders(context, with_garbage_at(context, held_out_or_unseen))


def test_released_decides_what_pretraining_learns_from() -> None:
    for method in METHODS:
        plain = RunConfig(method=method, protocol="released")
        config = RunConfig(method=method, protocol="released", pretrain_on="base")
        assert not config.applies("pretrain_on") and "pretrain_on" not in config.canonical()
        assert resolve(config) == resolve(plain) and resolve(config).hash() == resolve(plain).hash()
        assert RunConfig(method=method, pretrain_on="known").hash() != RunConfig(method=method).hash()
