"""Posterior means, part by part against references in float64, and what they may use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch
from scipy.stats import multivariate_normal
from torch import Tensor

from hagmeta.config.run_config import RunConfig, resolve
from hagmeta.datasets.base import Dataset
from hagmeta.engine.known import batches
from hagmeta.engine.run import prepare, pretrain
from hagmeta.engine.sessions import evaluate_streams
from hagmeta.layers.head import LABEL_SMOOTHING
from hagmeta.layers.subspaces import leading_words, spectrum
from hagmeta.methods.base import Task
from hagmeta.methods.posterior_means import evidence, method, mixture, model
from hagmeta.methods.posterior_means.evidence import DRIFT, NODE_DRIFT, Evidence, kept_today
from hagmeta.methods.posterior_means.method import RETURN
from hagmeta.methods.posterior_means.mixture import PSEUDO_LABELS, Neighbours, most_confident
from hagmeta.methods.posterior_means.model import (
    KEPT_PRIOR,
    PRIOR,
    RIDGE,
    TOTAL,
    TwoCovariances,
    Within,
)
from hagmeta.sparse.graph import Graph, View
from hagmeta.sparse.inputs import make_inputs
from hagmeta.testing import records_of, results

CPU = torch.device("cpu")
KNOWN, WIDTH = 6, 9
Tiny = Callable[..., RunConfig]


def seen(graph: Graph, visible: np.ndarray) -> View:
    """One seed's view."""
    return View(*(part[0] for part in graph.view(visible[None])[:3]))


@pytest.fixture
def visible(tiny_graph: Dataset) -> np.ndarray:
    return np.random.default_rng(0).random(tiny_graph.num_nodes) < 0.7


