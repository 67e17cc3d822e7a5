"""Replace what a method must not see: labels that are hidden, and nodes that have not arrived."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import scipy.sparse

from hagmeta.datasets.base import Dataset
from hagmeta.engine.context import Context
from hagmeta.scenarios.scenario import TEST, TRAIN, Scenario


def forbidden_nodes(context: Context, scenario: Scenario) -> np.ndarray:
    """Return the nodes whose labels are hidden from the method.

    These are the test nodes of every class, and all nodes of novel-test classes except their supports. An
    oracle may know the train nodes of novel-test classes.
    """
    forbidden = (scenario.split.role == TEST) | np.isin(scenario.labels, scenario.split.novel_test)
    forbidden[np.concatenate(scenario.test.support)] = False
    if context.method.traits.oracle:
        forbidden[scenario.split.role == TRAIN] = False
    return np.flatnonzero(forbidden)


def with_other_labels(context: Context, kind: str) -> Context:
    """Return ``context`` with other labels at forbidden nodes. ``kind`` is ``permuted`` or ``garbage``."""
    rng = np.random.default_rng(0)
    scenarios = []
    for scenario in context.scenarios:
        nodes, labels = forbidden_nodes(context, scenario), scenario.labels.copy()
        if kind == "permuted":
            labels[nodes] = rng.permutation(labels[nodes])
        else:
            labels[nodes] = rng.integers(scenario.num_classes, size=len(nodes))
        assert (labels != scenario.labels).mean() > 0.1, "too few labels are hidden to check anything"
        scenarios.append(replace(scenario, labels=labels))
    return replace(context, scenarios=scenarios)


def with_noise_at(dataset: Dataset, nodes: np.ndarray) -> Dataset:
    """Return a copy of ``dataset`` with random features and edges at ``nodes``."""
    rng = np.random.default_rng(0)
    noisy = np.isin(np.arange(dataset.num_nodes), nodes)
    dense = isinstance(dataset.features, np.ndarray)
    given = dataset.features if isinstance(dataset.features, np.ndarray) else dataset.features.toarray()
    noise = rng.random((dataset.num_nodes, dataset.num_features))
    features = np.where(noisy[:, None], noise, given).astype(np.float32)
    touching = noisy[dataset.edges].any(axis=1)
    ends = np.stack(
        [rng.choice(nodes, touching.sum()), rng.integers(dataset.num_nodes, size=touching.sum())], axis=1
    )
    ends = np.unique(np.sort(ends[ends[:, 0] != ends[:, 1]], axis=1), axis=0)
    edges = np.concatenate([dataset.edges[~touching], ends])
    return replace(dataset, edges=edges, features=features if dense else scipy.sparse.csr_matrix(features))


@contextmanager
def labels_in_place(dataset: Dataset, labels: np.ndarray) -> Iterator[None]:
    """Overwrite the labels of ``dataset`` temporarily, since a method may hold a reference to them."""
    before, writeable = dataset.labels.copy(), dataset.labels.flags.writeable
    dataset.labels.flags.writeable = True
    dataset.labels[:] = labels
    try:
        yield
    finally:
        dataset.labels[:] = before
        dataset.labels.flags.writeable = writeable
