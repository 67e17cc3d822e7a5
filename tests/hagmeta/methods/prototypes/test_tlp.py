"""TLP, against the logistic regression of scikit-learn on the same features."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import softmax
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import MinMaxScaler

from hagmeta.config.run_config import RunConfig
from hagmeta.datasets.base import Dataset
from hagmeta.engine.run import prepare, pretrain
from hagmeta.layers.logistic import chunk, logistic_regression
from hagmeta.layers.statistics import LabelledRows
from hagmeta.scenarios.scenario import TRAIN

CPU = torch.device("cpu")
SEED, SESSION = 3, 2
TOLERANCE = 1e-3  # of probabilities
Small = Callable[..., RunConfig]


def reference(penalty: float, **weights: Any) -> LogisticRegression:
    return LogisticRegression(C=1 / penalty, tol=1e-8, max_iter=10_000, **weights)


@pytest.mark.parametrize(
    ("sizes", "width", "apart", "penalty"),
    [
        ([200] * 8 + [5] * 6, 16, 1.5, 1.0),
        pytest.param([200] * 8 + [5] * 6, 16, 0.3, 1.0, marks=pytest.mark.slow),
        ([400] * 4 + [1] * 3, 24, 4.0, 0.01),
        ([3, 3, 2], 8, 1.0, 10.0),
    ],
)
def test_probabilities_are_those_of_scikit_learn(
    sizes: list[int], width: int, apart: float, penalty: float
) -> None:
    random = np.random.default_rng(0)
    label = np.repeat(np.arange(len(sizes)), sizes)
    rows = apart * random.normal(size=(len(sizes), width))[label] + random.normal(size=(len(label), width))
    rows = MinMaxScaler().fit_transform(rows)
    expected = reference(penalty, class_weight="balanced").fit(rows, label).predict_proba(rows)
    share = torch.from_numpy((1 / np.array(sizes, dtype=np.float32))[label]).unsqueeze(-1)
    owner = torch.from_numpy(label).unsqueeze(-1)
    single = torch.from_numpy(rows).float()
    chunks = [
        chunk(single[part], share[part], owner[part], len(sizes))
        for part in torch.arange(len(label)).split(100)
    ]
    weights = logistic_regression(chunks, torch.tensor(penalty * len(sizes) / len(label))).double().numpy()
    given = softmax(rows @ weights[:-1] + weights[-1], axis=-1)
    np.testing.assert_allclose(given, expected, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        pytest.param({"rehearsal": 2}, marks=pytest.mark.slow),
        pytest.param({"probe_penalty": 0.1, "encoder": "gat"}, marks=pytest.mark.slow),
    ],
)
def test_a_session_is_scored_by_a_regression_on_all_readable_labels(
    dataset: Dataset, small: Small, changes: dict[str, Any]
) -> None:
    config = small(method="tlp", pretrain_epochs=20, **changes)
    context = prepare(config, [7, SEED], dataset, CPU)
    pack = pretrain(context)
    streams = [scenario.test for scenario in context.scenarios]
    known = context.known.session(streams, SESSION)
    shared = context.tasks.shared(known, streams[0].sizes(SESSION))
    everyone = torch.arange(context.graph.num_nodes).expand(2, -1)
    features = pack.run("embeddings", (shared,), known.view, everyone)[1].double().numpy()
    (logits,) = pack.run("logits", (shared,), known.view, (context.tasks.session(streams, SESSION),))
    features = MinMaxScaler().fit(features[known.view.visible[1].bool().numpy()]).transform(features)
    stream = streams[1]
    nodes, given = known.averaged_over[1]
    at_start = np.isin(given, stream.known)
    supports = [list(of) for part in stream.supports(SESSION) for of in part]
    shots = config.k_shot or 0
    assert [len(of) for of in supports] == [changes.get("rehearsal", shots)] * 2 + [shots] * 2
    met = list(stream.met(SESSION))
    label = [met.index(c) for c in given[at_start]]
    label += [len(stream.known) + place for place, of in enumerate(supports) for _ in of]
    rows = features[[*nodes[at_start], *(node for of in supports for node in of)]]
    model = reference(config.probe_penalty, class_weight="balanced").fit(rows, label)
    queries = stream.queries[SESSION]
    expected = model.predict_proba(features[queries])
    found = softmax(logits[1, : len(queries)].double().numpy(), axis=-1)
    np.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCE)


def test_without_rehearsal_means_stand_for_the_nodes_of_earlier_classes(
    dataset: Dataset, small: Small
) -> None:
    context = prepare(small(method="tlp", rehearsal="none", pretrain_epochs=20), [SEED], dataset, CPU)
    pack = pretrain(context)
    stream, scenario = context.scenarios[0].test, context.scenarios[0]
    everyone = torch.arange(context.graph.num_nodes).unsqueeze(0)
    kept: tuple[torch.Tensor, ...] = ()
    rows, counts = np.empty((0, 8)), list[int]()
    for session in range(SESSION + 1):
        known = context.known.session([stream], session)
        shared = context.tasks.shared(known, stream.sizes(session))
        task = context.tasks.session([stream], session)._replace(class_statistics=kept)
        (logits,) = pack.run("logits", (shared,), known.view, (task,))
        kept = pack.run("class_statistics", (shared,), known.view, task)
        features = pack.run("embeddings", (shared,), known.view, everyone)[0].double().numpy()
        nodes = [scenario.nodes_of(np.array([c]), TRAIN) for c in stream.known]
        nodes = list(stream.support[session]) if session else nodes
        if session < SESSION:
            rows = np.concatenate([rows, [features[of].mean(0) for of in nodes]])
            counts += [len(of) for of in nodes]
    scaler = MinMaxScaler().fit(features[known.view.visible[0].bool().numpy()])
    label = [*range(len(counts)), *np.repeat(len(counts) + np.arange(len(nodes)), len(nodes[0]))]
    total, classes = sum(counts) + len(nodes) * len(nodes[0]), len(counts) + len(nodes)
    share = [*np.ones(len(counts)), *np.full(len(nodes) * len(nodes[0]), 1 / len(nodes[0]))]
    rows = scaler.transform(np.concatenate([rows, features[np.concatenate(nodes)]]))
    model = reference(1.0).fit(rows, label, sample_weight=np.array(share) * total / classes)
    expected = model.predict_proba(scaler.transform(features[stream.queries[SESSION]]))
    np.testing.assert_allclose(softmax(logits[0].double().numpy(), axis=-1), expected, rtol=0, atol=TOLERANCE)


def test_a_repeated_node_counts_once() -> None:
    nodes, share = torch.tensor([[4, 2, 4, 2], [1, 5, 6, 0]]), torch.tensor([[0.25] * 4, [0.5, 0.5, 0, 0]])
    assert LabelledRows(nodes, share, lambda rows: rows).counts().tolist() == [2, 2]
