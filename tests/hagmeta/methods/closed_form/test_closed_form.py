"""Heads in closed form, each against a reference in float64, and the features that they are put on."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cdist
from scipy.special import softmax
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import Ridge
from sklearn.metrics.pairwise import euclidean_distances, rbf_kernel

from hagmeta.common.errors import UserError
from hagmeta.config.run_config import RunConfig, resolve
from hagmeta.datasets.base import Dataset
from hagmeta.engine import run as pipeline
from hagmeta.engine.context import Context
from hagmeta.engine.run import prepare, pretrain
from hagmeta.layers import statistics
from hagmeta.layers.statistics import MOMENT_COLUMNS, LabelledRows, moment, ridged, shrunk, solve
from hagmeta.methods import METHODS
from hagmeta.methods.closed_form.base import OF_THE_ENCODER, ClosedForm
from hagmeta.methods.transductive.base import WithUnlabelled
from hagmeta.packs.pack import Pack
from hagmeta.packs.randomness import keys, uniform
from hagmeta.scenarios.scenario import TRAIN
from hagmeta.testing import records_of
from tests.hagmeta.kinds import each_once, kinds_with

CPU = torch.device("cpu")
SEED, SESSION = 3, 2
CLOSED = [name for name, method in METHODS.items() if issubclass(method, (ClosedForm, WithUnlabelled))]
ALONE = [name for name in CLOSED if issubclass(METHODS[name], ClosedForm)]
FEATURES = ("both", "propagated", "encoder")
# Features are the same code for all heads: one that sees labelled nodes alone, and one that sees the others.
ON_ALL_FEATURES = ("sgc-lda", "pt-map")
Tiny = Callable[..., RunConfig]
Small = Callable[..., RunConfig]


class Lived(NamedTuple):
    """One seed of a pack in a session: what its head is given, and what it answers."""

    context: Context
    pack: Pack
    classes: list[np.ndarray]  # features (nodes, width) in float64 of the nodes that each class is known by
    many: int  # of which the first so many are known by averages
    features: np.ndarray  # (nodes, width) of all nodes
    nodes: list[np.ndarray]  # the nodes that each class is known by
    visible: np.ndarray  # (nodes,) whether a node is visible
    queries: np.ndarray  # (queries,) nodes
    query: np.ndarray  # (queries, width)
    logits: np.ndarray  # (queries, classes)

    @property
    def rows(self) -> np.ndarray:
        return np.concatenate(self.classes)

    @property
    def labels(self) -> np.ndarray:
        return np.repeat(np.arange(len(self.classes)), [len(rows) for rows in self.classes])

    @property
    def shares(self) -> np.ndarray:
        """What each row counts, where every class weighs 1."""
        return np.concatenate([np.full(len(rows), 1 / len(rows)) for rows in self.classes])

    def parameter(self, name: str) -> np.ndarray:
        value: np.ndarray = self.pack.parameters[name].select(-2, 1).double().numpy()
        return value

    def transformed(self, change: Callable[[np.ndarray], np.ndarray]) -> Lived:
        return self._replace(classes=[change(rows) for rows in self.classes], query=change(self.query))


def lived(config: RunConfig, dataset: Dataset) -> Lived:
    context = prepare(config, [7, SEED], dataset, CPU)
    pack = pretrain(context)
    streams = [scenario.test for scenario in context.scenarios]
    known = context.known.session(streams, SESSION)
    shared = context.tasks.shared(known, streams[0].sizes(SESSION))
    everyone = torch.arange(context.graph.num_nodes).expand(2, -1)
    features = pack.run("embeddings", (shared,), known.view, everyone)[1].double().numpy()
    (logits,) = pack.run("logits", (shared,), known.view, (context.tasks.session(streams, SESSION),))
    scenario, stream = context.scenarios[1], streams[1]
    nodes = [scenario.nodes_of(np.array([c]), TRAIN) for c in stream.known]
    nodes += list(np.concatenate(stream.support[: SESSION + 1]))
    queries = stream.queries[SESSION]
    of_classes = [features[of] for of in nodes]
    answers = logits[1, : len(queries)].double().numpy()
    visible = known.view.visible[1].bool().numpy()
    found = (of_classes, len(stream.known), features, nodes, visible, queries, features[queries], answers)
    return Lived(context, pack, *found)


def unit(rows: np.ndarray) -> np.ndarray:
    lengths = np.linalg.norm(rows, axis=-1, keepdims=True)
    return rows / np.where(lengths > 0, lengths, 1)


def means_of(life: Lived) -> np.ndarray:
    return np.stack([rows.mean(0) for rows in life.classes])


def nearest_mean(life: Lived, **_: float) -> np.ndarray:
    return unit(life.query) @ unit(means_of(life)).T


def ridge_regression(life: Lived, ridge: float) -> np.ndarray:
    weights = life.shares / len(life.classes)
    apart = life.rows - weights @ life.rows
    eigenvalue = np.trace((apart * weights[:, None]).T @ apart) / apart.shape[1]
    model = Ridge(alpha=len(life.classes) * ridge * eigenvalue)
    model.fit(life.rows, np.eye(len(life.classes))[life.labels], sample_weight=life.shares)
    return model.predict(life.query)


def discriminant_analysis(life: Lived, shrinkage: float) -> np.ndarray:
    equal = np.full(len(life.classes), 1 / len(life.classes))
    model = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=shrinkage, priors=equal)
    return model.fit(life.rows, life.labels).decision_function(life.query)


def decorrelated_prototypes(life: Lived, ridge: float) -> np.ndarray:
    life = life.transformed(lambda rows: np.maximum(rows @ life.parameter("projection"), 0))
    gram = (life.rows * life.shares[:, None]).T @ life.rows
    penalty = ridge * np.linalg.eigvalsh(gram).mean() * np.eye(len(gram))
    return life.query @ np.linalg.inv(gram + penalty) @ means_of(life).T


def shared_covariance(life: Lived, shrinkage: float) -> np.ndarray:
    own = [np.cov(rows.T, bias=True) for rows in life.classes[: life.many]]
    few = [np.mean(own, axis=0)] * (len(life.classes) - life.many)
    return mahalanobis_distances(life, means_of(life), own + few, shrinkage)


def calibrated_gaussians(
    life: Lived, shrinkage: float, calibration: float, calibration_scale: float
) -> np.ndarray:
    means = unit(means_of(life))
    covariances = np.stack([np.cov(rows.T, bias=True) for rows in life.classes])
    base = means[: life.many]
    for number in range(life.many, len(means)):
        weights = softmax(calibration_scale * base @ means[number])
        near = unit(weights @ base)
        means[number] = (1 - calibration) * means[number] + calibration * near
        covariances[number] += np.tensordot(weights, covariances[: life.many], axes=1)
    return mahalanobis_distances(life, means, covariances, shrinkage)


def mahalanobis_distances(
    life: Lived, means: np.ndarray, covariances: Iterable[np.ndarray], shrinkage: float
) -> np.ndarray:
    found = []
    for mean, covariance in zip(unit(means), covariances, strict=True):
        variance = np.trace(covariance) / len(covariance)
        covariance = (1 - shrinkage) * covariance + shrinkage * variance * np.eye(len(covariance))
        scale = np.sqrt(np.diag(covariance))
        apart = unit(life.query) - mean
        found.append(-(apart @ np.linalg.inv(covariance / np.outer(scale, scale)) * apart).sum(1))
    return np.stack(found, axis=1)


def points_of(life: Lived) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Centred points of unit length, their class means, one-hot labels, and which nodes are unlabelled."""
    points = unit(life.features - means_of(life)[: life.many].mean(0))
    labels = np.zeros((len(points), len(life.nodes)))
    for number, nodes in enumerate(life.nodes):
        labels[nodes, number] = 1
    means = np.stack([points[nodes].mean(0) for nodes in life.nodes])
    return points, means, labels, life.visible & ~labels.any(1)


