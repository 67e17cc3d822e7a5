"""Play a stream of the study with a learner."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from hagmeta import Dataset, Learner, datasets
from hagmeta.config.run_config import RunConfig, resolve, runs_in_packs
from hagmeta.engine.context import Context
from hagmeta.engine.options import mode_of
from hagmeta.engine.run import prepare
from hagmeta.packs.randomness import stream as random_stream
from hagmeta.scenarios.scenario import TRAIN, VAL
from hagmeta.testing import CPU, GRAPH, SEED, SMALL

TASK: dict[str, Any] = {"classes": (4, 0, 6), "n_way": 2, "k_shot": 2}
OF_THE_STUDY = ("dataset", "classes")
Look = Callable[[Dataset, np.ndarray], Dataset]  # from a graph and a mask of nodes


def small_graph() -> Dataset:
    return datasets.load(GRAPH, Path())


def clear_graph(nodes: int = 200, classes: int = 8) -> Dataset:
    """A graph whose classes have words and neighbours of their own. Node ids are strings."""
    rng = np.random.default_rng(0)
    labels = np.arange(nodes) % classes
    words = 4 * labels[:, None] + rng.integers(4, size=(nodes, 4))
    features = np.zeros((nodes, 4 * classes), dtype=np.float32)
    np.put_along_axis(features, words, 1, axis=1)
    features[np.arange(nodes), rng.integers(4 * classes, size=nodes)] = 1
    ends = (np.arange(nodes)[:, None] + classes * rng.integers(1, nodes // classes, size=(nodes, 2))) % nodes
    edges = np.stack([np.repeat(np.arange(nodes), 2), ends.ravel()], axis=1)
    return Dataset.from_arrays(
        np.unique(np.sort(edges, axis=1), axis=0),
        labels,
        scipy.sparse.csr_matrix(features),
        name="clear",
        node_ids=[f"n{node}" for node in range(nodes)],
    )


def study(method: str, dataset: Dataset, **settings: Any) -> tuple[Context, Learner]:
    """The context of a run on `dataset`, and a learner with the same settings."""
    given: dict[str, Any] = {**SMALL, **TASK, **settings}
    config = resolve(RunConfig.of({"method": method, "dataset": dataset, **given}))
    own = {name: value for name, value in given.items() if name not in OF_THE_STUDY}
    plain = not runs_in_packs(config)
    return prepare(config, [SEED], dataset, CPU, mode=mode_of(plain=plain)), Learner(
        method, seed=SEED, device="cpu", **own
    )


def whole(dataset: Dataset, visible: np.ndarray) -> Dataset:
    assert visible.all()
    return dataset


def part(dataset: Dataset, visible: np.ndarray) -> Dataset:
    """The graph of the visible nodes. Their ids are their rows in `dataset`."""
    nodes = np.flatnonzero(visible)
    place = np.cumsum(visible) - 1
    edges = place[dataset.edges[visible[dataset.edges].all(1)]]
    return replace(
        dataset,
        edges=edges,
        labels=dataset.labels[nodes],
        features=dataset.features[nodes],
        node_ids=tuple(nodes.tolist()),
    )


def shuffled(dataset: Dataset, visible: np.ndarray) -> Dataset:
    """The graph of the visible nodes, in another order in each session."""
    ids = np.flatnonzero(visible)
    order = np.random.default_rng(len(ids)).permutation(len(ids))
    smaller = part(dataset, visible)
    place = np.argsort(order)
    return replace(
        smaller,
        edges=np.sort(place[smaller.edges], axis=1),
        labels=smaller.labels[order],
        features=smaller.features[order],
        node_ids=tuple(ids[order].tolist()),
    )


def played(context: Context, dataset: Dataset, learner: Learner, look: Look = whole) -> list[np.ndarray]:
    """The classes that a learner predicts for the queries of each session of the test stream."""
    (scenario,) = context.scenarios
    stream, names = scenario.test, dataset.class_names
    known = [c for c in _by_size(dataset) if c in stream.known]

    def of(role: int) -> dict[int, str]:
        rows = [np.flatnonzero((scenario.split.role == role) & (scenario.labels == c)) for c in known]
        return {int(n): names[c] for c, nodes in zip(known, rows, strict=True) for n in nodes}

    answers = []
    for session in range(stream.sessions + 1):
        graph = look(dataset, context.protocol.visible(scenario, stream, session))
        if session:
            pairs = zip(stream.arriving[session - 1], stream.support[session - 1], strict=True)
            learner.learn(graph, {names[c]: nodes for c, nodes in pairs})
        else:
            learner.fit(graph, of(TRAIN), validation=of(VAL))
        answers.append(learner.predict(graph, stream.queries[session]))
    return answers


def _by_size(dataset: Dataset) -> list[int]:
    """The classes in the order from which the study draws those that play new ones."""
    tie = random_stream(SEED, "split/ties").permutation(dataset.num_classes)
    order: list[int] = np.lexsort((tie, -dataset.class_sizes)).tolist()
    return order
