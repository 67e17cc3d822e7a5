"""With `unlabelled_nodes: training`, nothing is learnt from queries: others of them change no prediction.

Test nodes lose their edges here. Then propagation tells no node about them, and all that is left is what a
method learns from unlabelled nodes. The features of every second test node are replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch

from hagmeta.common.transductive import marks
from hagmeta.config.remarks import remarks
from hagmeta.config.run_config import RunConfig, resolve
from hagmeta.datasets.base import Dataset
from hagmeta.engine.run import prepare, pretrain
from hagmeta.methods.posterior_means import method as posterior_means
from hagmeta.scenarios.evaluator import Evaluator
from hagmeta.scenarios.scenario import TEST, TRAIN, VAL
from hagmeta.sparse.graph import Graph
from hagmeta.testing import records_of, run_context, same_parameters

CPU = torch.device("cpu")
Tiny = Callable[..., RunConfig]
Told = list[tuple[np.ndarray, np.ndarray, np.ndarray]]  # by session: queries, classes and confidence
READ_OUT: dict[str, Any] = {"smoothing": 0.5, "prior": "estimated", "self_training": 2}
# What reads unlabelled nodes, with the method and its settings.
READERS: dict[str, tuple[str, dict[str, Any]]] = {
    "EM, coupling and the encoder": ("posterior-means", {"unlabelled_weight": 0.2, "random_features": 12}),
    "transport": ("pt-map", {}),
    "rectified means and a graph": ("laplacian-shot", {}),
    "a refitted basis": ("sgc-lda", {"refitted": True, "features": "propagated"}),
    "words": ("frozen", {"inputs": "svd"}),
    "distillation": ("lwf", {"distil_on": "visible"}),
    "ranges": ("tlp", {}),
    "smoothing, shares and guesses": ("proto-gcn", READ_OUT),
    "shares": ("frozen", {"prior": "estimated"}),
    "guesses": ("frozen", {"self_training": 4}),
}
BY_NEIGHBOURS = {  # these use unlabelled neighbours, and test nodes have none here
    "neighbours of supports": ("tap", {"neighbour_share": 0.5}),
    "neighbours' scores": ("frozen", {"smoothing": 0.5}),
    "neighbours' errors": ("frozen", {"smoothing": 0.5, "spread": "correct-and-smooth"}),
}


@contextmanager
def listening(told: Told) -> Iterator[None]:
    """Keep everything that is recorded, with the probabilities of predictions."""
    record = Evaluator.record

    def kept(self: Evaluator, queries: np.ndarray, classes: np.ndarray, *confidence: Any) -> None:
        told.append((queries, classes, confidence[-1]))  # with a temperature
        record(self, queries, classes, *confidence)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Evaluator, "record", kept)
        yield


def without_edges_at(dataset: Dataset, nodes: np.ndarray) -> Dataset:
    return replace(dataset, edges=dataset.edges[~np.isin(dataset.edges, nodes).any(axis=1)])


def with_features_at(dataset: Dataset, nodes: np.ndarray) -> Dataset:
    """Other words at `nodes`, as many as before."""
    features = scipy.sparse.lil_matrix(dataset.features)
    features[nodes] = features[nodes][:, np.random.default_rng(0).permutation(dataset.num_features)]
    return replace(dataset, features=scipy.sparse.csr_matrix(features))


def is_changed_by_other_queries(dataset: Dataset, config: RunConfig) -> bool:
    """Return whether parameters or predictions change with the features of other test nodes."""
    (scenario,) = prepare(config, [0], dataset, CPU).scenarios
    test = np.flatnonzero(scenario.split.role == TEST)
    alone = without_edges_at(dataset, test)
    context = prepare(config, [0], alone, CPU)
    other = replace(context, graph=Graph(with_features_at(alone, test[::2]), CPU))
    lives: list[tuple[Any, Told]] = []
    for each in (context, other):
        told: Told = []
        with listening(told):
            pack, _ = run_context(each)
        lives.append((pack, told))
    (one, first), (two, second) = lives
    if not same_parameters(one, two):
        return True
    for (queries, classes, sure), (_, others, as_sure) in zip(first, second, strict=True):
        kept = np.isin(queries, test[1::2])
        assert kept.any() and not kept.all()
        if (classes[kept] != others[kept]).any() or (sure[kept] != as_sure[kept]).any():
            return True
    return False


# The others are slow.
QUICK = ("EM, coupling and the encoder",)
CASES = [pytest.param(*READERS[n], id=n, marks=() if n in QUICK else pytest.mark.slow) for n in READERS]


@pytest.mark.parametrize(("method", "settings"), CASES)
def test_all_unlabelled_nodes_are_used_unless_they_are_refused(
    tiny_graph: Dataset, tiny: Tiny, method: str, settings: dict[str, Any]
) -> None:
    config = tiny(method=method, **settings)
    assert is_changed_by_other_queries(tiny_graph, config)
    assert not is_changed_by_other_queries(tiny_graph, replace(config, unlabelled_nodes="training"))


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        pytest.param(*BY_NEIGHBOURS[n], id=n, marks=() if n == "neighbours' errors" else pytest.mark.slow)
        for n in BY_NEIGHBOURS
    ],
)
def test_what_unlabelled_neighbours_tell_is_limited_to_train_nodes(
    tiny_graph: Dataset, tiny: Tiny, method: str, settings: dict[str, Any]
) -> None:
    answers = [
        records_of(tiny(method=method, unlabelled_nodes=name, **settings), [0], tiny_graph)[0]
        for name in ("all", "training")
    ]
    assert answers[0]["calibration_error"] != answers[1]["calibration_error"]


def test_hubs_are_train_nodes(tiny_graph: Dataset, tiny: Tiny) -> None:
    for name in ("all", "training"):
        context = prepare(tiny(method="rale", unlabelled_nodes=name), [0, 5], tiny_graph, CPU)
        view = context.known.session([scenario.test for scenario in context.scenarios], 2).view
        hubs = pretrain(context).run("_hubs", (context.graph,), view)
        roles = [scenario.split.role[each] for scenario, each in zip(context.scenarios, hubs, strict=True)]
        assert (np.stack(roles) == TRAIN).all() == (name == "training")


@pytest.mark.slow
def test_the_shrinkage_is_chosen_on_train_nodes(
    tiny_graph: Dataset, tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A choice among few values: other features rarely change it, so this looks at the nodes that decide.
    seen: list[int] = []
    choose = posterior_means.chosen_share

    def watched(features: torch.Tensor, *others: Any) -> torch.Tensor:
        seen.append(len(features))
        return choose(features, *others)

    monkeypatch.setattr(posterior_means, "chosen_share", watched)
    for name in ("all", "training"):
        context = prepare(
            tiny(method="posterior-means", random_features=12, unlabelled_nodes=name), [0], tiny_graph, CPU
        )
        (scenario,) = context.scenarios
        run_context(context)
        there = scenario.test.arrived(0)
        expected = there if name == "all" else there & (scenario.split.role == TRAIN)
        assert seen.pop() == expected.sum() and not seen


def test_the_pool_has_visible_train_nodes_alone(tiny_graph: Dataset, tiny: Tiny) -> None:
    for name in ("all", "training"):
        context = prepare(tiny(unlabelled_nodes=name), [0, 5], tiny_graph, CPU)
        streams = [scenario.test for scenario in context.scenarios]
        for session in range(streams[0].sessions + 1):
            view = context.known.session(streams, session).view
            assert view.learnable.shape == view.visible.shape
            for row, scenario in enumerate(context.scenarios):
                role, there = scenario.split.role, view.learnable[row].numpy() > 0
                seen = view.visible[row].numpy() > 0
                assert seen[role == TEST].any() and seen[role == VAL].any()
                assert np.array_equal(there, seen if name == "all" else seen & (role == TRAIN))


def test_records_of_inductive_runs_are_not_marked_as_transductive(tiny_graph: Dataset, tiny: Tiny) -> None:
    config = tiny(method="pt-map", smoothing=0.5)
    for name, transductive in (("all", True), ("training", False)):
        own = replace(config, unlabelled_nodes=name)
        (record,) = records_of(own, [0], tiny_graph)
        assert bool(record["traits"]["transductive"]) == transductive
        assert bool(marks(record["config"], record["traits"]["transductive"])) == transductive
        assert any("transductive" in note for note in remarks(resolve(own))) == transductive