def laplacian_regularised(life: Lived, laplacian: float) -> np.ndarray:
    points, means, _, free = points_of(life)
    cosines = points @ unit(means).T
    rectified = []
    for number, nodes in enumerate(life.nodes):
        near = np.flatnonzero(free & (cosines.argmax(1) == number))
        weights = np.concatenate([np.ones(len(nodes)), softmax(10 * cosines[near], axis=1)[:, number]])
        rectified.append(np.average(points[[*nodes, *near]], axis=0, weights=weights))
    distances = cdist(points, rectified, "sqeuclidean")
    neighbours = life.context.graph.loops.toarray() * free
    np.fill_diagonal(neighbours, 0)
    neighbours /= np.maximum(neighbours.sum(1, keepdims=True), 1)
    logits = -distances
    for _ in range(20):
        logits = -distances + laplacian * neighbours @ softmax(logits, axis=1)
    return logits[life.queries]


def transported(life: Lived, transport: float, mean_share: float) -> np.ndarray:
    points, means, labels, free = points_of(life)
    counts = labels.sum(0)[:, None]
    told, rows = counts * means, points[free]
    for last in [False] * 20 + [True]:
        kernel = np.exp(-transport * cdist(rows, means, "sqeuclidean"))
        factors = np.ones(len(means))
        for _ in range(200):  # until it hardly changes any more
            factors = len(rows) / len(means) / (kernel.T @ (1 / (kernel @ factors)))
        if last:
            break
        shares = kernel * factors / (kernel @ factors)[:, None]
        found = (told + shares.T @ rows) / (counts + shares.sum(0)[:, None])
        means = means + mean_share * (found - means)
    return -transport * cdist(points[life.queries], means, "sqeuclidean") + np.log(factors)