def made(each: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Nodes (nodes, width) of known classes and five of a new one, their labels, and other nodes."""
    rng = np.random.default_rng(1)
    means = rng.normal(size=(KNOWN + 1, WIDTH))
    labels = np.repeat(np.arange(KNOWN + 1), [*[each] * KNOWN, 5])
    mixing = rng.normal(size=(WIDTH, WIDTH)) / 2
    return means[labels] + rng.normal(size=(len(labels), WIDTH)) @ mixing, labels, rng.normal(size=(4, WIDTH))


@pytest.mark.parametrize(  # in all more labels than columns, and fewer; and the share that was chosen
    ("each", "chosen"), [(30, 0.0), (1, 0.0), (30, 0.4)]
)
@pytest.mark.parametrize(  # how many columns are of an encoder, whether it learns, whether labels are gone
    ("columns", "learns", "gone"), [(0, False, False), (3, False, False), (3, True, False), (3, False, True)]
)
def test_the_likelihood_of_a_node_is_the_predictive_of_the_two_covariance_model(
    each: int, chosen: float, columns: int, learns: bool, gone: bool
) -> None:
    nodes, labels, others = made(each)
    old = [nodes[labels == c] for c in range(KNOWN)]
    every = np.concatenate([nodes, others])
    # The model, as its equations are in docs/results/our_method.md.
    means = np.stack([rows.mean(0) for rows in old])
    scatter = sum((rows - rows.mean(0)).T @ (rows - rows.mean(0)) / each for rows in old)
    ridge = max(RIDGE, 1 - KNOWN * each / WIDTH) if chosen == 0 else chosen
    within = (1 - TOTAL) * scatter / KNOWN + TOTAL * np.cov(every.T, bias=True)
    variance = within.diagonal()[: WIDTH - columns].mean()
    within = (1 - ridge) * within + ridge * variance * np.eye(WIDTH)
    between = np.cov(means.T)
    prior = KEPT_PRIOR if gone else PRIOR
    between = (1 - prior) * between + prior * np.trace(between) / np.trace(within) * within
    expected = []
    for rows in [*old, nodes[labels == KNOWN]]:
        # Of jointly Gaussian values: a new node given the mean of those that are known.
        gain = between @ np.linalg.inv(between + within / len(rows))
        mean = means.mean(0) + gain @ (rows.mean(0) - means.mean(0))
        covariance = within + between - gain @ between
        expected.append(multivariate_normal(mean, covariance).logpdf(every))
    told = np.zeros((len(every), KNOWN + 1))
    told[np.arange(len(labels)), labels] = 1
    kept = None
    if gone:
        told[:, :KNOWN] = 0
        counts, none = np.full(KNOWN, float(each)), np.zeros((0, WIDTH))
        kept = Evidence(*map(torch.tensor, (means, counts, scatter, [0.0], none, none[:, 0], none)))
    points, visible = torch.tensor(every), torch.ones(len(every), dtype=torch.float64)
    around = Within(torch.tensor(told), KNOWN, visible, kept, WIDTH, torch.tensor(chosen))
    later = columns if learns else 0
    whitened = around.whitened(points[:, : WIDTH - later], columns - later)
    likelihood = TwoCovariances(around, whitened, points[:, WIDTH - later :] if learns else None)
    found = likelihood.log_likelihood(around.count, likelihood.total).numpy()
    # Up to what is the same for all classes: the scale of the coordinates.
    expected = np.stack(expected, 1)
    np.testing.assert_allclose(found - found[:, :1], expected - expected[:, :1], rtol=1e-5, atol=1e-5)


MEMBERS = np.repeat([0, 1, 2, -1], [200, 200, 5, 200])


def model_of(labels: np.ndarray, share: float) -> tuple[TwoCovariances, Within]:
    """Return a model of two known classes and one new; -1 marks unlabelled nodes, of all three classes."""
    draw, places = np.random.default_rng(0), np.arange(len(labels))
    spread = np.linspace(0.02, 1, 60) ** 4  # most directions vary little
    true = np.where(MEMBERS >= 0, MEMBERS, places % 3)
    points = draw.normal(size=(3, 60))[true] * 0.1 + spread * draw.normal(size=(len(labels), 60))
    told = np.zeros((len(labels), 3))
    told[places[labels >= 0], labels[labels >= 0]] = 1
    visible = torch.ones(len(labels), dtype=torch.float64)
    within = Within(torch.tensor(told), 2, visible, None, 60, torch.tensor(share))
    return TwoCovariances(within, within.whitened(torch.tensor(points), 0), None), within


def unlabelled(within: Within) -> Tensor:
    return 1 - within.labels.amax(-1)


def test_the_penalty_for_an_uncertain_mean_exceeds_what_residuals_justify_by_a_limit() -> None:
    model, within = model_of(MEMBERS, 0.3)
    before = model.log_likelihood(within.count, model.total)
    gains = []
    for limit in (0.0, 0.1, 1e6):
        model.limit_penalty(unlabelled(within), limit)
        gain = model.log_likelihood(within.count, model.total) - before
        assert (gain - gain[0]).abs().max() < 1e-9  # the same for all nodes
        gains.append(2 * gain[0])
    assert gains[0][2] > 0.2 and gains[0][:2].max() < gains[0][2] / 2  # the new class paid most
    torch.testing.assert_close(gains[1], (gains[0] - 0.1).clamp(min=0))
    assert not gains[2].any()


@pytest.mark.parametrize(("labels", "share"), [(MEMBERS, 1e-6), (np.where(MEMBERS < 0, 0, MEMBERS), 0.3)])
def test_the_penalty_stays_if_residuals_are_large_or_all_nodes_have_labels(
    labels: np.ndarray, share: float
) -> None:
    model, within = model_of(labels, share)
    before = model.log_likelihood(within.count, model.total)
    model.limit_penalty(unlabelled(within), 0.0)
    assert (model.log_likelihood(within.count, model.total) == before).all()


def test_the_penalty_is_finite_if_known_means_span_all_directions() -> None:
    draw, labels = np.random.default_rng(1), np.repeat([0, 1, 2], 20)
    visible = torch.ones(60, dtype=torch.float64)
    within = Within(torch.tensor(np.eye(3)[labels]), 3, visible, None, 2, torch.tensor(0.1))
    model = TwoCovariances(within, within.whitened(torch.tensor(draw.normal(size=(60, 2))), 0), None)
    model.limit_penalty(unlabelled(within), 0.0)
    assert model.log_likelihood(within.count, model.total).isfinite().all()


@pytest.mark.slow
@pytest.mark.parametrize(("visibility", "in_targets"), [("arriving", True), ("whole", False)])
def test_the_limit_changes_predictions_but_not_what_teaches_if_nodes_of_classes_to_come_are_visible(
    tiny_graph: Dataset, tiny: Tiny, monkeypatch: pytest.MonkeyPatch, visibility: str, in_targets: bool
) -> None:
    with_limit, without = (
        tiny(method="posterior-means", tukey=0.7, visibility=visibility, capped_penalty=limited)
        for limited in (True, False)
    )
    monkeypatch.setattr(method, "EXCESS", 0.0)
    assert answers(with_limit, tiny_graph, [0, 3]) != answers(without, tiny_graph, [0, 3])
    shares, others = (recalled(config, tiny_graph, 0.8)[0] for config in (with_limit, without))
    assert torch.equal(shares, others) != in_targets


def kept_and_exemplars() -> tuple[Evidence, Task]:
    """Of two known classes with 5 and 100 labels and one other with 4; 2, 4 and 4 of them are exemplars."""
    counts, shots = torch.tensor([5.0, 100.0]), torch.tensor([4.0])
    sums = torch.full((1, 3), 8.0)
    kept = Evidence(torch.ones(2, 3), counts, torch.eye(3), torch.zeros(1), sums, shots, torch.ones(3, 3))
    none = torch.zeros(0, dtype=torch.int64)
    nodes = torch.tensor([[0, 1, -1, -1], [2, 3, 4, 5], [6, 7, 8, 9], [10, 11, 12, 13]])  # and a new class
    return kept, Task(none, none, none, none, exemplars=(nodes,))


def test_kept_means_move_as_far_as_their_exemplars_tell() -> None:
    kept, task = kept_and_exemplars()
    way = torch.tensor([1.0, 2.0, 3.0]).repeat(4, 1)
    now = kept_today(kept, task, 1 + way)
    # The posterior of a movement N(0, DRIFT) that was seen with noise: a finite population of n nodes.
    noise = NODE_DRIFT * torch.tensor([1 / 2 - 1 / 5, 1 / 4 - 1 / 100, 0.0])
    posterior = 1 / (1 / DRIFT + 1 / noise)
    torch.testing.assert_close(now.means, 1 + (posterior / noise)[:2, None] * way[:2])
    torch.testing.assert_close(1 / now.counts, 1 / kept.counts + posterior[:2])
    # All labels of the last class are exemplars: its mean is that of today, and no label is discounted.
    torch.testing.assert_close(now.sums / 4, 2 + way[:1])
    assert torch.equal(now.shots, kept.shots)


def test_without_exemplars_kept_means_stay() -> None:
    kept, task = kept_and_exemplars()
    now = kept_today(kept, task._replace(exemplars=()), None)
    assert torch.equal(now.means, kept.means)
    torch.testing.assert_close(1 / now.counts, 1 / kept.counts + DRIFT)


def test_exemplars_are_the_labels_that_rehearsal_allows(tiny_graph: Dataset, tiny: Tiny) -> None:
    for most in (2, 49):
        ours, other = (
            prepare(tiny(method=method, rehearsal=most), [0, 1], tiny_graph, CPU).scenarios
            for method in ("posterior-means", "proto-gcn")
        )
        for stream, allowed in ((a.test, b.test.rehearsed) for a, b in zip(ours, other, strict=True)):
            assert stream.exemplars is not None and stream.rehearsed is not None and allowed is not None
            assert stream.exemplars.shape == (len(stream.met(stream.sessions)), most)
            assert np.concatenate(stream.rehearsed.support).size == 0  # all other statistics are kept
            expected = [*allowed.known, *np.concatenate(allowed.support)]
            for nodes, these in zip(stream.exemplars, expected, strict=True):
                assert nodes[nodes >= 0].tolist() == these.tolist()


@pytest.mark.slow
def test_the_encoder_goes_back_before_a_session_if_nodes_of_classes_to_come_are_visible(
    tiny_graph: Dataset, tiny: Tiny
) -> None:
    for visibility, returns in (("whole", True), ("arriving", False)):
        context = prepare(tiny(method="posterior-means", visibility=visibility), [0, 1], tiny_graph, CPU)
        pack = pretrain(context)
        evaluate_streams(context, pack, [scenario.test for scenario in context.scenarios], "test")
        streams = [scenario.test for scenario in context.scenarios]
        known, task = context.known.session(streams, 2), context.tasks.session(streams, 2)
        shared = context.tasks.shared(known, streams[0].sizes(2))
        learnt = pack.snapshot()
        with torch.no_grad():
            pack.assign(pack.run("before_session", (shared,), known.view, task))
        after = pack.snapshot()
        encoder = [name.removeprefix("encoder.") for name in learnt if name.startswith("encoder.")]
        for name in encoder if returns else ():
            origin, value = learnt[f"origin.{name}"], learnt[f"encoder.{name}"]
            assert torch.equal(after[f"origin.{name}"], origin) and not torch.equal(origin, value)
            torch.testing.assert_close(after[f"encoder.{name}"] - origin, (1 - RETURN) * (value - origin))
        assert encoder and all(torch.equal(after[name], learnt[name]) for name in learnt) != returns


def test_neighbours_means_and_agreement_are_of_the_visible_graph(
    tiny_graph: Dataset, visible: np.ndarray
) -> None:
    graph = Graph(tiny_graph, CPU)
    hidden = scipy.sparse.diags(visible.astype(float))
    adjacency = hidden @ (tiny_graph.adjacency - scipy.sparse.identity(tiny_graph.num_nodes)) @ hidden
    neighbours = Neighbours(graph, seen(graph, visible))
    values = np.random.default_rng(2).random((len(visible), 3)) * visible[:, None]
    degree = np.maximum(adjacency.sum(1).A1, 1)[:, None]
    found = neighbours.mean(torch.tensor(values, dtype=torch.float32))
    np.testing.assert_allclose(found[visible], (adjacency @ values / degree)[visible], atol=1e-5)
    labels = np.eye(3)[np.random.default_rng(3).integers(3, size=len(visible))] * visible[:, None]
    pairs = labels.T @ adjacency @ labels
    share, ends = np.trace(pairs) / pairs.sum(), pairs.sum(0) / pairs.sum()
    expected = max((share - (ends**2).sum()) / (1 - (ends**2).sum()), 0)
    assert neighbours.agreement(torch.tensor(labels, dtype=torch.float32)).item() == pytest.approx(
        expected, abs=1e-5
    )


def same_span(found: Tensor, basis: np.ndarray, rows: np.ndarray) -> None:
    """Whether both say the same of how rows lie to each other."""
    mine = found.double().numpy()[rows]
    np.testing.assert_allclose(mine @ mine.T, basis[rows] @ basis[rows].T, atol=2e-3 * np.abs(basis).max())


def test_words_are_the_singular_vectors_of_what_is_visible_now(
    tiny_graph: Dataset, visible: np.ndarray
) -> None:
    graph = Graph(tiny_graph, CPU)
    words, rows = make_inputs("tf-idf", tiny_graph.features, visible)
    view = seen(graph, visible)._replace(narrow=(torch.from_numpy(words), torch.from_numpy(rows)))
    unit = (scipy.sparse.diags(rows) @ tiny_graph.features @ scipy.sparse.diags(words)).toarray()
    left, values, _ = np.linalg.svd(unit * visible[:, None], full_matrices=False)
    same_span(leading_words(graph, view, 8, rounds=30), left[:, :8] * values[:8], visible)


def test_the_spectrum_is_that_of_the_visible_graph(tiny_graph: Dataset, visible: np.ndarray) -> None:
    graph = Graph(tiny_graph, CPU)
    scale = scipy.sparse.diags(graph.host_scale(visible))
    values, vectors = np.linalg.eigh((scale @ tiny_graph.adjacency @ scale).toarray())
    largest = np.argsort(-np.abs(values))[:6]
    expected = vectors[:, largest] * values[largest] ** 2
    same_span(spectrum(graph, seen(graph, visible), 6, rounds=40), expected, visible)


def answers(config: RunConfig, dataset: Dataset, seeds: Sequence[int] = (0,)) -> list[Any]:
    records = records_of(config, seeds, dataset)
    return [(record["matrix"], record["calibration_error"]) for record in records]


@pytest.fixture(scope="module")
def usual_answers() -> list[Any]:
    """The answers with all parts, once they are computed."""
    return []


@pytest.mark.parametrize(
    "off",
    [
        {"unlabelled_weight": 0},
        *(
            pytest.param({name: value}, marks=pytest.mark.slow)
            for value, names in (
                (0, ("propagation_weight", "random_features", "finetune_steps")),
                (False, ("refitted", "simulated_sessions")),
                (0.5, ("tukey",)),
            )
            for name in names
        ),
    ],
)
def test_every_part_counts(
    tiny_graph: Dataset, tiny: Tiny, usual_answers: list[Any], off: dict[str, float]
) -> None:
    usual = {"method": "posterior-means", "finetune_steps": 2}
    usual_answers[:] = usual_answers or answers(tiny(**usual), tiny_graph)
    assert answers(tiny(**usual | off), tiny_graph) != usual_answers


def test_points_that_are_computed_again_are_the_same_to_the_bit(
    tiny_graph: Dataset, tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tiny(method="posterior-means", features="propagated")
    stored = results(config, [1], tiny_graph)
    monkeypatch.setattr(method, "_forgets", lambda graph: True)  # as on a GPU
    assert results(config, [1], tiny_graph) == stored


def test_what_is_kept_is_all_that_labels_tell_where_the_graph_does_not_grow(
    tiny_graph: Dataset, tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evidence, "DRIFT", 0.0)  # nothing drifts
    monkeypatch.setattr(model, "KEPT_PRIOR", PRIOR)
    # Labelled nodes are fixed at their labels while these may be read: without neighbours nothing hears that.
    settings = {"method": "posterior-means", "visibility": "whole", "refitted": False}
    alone = settings | {"unlabelled_weight": 0, "propagation_weight": 0, "finetune_steps": 0}
    assert answers(tiny(**alone, rehearsal="none"), tiny_graph) == answers(tiny(**alone), tiny_graph)
    # And no label of an earlier session is looked at.
    read = method.labels_of
    gone: list[int] = []

    def watched(*arguments: object) -> Tensor:
        labels = read(*arguments)  # type: ignore[arg-type]
        gone.append(int((labels.sum(-2) == 0).sum()))
        return labels

    monkeypatch.setattr(method, "labels_of", watched)
    records_of(tiny(**settings, rehearsal="none"), [0], tiny_graph, mode="plain")
    assert max(gone) == 6  # in the last session, four known classes and two that came in the first


@pytest.mark.parametrize("off", [{"refitted": False}, {"finetune_steps": 0}])
def test_without_labels_to_read_again_neither_basis_nor_encoder_changes(
    tiny: Tiny, off: dict[str, int]
) -> None:
    config = resolve(tiny(method="posterior-means", rehearsal="none", **off))
    assert config.hash() == resolve(tiny(method="posterior-means", rehearsal="none")).hash()


@pytest.mark.parametrize(
    ("rehearsal", "moves"),
    [
        ("50", True),
        pytest.param("2", False, marks=pytest.mark.slow),
    ],
)
def test_the_encoder_learns_in_sessions_where_enough_labels_can_be_read_again(
    tiny_graph: Dataset, tiny: Tiny, rehearsal: str, moves: bool
) -> None:
    context = prepare(tiny(method="posterior-means", rehearsal=rehearsal), [0], tiny_graph, CPU)
    pack = pretrain(context)
    before = pack.snapshot()
    evaluate_streams(context, pack, [scenario.test for scenario in context.scenarios], "test")
    changed = {name for name, value in pack.snapshot().items() if not torch.equal(value, before[name])}
    learnt = {name for name in before if name.startswith("encoder.")} if moves else set()
    assert changed == learnt | {"share"}  # which is chosen at session 0


def test_halfway_through_a_session_the_encoder_is_taught_anew(
    tiny_graph: Dataset, tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    before_steps, learnt = batches.before_steps, []

    def watched(*arguments: Any) -> Task:
        task = before_steps(*arguments)
        learnt.append(task.before_steps)
        return task

    monkeypatch.setattr(batches, "before_steps", watched)
    records_of(tiny(method="posterior-means", finetune_steps=3), [0], tiny_graph)
    of_tests = learnt[-4:]  # the last stream has two sessions
    for (first, _), (second, _) in (of_tests[:2], of_tests[2:]):
        assert first.shape == second.shape and not torch.equal(first, second)


def recalled(config: RunConfig, graph: Dataset, shrinkage: float = 0.0) -> tuple[Tensor, Tensor, View, Task]:
    """Return the targets of the encoder's steps in session 1: shares and class means, with view and task."""
    context = prepare(config, [0], graph, CPU)
    pack = pretrain(context)
    pack.assign({"share": torch.full((1, 1), shrinkage)})
    streams = [scenario.test for scenario in context.scenarios]
    known, task = context.known.session(streams, 1), context.tasks.session(streams, 1)
    shared = context.tasks.shared(known, streams[0].sizes(1))
    with torch.no_grad():
        (shares,), (rows,) = pack.run("before_steps", (shared,), known.view, task)
    return shares, rows, known.view, task


def test_a_class_is_taught_by_its_labels_and_by_visible_nodes_that_may_be_of_it(
    tiny_graph: Dataset, tiny: Tiny
) -> None:
    config = tiny(method="posterior-means")
    shares, rows, view, task = recalled(config, tiny_graph)
    assert rows.shape == (len(task.classes[0]), resolve(config).embedding)
    assert not shares[view.visible[0] == 0].any()
    torch.testing.assert_close(shares.sum(0), torch.ones(len(rows)))
    newest = task.support[0, -1]  # half of the weight, less what smoothing gives to other classes
    torch.testing.assert_close(
        shares[newest, -1].sum(),
        torch.tensor((1 - PSEUDO_LABELS) * (1 - LABEL_SMOOTHING * (1 - 1 / len(rows)))),
    )


def test_only_the_most_confident_nodes_teach_if_nodes_of_classes_to_come_are_visible(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mixture, "EACH", 1)
    highest = torch.tensor([0.0, 0.9, 0.6, 0.8, 0.7, 0.95, 0.65, 0.55, 0.99])  # the first is not unlabelled
    found = torch.stack([highest, (1 - highest) * (highest > 0)], -1)
    kept = most_confident(found)
    assert kept.any(-1).nonzero().flatten().tolist() == [5, 8]  # of eight
    assert torch.equal(kept[[5, 8]], found[[5, 8]])
    assert torch.equal(most_confident(torch.zeros(3, 2)), torch.zeros(3, 2))
    ties = torch.tensor([[0.9, 0.1], [0.9, 0.1], [0.6, 0.4]])
    assert torch.equal(most_confident(ties), ties * torch.tensor([[1.0], [1.0], [0.0]]))
    other = torch.cat([found, torch.tensor([[0.4, 0.6], [0.3, 0.7], [0.2, 0.8], [0.1, 0.9]])])
    # The quarter of all twelve, and the most confident node of the other class.
    assert most_confident(other).any(-1).nonzero().flatten().tolist() == [1, 5, 8, 12]
    lower = torch.cat([found, torch.tensor([[0.4, 0.6], [0.3, 0.7]])])
    assert most_confident(lower).any(-1).nonzero().flatten().tolist() == [5, 8, 10]


@pytest.mark.parametrize(("visibility", "some"), [("whole", True), ("arriving", False)])
def test_some_nodes_do_not_teach_under_whole_visibility_alone(
    tiny_graph: Dataset, tiny: Tiny, visibility: str, some: bool
) -> None:
    shares, _, view, _ = recalled(tiny(method="posterior-means", visibility=visibility), tiny_graph)
    silent = ~shares.any(-1) & (view.learnable[0] > 0)
    assert silent.any() == some
