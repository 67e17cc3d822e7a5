from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.cluster import DBSCAN
from torch import Tensor

from hagmeta.config.run_config import RunConfig
from hagmeta.datasets.base import Dataset
from hagmeta.engine.run import prepare, pretrain
from hagmeta.methods.prototypes import lpmc
from hagmeta.methods.prototypes.lpmc import class_vectors, dbscan, once
from hagmeta.scenarios.scenario import TRAIN

CPU = torch.device("cpu")
Small = Callable[..., RunConfig]


def blobs(seed: int, nodes: int = 60, width: int = 3) -> np.ndarray:
    """Return rows around a few directions, and some far from all."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(6, width))
    return centres[rng.integers(6, size=nodes)] + rng.uniform(0, 0.6) * rng.normal(size=(nodes, width))


def expected_labels(rows: np.ndarray, eps: float, least: int) -> np.ndarray:
    """Return the clusters of scikit-learn, named by their first core node or by the lone node itself."""
    found = DBSCAN(eps=eps, min_samples=least, metric="cosine").fit(rows)
    names = np.arange(len(rows))
    for cluster in set(found.labels_) - {-1}:
        core = [i for i in found.core_sample_indices_ if found.labels_[i] == cluster]
        names[found.labels_ == cluster] = min(core)
    return names


def unit(rows: Tensor) -> Tensor:
    return F.normalize(rows, dim=-1)


def test_clusters_are_those_of_scikit_learn() -> None:
    sizes = set()
    for seed in range(40):
        rows, eps, least = blobs(seed), (0.5, 0.1, 0.02, 0.005)[seed % 4], (5, 3, 8)[seed % 3]
        labels = dbscan(unit(torch.from_numpy(rows)), torch.ones(len(rows)), eps, least).numpy()
        np.testing.assert_array_equal(labels, expected_labels(rows, eps, least))
        sizes.add(len(set(labels)))
    assert min(sizes) == 1 and len(sizes) > 10  # one cluster, many, and nodes outside all


def test_padding_and_repetition_change_nothing() -> None:
    rows = torch.from_numpy(blobs(1, nodes=20))
    alone = class_vectors(rows, torch.ones(20).double(), 0.1, 3)
    padded = torch.cat([rows, torch.from_numpy(blobs(2, nodes=30))])
    torch.testing.assert_close(class_vectors(padded, (torch.arange(50) < 20).double(), 0.1, 3), alone)
    twice = torch.arange(20).repeat_interleave(2)
    torch.testing.assert_close(
        class_vectors(rows[twice], once(twice.unsqueeze(0))[0].double(), 0.1, 3), alone
    )


def test_scores_are_weighted_cosines_to_cluster_centres() -> None:
    rows, query = blobs(3), blobs(4, nodes=7)
    labels = expected_labels(rows, 0.1, 3)
    assert 3 < len(set(labels)) < 40
    scores = np.zeros(len(query))
    for label in set(labels):
        members = rows[labels == label]
        centre = members.mean(0)
        cosine = query @ centre / np.linalg.norm(query, axis=1) / np.linalg.norm(centre)
        scores += len(members) / len(rows) * cosine
    vector = class_vectors(torch.from_numpy(rows), torch.ones(len(rows)).double(), 0.1, 3)
    np.testing.assert_allclose((unit(torch.from_numpy(query)) @ vector).numpy(), scores)


@torch.no_grad()
@pytest.mark.parametrize("least", [3, 4])
def test_a_new_class_is_one_cluster_or_its_supports(dataset: Dataset, small: Small, least: int) -> None:
    # With a distance of 2 all nodes are neighbours. Then only `cluster_nodes` decides, with 3 supports.
    context = prepare(small(method="lpmc", cluster_distance=2.0, cluster_nodes=least), [0], dataset, CPU)
    pack = pretrain(context)
    streams = [scenario.test for scenario in context.scenarios]
    known = context.known.session(streams, 1)
    shared = context.tasks.shared(known, streams[0].sizes(1))
    task = context.tasks.session(streams, 1)
    (vectors,) = pack.run("class_statistics", (shared,), known.view, task)
    rows = pack.run("embeddings", (shared,), known.view, task.support.flatten(1))
    rows = rows[0].unflatten(0, task.support.shape[1:])
    expected = unit(rows.mean(1)) if least == 3 else unit(rows).mean(1)
    torch.testing.assert_close(vectors[0, -2:], expected)
    assert vectors.shape[1] == task.classes.shape[1] and (vectors.norm(dim=-1) < 1.0001).all()


def test_at_most_some_train_nodes_of_a_class_are_clustered(
    dataset: Dataset, small: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lpmc, "MOST", 40)
    context = prepare(small(method="lpmc"), [0, 5], dataset, CPU)
    pack = pretrain(context)
    streams = [scenario.test for scenario in context.scenarios]
    known = context.known.session(streams, 1)
    shared = context.tasks.shared(known, streams[0].sizes(1))
    task = context.tasks.session(streams, 1)
    (nodes, weight), _ = pack.run(lambda method, *given: method._labelled(*given), (shared,), task)
    for seed, scenario in enumerate(context.scenarios):
        for known_class, of_class, each in zip(streams[seed].known, nodes[seed], weight[seed], strict=True):
            train = scenario.nodes_of(np.array([known_class]), TRAIN)
            chosen = of_class[each > 0].numpy()
            assert len(set(chosen)) == len(chosen) == min(40, len(train)) and np.isin(chosen, train).all()
            assert chosen.max() > np.median(train) > chosen.min()  # not only the first ones
