"""What `released` fixes, and what it leaves to the user."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from hagmeta.config.run_config import RunConfig, resolve
from hagmeta.datasets.base import Dataset
from hagmeta.engine.run import prepare, pretrain, train_and_evaluate
from hagmeta.methods import METHODS

CPU = torch.device("cpu")
Small = Callable[..., RunConfig]


def test_released_fixes_the_form_of_nla() -> None:
    fixed = resolve(RunConfig.of(protocol="released", nla_weights="softmax"))
    assert fixed.nla_weights == "share" and fixed == resolve(RunConfig.of(protocol="released"))  # type: ignore[attr-defined]


@pytest.mark.parametrize("method", METHODS)
def test_faithful_is_a_setting_of_released(method: str) -> None:
    faithful, not_so = (
        resolve(RunConfig.of(method=method, protocol="released", faithful=given)) for given in (True, False)
    )
    assert faithful.normalisation == "whole" and not_so.normalisation == "visible"
    assert faithful.given() == [] and not_so.given() == ["faithful"]
    assert (
        faithful.hash() == resolve(RunConfig.of(method=method, protocol="released")).hash() != not_so.hash()
    )
    strict = resolve(RunConfig.of(method=method, faithful=True))
    assert not strict.faithful and "faithful" not in strict.canonical()
    built = method in ("hag-meta", "proto-gcn", "proto-gat", "gpn", "random-encoder", "frozen", "joint")
    assert METHODS[method].second_prototypes is built


@pytest.mark.parametrize("method", ["hag-meta", "gpn"])
def test_nodes_without_neighbours_do_no_harm(dataset: Dataset, small: Small, method: str) -> None:
    """In the authors' code the logarithm of no neighbours makes NaN of everything."""
    lonely = np.arange(0, dataset.num_nodes, 2)
    kept = ~np.isin(dataset.edges, lonely).any(axis=1)
    context = prepare(
        small(method=method, protocol="released"), [0, 5], replace(dataset, edges=dataset.edges[kept]), CPU
    )
    supports = np.concatenate(
        [np.concatenate(scenario.test.support).ravel() for scenario in context.scenarios]
    )
    assert np.isin(supports, lonely).any()
    pack = pretrain(context)
    train_and_evaluate(context, pack)
    for name, value in pack.parameters.items():
        assert value.isfinite().all(), name
