"""What `released` fixes, and what it leaves to the user."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from hagmeta.common.left_out import LEFT_OUT_AT
from hagmeta.config import SETTINGS, RunConfig, resolve
from hagmeta.datasets.base import Dataset
from hagmeta.methods import METHODS
from hagmeta.pipeline import live, prepare, pretrain
from hagmeta.protocol.released import Released
from hagmeta.testing import records_of

CPU = torch.device("cpu")
Small = Callable[..., RunConfig]
# What it has its own way with: labels, and answers.
OWN = ("pretrain_on", "rehearsal", "mislabelled", "unlabelled_nodes", "smoothing", "logit_adjustment")
OWN += ("prior", "self_training")
FORM = {name: value for name, value in Released.decides.items() if name not in OWN}
LEAKING = {"normalisation": "whole", "nla_degree": "whole"}  # they tell of nodes that are not visible yet


def test_the_authors_form_is_fixed_and_differs_from_every_default() -> None:
    fixed = resolve(RunConfig(protocol="released", nla_weights="softmax", tla_layers="three"))
    for name, value in FORM.items():
        assert getattr(fixed, name) == value != SETTINGS[name].default == LEFT_OUT_AT[name]
    assert fixed == resolve(RunConfig(protocol="released"))


def test_strict_can_have_what_does_not_leak() -> None:
    assert resolve(RunConfig(**LEAKING)) == resolve(RunConfig())
    harmless = {name: value for name, value in FORM.items() if name not in LEAKING}
    config = resolve(RunConfig(**harmless))
    assert sorted(config.given()) == sorted(harmless)
    assert config.hash() != resolve(RunConfig()).hash()


def test_strict_runs_with_the_authors_attentions(tiny_graph: Dataset, tiny: Small) -> None:
    harmless = {name: value for name, value in FORM.items() if name not in LEAKING}
    for name, value in harmless.items():
        (record,) = records_of(tiny(**{name: value}), [3], tiny_graph)
        assert np.isfinite(record["accuracy"]).all() and name in record["given"]


@pytest.mark.parametrize("method", METHODS)
def test_new_classes_have_second_prototypes_unless_told_otherwise(method: str) -> None:
    """Of the methods that are built on HAG-Meta's."""
    built = method in ("hag-meta", "proto-gcn", "proto-gat", "gpn", "frozen", "joint")
    by_default, off = (
        resolve(RunConfig(method=method, protocol="released", double_prototypes=given))
        for given in (None, False)
    )
    assert bool(by_default.double_prototypes) is built and not off.double_prototypes
    assert by_default.given() == [] and off.given() == ["double_prototypes"] * built
    assert (by_default.hash() != off.hash()) is built
    assert not resolve(RunConfig(method=method, double_prototypes=True)).double_prototypes  # strict has none


@pytest.mark.slow
def test_a_second_prototype_costs_accuracy_in_sessions_alone(dataset: Dataset, small: Small) -> None:
    def accuracy(**changes: Any) -> np.ndarray:
        config = small(protocol="released", pretrain_epochs=60, **changes)
        records = records_of(config, [0, 3, 7], dataset)
        return np.array([record["accuracy"] for record in records])

    double, single = accuracy(), accuracy(double_prototypes=False)
    assert (double[:, 0] == single[:, 0]).all()
    assert (double[:, 1] < single[:, 1]).all()


@pytest.mark.parametrize("method", ["hag-meta", "gpn"])
def test_nodes_without_neighbours_do_no_harm(dataset: Dataset, small: Small, method: str) -> None:
    """In the authors' code the logarithm of no neighbours makes NaN of everything."""
    lonely = np.arange(0, dataset.num_nodes, 2)
    kept = ~np.isin(dataset.edges, lonely).any(axis=1)
    context = prepare(
        small(method=method, protocol="released"), [0, 5], replace(dataset, edges=dataset.edges[kept]), CPU
    )
    supports = np.concatenate([scenario.test.support.ravel() for scenario in context.scenarios])
    assert np.isin(supports, lonely).any()
    pack = pretrain(context)
    live(context, pack)
    for name, value in pack.parameters.items():
        assert value.isfinite().all(), name
