"""The temperature is the most likely one, comes from validation nodes alone, and changes no prediction."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.special
import torch

from hagmeta.config.run_config import RunConfig
from hagmeta.datasets.base import Dataset
from hagmeta.engine.context import Context
from hagmeta.engine.engine import SessionEngine
from hagmeta.engine.run import prepare, pretrain, train_and_evaluate
from hagmeta.engine.scores.temperature import fitted_temperature
from hagmeta.scenarios.evaluator import calibration_error
from hagmeta.scenarios.scenario import VAL
from hagmeta.testing import records_of, with_other_labels

CPU = torch.device("cpu")
Tiny = Callable[..., RunConfig]


@pytest.mark.parametrize("temperature", [0.25, 1.0, 5.0])
def test_the_temperature_of_a_model_is_found_again(temperature: float) -> None:
    rng = np.random.default_rng(0)
    logits = 2 * rng.standard_normal((20_000, 4))
    shares = scipy.special.softmax(logits, axis=1)
    target = (shares.cumsum(1) < rng.random((len(shares), 1))).sum(1)
    scaled = scipy.special.log_softmax(temperature * logits, axis=1)
    assert fitted_temperature(scaled, target) == pytest.approx(temperature, rel=0.05)
    tempered = scipy.special.softmax(scaled / temperature, axis=1)
    right = tempered.argmax(1) == target
    assert calibration_error(tempered.max(1), right) < 0.015
    if temperature != 1:
        assert calibration_error(np.exp(scaled).max(1), right) > 0.1


def test_certain_and_right_models_have_a_temperature() -> None:
    assert fitted_temperature(np.array([[0.0, -1e3]] * 3), np.array([0] * 3)) > 0


@contextmanager
def watched() -> Iterator[list[torch.Tensor]]:
    """The temperatures that runs find."""
    found: list[torch.Tensor] = []
    fit = SessionEngine._fitted_temperature

    def kept(self: Any, *arguments: Any) -> torch.Tensor:
        found.append(fit(self, *arguments))
        return found[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SessionEngine, "_fitted_temperature", kept)
        yield found


def temperatures(context: Context) -> torch.Tensor:
    with watched() as found:
        train_and_evaluate(context, pretrain(context))
    (once,) = found
    return once


def test_validation_labels_of_known_classes_decide_and_no_others(tiny_graph: Dataset, tiny: Tiny) -> None:
    context = prepare(tiny(method="proto-gcn", smoothing=0.5), [0, 5], tiny_graph, CPU)
    found = temperatures(context)
    assert torch.equal(found, temperatures(with_other_labels(context, "permuted")))
    others = []
    for scenario in context.scenarios:
        nodes, labels = scenario.nodes_of(scenario.test.known, VAL), scenario.labels.copy()
        labels[nodes] = np.random.default_rng(0).permutation(labels[nodes])
        others.append(replace(scenario, labels=labels))
    assert (found != temperatures(replace(context, scenarios=others))).all()


def test_records_have_the_tempered_error_unless_validation_nodes_are_scored(
    tiny_graph: Dataset, tiny: Tiny
) -> None:
    for changes in ({}, {"rehearsal": "none", "logit_adjustment": 1.0}):
        (record,) = records_of(tiny(method="sgc-lda", **changes), [0], tiny_graph)
        both = record["calibration_error"], record["tempered_calibration_error"]  # type: ignore[typeddict-item]
        assert len(both[0]) == len(both[1]) == len(record["accuracy"]) and both[0] != both[1]
    for absent in ({"scored_on": "validation"}, {"protocol": "released", "method": "proto-gcn"}):
        (record,) = records_of(tiny(**{"method": "sgc-lda"} | absent), [0], tiny_graph)
        assert "tempered_calibration_error" not in record
