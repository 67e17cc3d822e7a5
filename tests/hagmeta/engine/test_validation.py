from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from hagmeta.config.run_config import RunConfig
from hagmeta.datasets.base import Dataset
from hagmeta.engine.run import prepare, pretrain, validate
from hagmeta.engine.training.validation import Validation
from hagmeta.scenarios.scenario import TEST
from hagmeta.testing import records_of

Small = Callable[..., RunConfig]
CPU = torch.device("cpu")


@pytest.mark.parametrize("held_out", [0, 2])
def test_validation_counts_every_class_the_same(dataset: Dataset, small: Small, held_out: int) -> None:
    context = prepare(small(method="frozen", val_classes=held_out), [0, 1], dataset, CPU)
    pack = pretrain(context)
    streams = [scenario.validation for scenario in context.scenarios]
    by_hand = []
    for seed, (scenario, stream) in enumerate(zip(context.scenarios, streams, strict=True)):
        sessions = []
        for session in range(stream.sessions + 1):
            known = context.known.session(streams, session)
            shared = context.tasks.shared(known, stream.sizes(session))
            with torch.no_grad():
                (logits,) = pack.run(
                    "logits", (shared,), known.view, (context.tasks.session(streams, session),)
                )
            nodes = stream.queries[session]
            answers = stream.met(session)[logits[seed].argmax(-1).numpy()[: len(nodes)]]
            truth = scenario.labels[nodes]
            sessions.append(np.mean([(answers[truth == c] == c).mean() for c in stream.met(session)]))
        by_hand.append(np.mean(sessions))
    with context.runtime.capture() as capture:
        assert Validation(context, pack, capture).accuracy() == pytest.approx(by_hand)


def test_scores_of_a_search_ignore_test_labels(dataset: Dataset, small: Small) -> None:
    config = small(method="sgc-ncm", features="propagated", val_classes=2)
    context = prepare(config, [0], dataset, CPU)
    (scenario,) = context.scenarios
    labels, nodes = scenario.labels.copy(), np.flatnonzero(scenario.split.role == TEST)
    labels[nodes] = np.random.default_rng(0).permutation(labels[nodes])
    other = replace(context, scenarios=[replace(scenario, labels=labels)])
    scores = [validate(each, pretrain(each)) for each in (context, other)]
    assert scores[0] == scores[1]


def test_a_run_scored_on_validation_nodes_has_the_scores_of_its_streams(
    dataset: Dataset, small: Small
) -> None:
    config = small(method="sgc-ncm", features="propagated", scored_on="validation")
    (record,) = records_of(config, [0], dataset)
    by_session = record["macro_accuracy"]
    assert record["validation"]["last"] == by_session[-1]
    assert record["validation"]["average"] == pytest.approx(np.mean(by_session))
    assert record["validation"]["stream"] == record["average_accuracy"]