def deviation(life: Lived, kernel_width: float) -> float:
    """The kernel's standard deviation, from the distances between all pairs of nodes of known classes."""
    known = life._replace(classes=life.classes[: life.many])
    squares = euclidean_distances(known.rows, squared=True)
    return float(kernel_width * np.sqrt(known.shares @ squares @ known.shares) / life.many)


def kernel_discriminant_analysis(life: Lived, shrinkage: float, kernel_width: float) -> np.ndarray:
    frequencies = life.parameter("frequencies") / deviation(life, kernel_width)
    phases = life.parameter("phases")
    life = life.transformed(lambda rows: np.sqrt(2 / len(phases)) * np.cos(rows @ frequencies + phases))
    return discriminant_analysis(life, shrinkage)


def truncated_least_squares(life: Lived, truncation: float) -> np.ndarray:
    life = life.transformed(lambda rows: np.maximum(rows @ life.parameter("projection"), 0))
    weights = np.sqrt(life.shares)[:, None]
    left, values, right = np.linalg.svd(weights * life.rows, full_matrices=False)
    rank = min(round((1 - truncation) * len(values)), int((values > 1e-6 * values[0]).sum()))
    inverse = right[:rank].T / values[:rank] @ left[:, :rank].T
    return life.query @ inverse @ (weights * np.eye(len(life.classes))[life.labels])


def kernel_ridge_regression(life: Lived, ridge: float, kernel_width: float) -> np.ndarray:
    priorities = uniform(keys([SEED], "init/gkeal"), life.context.graph.num_nodes).numpy()
    first = np.argsort(-priorities[np.concatenate(life.nodes[: life.many])])[:40]
    centres, gamma = life.rows[first], 1 / (2 * deviation(life, kernel_width) ** 2)
    life = life.transformed(lambda rows: rbf_kernel(rows, centres, gamma))
    gram = (life.rows * life.shares[:, None]).T @ life.rows
    model = Ridge(alpha=ridge * np.trace(gram) / len(gram), fit_intercept=False)
    model.fit(life.rows, np.eye(len(life.classes))[life.labels], sample_weight=life.shares)
    return model.predict(life.query)


HEADS: dict[str, tuple[Callable[..., np.ndarray], list[dict[str, float]]]] = {
    "sgc-ncm": (nearest_mean, [{}]),
    "sgc-ridge": (ridge_regression, [{"ridge": 0.1}, {"ridge": 0.001}, {"ridge": 10.0}]),
    "sgc-lda": (discriminant_analysis, [{"shrinkage": 0.1}, {"shrinkage": 0.001}, {"shrinkage": 1.0}]),
    "ranpac": (decorrelated_prototypes, [{"ridge": 0.1}, {"ridge": 0.001}]),
    "fecam": (shared_covariance, [{"shrinkage": 0.5}, {"shrinkage": 0.01}]),
    "fscil-calibration": (
        calibrated_gaussians,
        [
            {"shrinkage": 0.5, "calibration": 0.1, "calibration_scale": 16.0},
            {"shrinkage": 0.1, "calibration": 0.6, "calibration_scale": 2.0},
        ],
    ),
    "laplacian-shot": (laplacian_regularised, [{"laplacian": 2.0}, {"laplacian": 0.0}, {"laplacian": 20.0}]),
    "pt-map": (transported, [{"transport": 10.0, "mean_share": 0.2}, {"transport": 3.0, "mean_share": 0.5}]),
    "klda": (
        kernel_discriminant_analysis,
        [{"shrinkage": 0.1, "kernel_width": 1.0}, {"shrinkage": 0.01, "kernel_width": 0.3}],
    ),
    "loranpac": (truncated_least_squares, [{"truncation": 0.25}, {"truncation": 0.6}]),
    "gkeal": (
        kernel_ridge_regression,
        [{"ridge": 0.1, "kernel_width": 1.0}, {"ridge": 0.01, "kernel_width": 0.3}],
    ),
}
CASES = [
    pytest.param(*pair.values, settings, marks=[*pair.marks, *([pytest.mark.slow] if number else [])])
    for pair in each_once(list(HEADS), FEATURES, fully=ON_ALL_FEATURES)
    for number, settings in enumerate(HEADS[pair.values[0]][1])
    if number == 0 or pair.values[1] == "both"
]


def test_every_head_has_a_reference() -> None:
    assert list(HEADS) == CLOSED


@pytest.mark.parametrize(("method", "features", "settings"), CASES)
def test_a_head_is_its_reference(
    narrow: Dataset, small: Small, method: str, features: str, settings: dict[str, float]
) -> None:
    life = lived(small(method=method, features=features, pretrain_epochs=5, **settings), narrow)
    expected = HEADS[method][0](life, **settings)
    # What all classes of a query have in common decides nothing.
    answers, expected = (x - x.mean(1, keepdims=True) for x in (life.logits, expected))
    assert answers.shape == expected.shape and expected.std() > 0
    assert np.abs(answers - expected).max() < 2e-3 * np.abs(expected).max()
    assert (answers.argmax(1) == expected.argmax(1)).mean() > 0.995


# Features.


def test_features_are_raised_part_by_part_and_a_random_projection_stands_beside_them(
    tiny_graph: Dataset, tiny: Tiny
) -> None:
    settings = {"method": "sgc-ncm", "features": "propagated", "hops": 1}

    def made(**more: float) -> tuple[Pack, np.ndarray]:
        context = prepare(tiny(**settings, **more), [7, SEED], tiny_graph, CPU)
        pack = pretrain(context)
        view = context.known.session([scenario.test for scenario in context.scenarios], 1).view
        return pack, pack.run("all_features", (context.graph,), view).double().numpy()

    _, plain = made()
    pack, found = made(tukey=0.5, random_features=7)
    raised = [unit(np.sign(part) * np.abs(part) ** 0.5) for part in np.split(plain, 2, axis=-1)]
    raised = np.concatenate(raised, axis=-1)
    np.testing.assert_allclose(found[..., 7:], raised, atol=1e-5)
    for seed in range(2):
        directions = pack.parameters["directions"].select(-2, seed).double().numpy()
        expected = unit(np.maximum(raised[seed] @ directions, 0))
        np.testing.assert_allclose(found[seed, :, :7], expected, atol=1e-5)
    first, second = pack.parameters["directions"].unbind(-2)
    assert not torch.equal(first, second)


def test_propagated_features_are_hops_among_what_is_visible(tiny_graph: Dataset, tiny: Tiny) -> None:
    context = prepare(tiny(method="sgc-ncm", features="propagated", hops=2), [7, SEED], tiny_graph, CPU)
    pack = pretrain(context)
    for session in (0, 1):
        streams = [scenario.test for scenario in context.scenarios]
        known = context.known.session(streams, session)
        features = pack.run("all_features", (context.graph,), known.view)[1].double().numpy()
        visible = streams[1].arrived(session)
        adjacency = tiny_graph.adjacency.toarray() * np.outer(visible, visible)
        scale = 1 / np.sqrt(np.maximum(adjacency.sum(1), 1))
        words, rows = (part[1].double().numpy() for part in context.known.views.narrow)
        hop = visible[:, None] * rows[:, None] * (tiny_graph.features.toarray() @ words)
        expected = []
        for _ in range(3):
            expected.append(unit(hop))
            hop = scale[:, None] * (adjacency @ (scale[:, None] * hop))
        np.testing.assert_allclose(features, np.concatenate(expected, axis=1), atol=1e-5)
        assert not features[~visible].any() and features[visible].any(1).all()


def test_nodes_that_count_nothing_change_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CHUNK", "ROWS"):
        monkeypatch.setattr(statistics, name, 4)
    rng = torch.Generator().manual_seed(0)
    numbers = torch.randn(50, 6, generator=rng)
    nodes = torch.randint(50, (3, 12), generator=rng)
    share = torch.where(torch.arange(12) < torch.tensor([[5], [8], [7]]), 0.125, 0.0)
    short, long = (
        LabelledRows(nodes[:, :most], share[:, :most], lambda nodes: numbers[nodes], counting)
        for most, counting in ((8, 20), (12, 33))
    )
    means = short.means()
    assert torch.equal(means, long.means())
    assert torch.equal(short.scatter(means), long.scatter(means))
    assert torch.equal(short.covariances(means), long.covariances(means))
    torch.testing.assert_close(means, (share.unsqueeze(-1) * numbers[nodes]).sum(1))
    torch.testing.assert_close(short.scatter(means), short.covariances(means).sum(0))


def test_without_an_encoder_nothing_is_pre_trained(
    tiny_graph: Dataset, tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(*_: Any) -> None:
        raise AssertionError("pre-trained")

    monkeypatch.setattr(pipeline, "pretrained_encoders", forbidden)
    records_of(tiny(method="sgc-ridge", features="propagated"), [0], tiny_graph)
    with pytest.raises(AssertionError, match="pre-trained"):
        records_of(tiny(method="sgc-ridge"), [0], tiny_graph)


@pytest.mark.parametrize("method", CLOSED)
def test_what_features_have_no_use_for_makes_no_other_run(method: str) -> None:
    other: dict[str, Any] = {"inputs": "tf-idf", "encoder": "gat", "hidden": 8, "embedding": 8, "heads": 2}
    other |= {"dropout": 0.1, "learning_rate": 0.1, "weight_decay": 0.1, "pretrain_on": "base"}
    other |= {"pretrain_epochs": 3, "pretrain_patience": 3, "classifier": "linear"}
    assert set(other) == set(OF_THE_ENCODER)

    def resolved(**settings: Any) -> RunConfig:
        return resolve(RunConfig.of(method=method, **settings))

    assert resolved(features="propagated", **other) == resolved(features="propagated")
    assert resolved(features="encoder", hops=1) == resolved(features="encoder")
    assert resolved(features="propagated", hops=1) != resolved(features="propagated")
    for name, value in (*other.items(), ("hops", 1)):
        if name != "heads":
            assert resolved(features="both", **{name: value}).hash() != resolved(features="both").hash()
    assert resolved() == resolved(features="both") and resolved().given() == []


def test_few_columns_that_are_not_counts_are_used_as_they_are(tiny_graph: Dataset, tiny: Tiny) -> None:
    dense = replace(tiny_graph, features=tiny_graph.features.toarray() - 0.5)
    context = prepare(tiny(method="sgc-lda", hops=1), [0], dense, CPU)
    features = pretrain(context).run("all_features", (context.graph,), context.known.training().view)
    visible = context.known.views.seen_first(context.scenarios[0])
    np.testing.assert_allclose(features[0, visible, :60], unit(dense.features[visible]), atol=1e-5)
    records_of(tiny(method="sgc-lda", features="both"), [0], dense)
    unchanged = replace(dense, features=np.tile(dense.features, (1, 80)), kind="unchanged")
    with pytest.raises(UserError) as caught:
        records_of(tiny(method="sgc-lda"), [0], unchanged)
    assert str(caught.value) == (
        f"sgc-lda would make 19,200 columns of the 4,800 features of {dense.name}; their covariance "
        "needs 1.4 GiB for each seed, and the maximum is 1 GiB. Make the dataset without counts=False, or "
        "set fewer hops, or features=encoder."
    )
    records_of(tiny(method="sgc-lda", features="encoder"), [0], unchanged)


# What is kept.


@pytest.mark.parametrize(
    ("method", "features"), kinds_with(["propagated", "encoder"], kinds=("sgc-lda",), fully=(), methods=ALONE)
)
def test_what_is_kept_of_classes_is_all_that_labels_told_of_them(
    narrow: Dataset, small: Small, method: str, features: str
) -> None:
    # With the whole graph there from the start, features stay the same: no label need be read again.
    config = small(method=method, features=features, visibility="whole", pretrain_epochs=5)
    kept, read = (
        records_of(replace(config, rehearsal=rehearsal), [0, SEED], narrow) for rehearsal in ("none", "all")
    )
    for one, other in zip(kept, read, strict=True):
        assert one["accuracy"] == pytest.approx(other["accuracy"], abs=0.005)
    # Where the graph grows they are of the graph as it was.
    growing = [
        records_of(replace(config, rehearsal=rehearsal, visibility="arriving"), [SEED], narrow)
        for rehearsal in ("none", "all")
    ]
    assert growing[0][0]["accuracy"][0] == growing[1][0]["accuracy"][0]
    assert growing[0][0]["matrix"] != growing[1][0]["matrix"]


def test_nodes_whose_labels_are_gone_count_as_unlabelled_but_means_and_counts_stay(
    narrow: Dataset, small: Small
) -> None:
    statistics = []
    for rehearsal in ("all", "none"):
        config = small(method="pt-map", features="propagated", visibility="whole", rehearsal=rehearsal)
        context = prepare(config, [7, SEED], narrow, CPU)
        pack = pretrain(context)
        streams = [scenario.test for scenario in context.scenarios]
        kept: tuple[torch.Tensor, ...] = ()
        for session in range(SESSION + 1):
            known = context.known.session(streams, session)
            shared = context.tasks.shared(known, streams[0].sizes(session))
            task = context.tasks.session(streams, session)._replace(class_statistics=kept)
            found = pack.run("class_statistics", (shared,), known.view, task)
            kept = found if rehearsal == "none" else ()
        statistics.append(found)
    for read, stayed in zip(*statistics, strict=True):
        torch.testing.assert_close(read, stayed)
    means, counts, _ = statistics[0]
    assert means.shape[:2] == counts.shape == (2, 13) and (counts[:, -4:] == 3).all()


@pytest.fixture(scope="module")
def encoders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where encoders are kept that all heads have in common."""
    return tmp_path_factory.mktemp("encoders")


@pytest.mark.parametrize("method", ON_ALL_FEATURES)
def test_one_label_a_class_is_enough(dataset: Dataset, small: Small, encoders: Path, method: str) -> None:
    # No class has any variance then. One answer to everything would be right for one class of 13.
    config = small(method=method, features="encoder", k_shot=1, rehearsal="1", pretrain_epochs=30)
    records = records_of(config, [0, 1, 2, SEED], dataset, cache=encoders)
    assert np.mean([record["macro_accuracy"][-1] for record in records]) > 1.3 / 13


# Algebra.


def test_covariances_are_shrunk_towards_their_mean_variance() -> None:
    covariance = torch.tensor([[3.0, 1.0], [1.0, 1.0]])
    torch.testing.assert_close(shrunk(covariance, 0.5), torch.tensor([[2.5, 0.5], [0.5, 1.5]]))
    torch.testing.assert_close(shrunk(covariance.expand(2, 2, 2), 1.0), 2 * torch.eye(2).expand(2, 2, 2))
    assert (shrunk(torch.zeros(2, 2), 0.1).diagonal() > 0).all()


def test_a_moment_is_computed_by_halves() -> None:
    rows, weights = torch.randn(50, 2 * MOMENT_COLUMNS + 3).double(), torch.rand(50).double()
    torch.testing.assert_close(moment(rows, weights), rows.mT @ (weights.unsqueeze(-1) * rows))


def test_a_ridge_is_relative_to_the_mean_eigenvalue() -> None:
    moment = torch.diag(torch.tensor([1.0, 2.0, 3.0]))
    torch.testing.assert_close(ridged(moment, 0.5), torch.diag(torch.tensor([2.0, 3.0, 4.0])))
    torch.testing.assert_close(solve(moment, torch.eye(3)), torch.diag(torch.tensor([1.0, 0.5, 1 / 3])))
