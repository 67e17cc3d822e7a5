"""Smoothing, logit adjustment and class shares: what they do to every method's answers; off, nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import brentq
from scipy.special import softmax

from hagmeta.config.run_config import RunConfig, resolve
from hagmeta.datasets.base import Dataset
from hagmeta.engine.context import Context
from hagmeta.engine.run import prepare, pretrain, train_and_evaluate
from hagmeta.engine.scores.readout import ReadOut, reweighted
from hagmeta.layers.scores import smoothing
from hagmeta.methods import METHODS
from hagmeta.packs.pack import Pack
from hagmeta.scenarios.scenario import TRAIN, Stream
from hagmeta.testing import check_packs, check_plain, records_of

CPU = torch.device("cpu")
SEEDS = [0, 5]
Tiny = Callable[..., RunConfig]
BOTH: dict[str, Any] = {"smoothing": 0.75, "logit_adjustment": 1.0}
ESTIMATED: dict[str, Any] = {"prior": "estimated"}
HELD_OUT: dict[str, Any] = {"n_way": 1, "classes": (2, 3, 4), "val_classes": 2}


@torch.no_grad()
def read_out(context: Context, pack: Pack, session: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The logits of a session's queries, and the scores that answer them."""
    streams = [scenario.test for scenario in context.scenarios]
    known = context.known.session(streams, session)
    task = context.tasks.session(streams, session, known.all_averaged)
    shared = context.tasks.shared(known, streams[0].sizes(session))
    (logits,) = pack.run("logits", (shared,), known.view, (task,))
    return logits, ReadOut(context).scores(pack, shared, known, task)


@pytest.mark.parametrize("method", ["hag-meta", "sgc-lda"])
def test_off_scores_are_logits_to_the_bit_and_nothing_else_is_computed(
    tiny_graph: Dataset, tiny: Tiny, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    context = prepare(tiny(method=method), SEEDS, tiny_graph, CPU)
    pack = pretrain(context)
    steps, ordinary = [], Pack.run

    def watched(self: Pack, step: str, *arguments: Any) -> Any:
        steps.append((step, arguments[-1][0].query.shape))
        return ordinary(self, step, *arguments)

    monkeypatch.setattr(Pack, "run", watched)
    monkeypatch.setattr(ReadOut, "_labels", None)  # no label is looked for
    logits, scores = read_out(context, pack, 2)
    assert torch.equal(logits, scores)
    assert steps == [("logits", (2, logits.shape[1]))] * 2


@pytest.mark.parametrize(
    "settings", [BOTH, ESTIMATED, {"smoothing": 0.5, "spread": "correct-and-smooth"}], ids=str
)
def test_read_out_in_packs_and_plain(settings: dict[str, Any]) -> None:
    for check in (check_packs, check_plain):
        check("sgc-lda", **HELD_OUT, **settings)


def test_spread_needs_smoothing_and_is_hashed_with_it() -> None:
    other_way = {"spread": "correct-and-smooth"}
    off, on = RunConfig.of(other_way), RunConfig.of(smoothing=0.5, spread="smoothing")
    other = RunConfig.of(other_way, smoothing=0.5)
    assert off.hash() == RunConfig.of().hash() and "smoothing" in off.why_not("spread")
    assert on.hash() == RunConfig.of(smoothing=0.5).hash() != other.hash()
    assert "spread" in on.unhashed() and "spread" not in other.unhashed()


@pytest.mark.parametrize("method", ["hag-meta", "sgc-lda"])
def test_each_changes_scores_without_the_other(tiny_graph: Dataset, tiny: Tiny, method: str) -> None:
    # The same parameters for all: neither has a part in pre-training.
    found = []
    for change in ({"smoothing": 0.5}, {"logit_adjustment": 1.0}, BOTH):
        context = prepare(tiny(method=method, **change), SEEDS, tiny_graph, CPU)
        logits, scores = read_out(context, pretrain(context), 2)
        found.append(scores)
    assert torch.allclose(found[1], logits + (found[1] - logits)[:, :1], atol=1e-4)  # of a class the same
    assert not torch.equal(found[1], logits) and not torch.equal(found[0], found[2])


def scale_at(logits: np.ndarray, confidence: float = smoothing.CONFIDENCE) -> float:
    """The factor of logits (nodes, classes) at which the largest probability has this mean."""

    def above(exponent: float) -> float:
        return float(softmax(2**exponent * logits, -1).max(-1).mean()) - confidence

    return float(2 ** brentq(above, -20, 20))


def test_scores_of_queries_are_those_of_all_nodes_smoothed(tiny_graph: Dataset, tiny: Tiny) -> None:
    # From logits of every node, asked for as queries, by the formula.
    context = prepare(tiny(method="proto-gcn", **BOTH), SEEDS, tiny_graph, CPU)
    pack = pretrain(context)
    _, scores = read_out(context, pack, 2)
    streams = [scenario.test for scenario in context.scenarios]
    known = context.known.session(streams, 2)
    shared = context.tasks.shared(known, streams[0].sizes(2))
    task = context.tasks.session(streams, 2)
    halves = [part.expand(2, -1) for part in torch.arange(401).split(201)]
    tasks = tuple(task._replace(query=half) for half in halves)
    with torch.no_grad():
        logits = torch.cat(pack.run("logits", (shared,), known.view, tasks), dim=1)
    for seed, (scenario, stream) in enumerate(zip(context.scenarios, streams, strict=True)):
        train = scenario.nodes_of(stream.known, TRAIN)
        positions = scenario.positions(stream.met(2))
        counts = np.bincount(positions[scenario.labels[train]], minlength=8)
        counts[4:] = 2
        truth = np.eye(8)[positions[scenario.labels]]
        held = np.concatenate([train, np.concatenate(stream.support[:3]).ravel()])
        adjusted = logits[seed].double() - torch.from_numpy(np.log(counts / counts.sum()))
        seen = context.protocol.visible(scenario, stream, 2).astype(float)
        first = softmax(adjusted.numpy() * scale_at(adjusted.numpy()[seen > 0]), -1)
        first[held] = truth[held]
        adjacency = context.graph.loops.toarray() * np.outer(seen, seen)
        degree = np.maximum(adjacency.sum(1), 1)
        now = first
        for _ in range(5):
            now = 0.75 * (adjacency / np.sqrt(np.outer(degree, degree))) @ now + 0.25 * first
            now[held] = truth[held]
        asked = stream.queries[2]
        np.testing.assert_allclose(scores[seed, : len(asked)], now[asked], rtol=0, atol=1e-4)


def test_smoothing_comes_after_class_shares(tiny_graph: Dataset, tiny: Tiny) -> None:
    # With almost no weight for neighbours, smoothed scores are probabilities of re-weighted logits, scaled.
    found = []
    for share in (0.0, 1e-7):
        config = tiny(method="proto-gcn", smoothing=share, **ESTIMATED)
        context = prepare(config, SEEDS, tiny_graph, CPU)
        logits, scores = read_out(context, pretrain(context), 2)
        found.append([part.double().numpy() for part in (scores, logits)])
    for weighted, scores, logits in zip(found[0][0], found[1][0], found[1][1], strict=True):
        likely, unweighted = (
            softmax(scale_at(each, scores.max(-1).mean()) * each, -1) for each in (weighted, logits)
        )
        np.testing.assert_allclose(scores, likely, rtol=0, atol=1e-4)
        assert not np.allclose(scores, unweighted, rtol=0, atol=1e-3)


@pytest.mark.parametrize("factor", [1e-3, 1e3])
def test_smoothing_does_not_depend_on_the_scale_of_logits(
    tiny_graph: Dataset, tiny: Tiny, factor: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Cosines are small numbers, and squared distances large ones.
    config = tiny(method="sgc-ncm", features="propagated", smoothing=0.5)
    before = records_of(config, SEEDS, tiny_graph)
    classify = METHODS["sgc-ncm"].classify
    monkeypatch.setattr(METHODS["sgc-ncm"], "classify", lambda *given: factor * classify(*given))
    after = records_of(config, SEEDS, tiny_graph)
    assert [record["matrix"] for record in after] == [record["matrix"] for record in before]


def test_nodes_that_self_training_adds_still_count_in_class_shares(
    tiny_graph: Dataset, tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[np.ndarray] = []
    ordinary = Pack.run

    def watched(self: Pack, step: Any, *arguments: Any) -> Any:
        if step is reweighted:
            given.append(arguments[-1][0].numpy())
        return ordinary(self, step, *arguments)

    monkeypatch.setattr(Pack, "run", watched)
    context = prepare(tiny(method="frozen", self_training=5, **ESTIMATED), SEEDS, tiny_graph, CPU)
    train_and_evaluate(context, pretrain(context))
    assert len(given) == 5  # once in session 0, twice in the others
    for seed, scenario in enumerate(context.scenarios):
        known = scenario.nodes_of(scenario.test.known, TRAIN)
        for nodes, session in zip(given, (0, 1, 1, 2, 2), strict=True):
            labelled = {*known, *np.concatenate(scenario.test.support[: session + 1]).ravel()}
            assert set(nodes[seed]) == labelled


def counts_of(context: Context, monkeypatch: pytest.MonkeyPatch) -> list[np.ndarray]:
    """By session, how many labels (pack, classes) adjustment took a class to be known by."""
    found: list[np.ndarray] = []
    ordinary = ReadOut._adjustment

    def watched(self: ReadOut, labels: Any, task: Any) -> torch.Tensor:
        adjustment = ordinary(self, labels, task)
        prior = np.exp(-adjustment.numpy().astype(float))  # tau is 1
        assert np.allclose(prior.sum(1), 1, atol=1e-5)
        found.append(prior / prior.min(1, keepdims=True))
        return adjustment

    monkeypatch.setattr(ReadOut, "_adjustment", watched)
    train_and_evaluate(context, pretrain(context))
    return found


def known_counts(stream: Stream, context: Context, seed: int, most: int = 1000) -> np.ndarray:
    labels = context.scenarios[seed].labels[context.scenarios[seed].nodes_of(stream.known, TRAIN)]
    return np.minimum([(labels == c).sum() for c in stream.known], most)


@pytest.mark.parametrize(
    ("method", "rehearsal", "base", "later"),
    [
        ("frozen", "all", (1000, 1000), (2, 2)),
        ("frozen", "1", (1000, 1), (1, 2)),  # at session 0 its labels are all there
        ("frozen", "none", (1000, 1000), (2, 2)),  # so many made the prototypes that are kept
        ("er-gnn", "none", (1000, 1000), (2, 2)),
        ("er-gnn", "all", (3, 3), (2, 2)),  # what its memory holds
        ("icarl", "1", (1, 1), (1, 1)),
    ],
)
def test_logits_are_adjusted_to_the_labels_that_a_class_is_known_by(
    tiny_graph: Dataset,
    tiny: Tiny,
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    rehearsal: str,
    base: tuple[int, int],
    later: tuple[int, int],
) -> None:
    config = tiny(method=method, rehearsal=rehearsal, logit_adjustment=1.0)
    context = prepare(config, SEEDS, tiny_graph, CPU)
    sessions = counts_of(context, monkeypatch)
    assert [each.shape for each in sessions] == [(2, 4), (2, 6), (2, 8)]
    earlier, own = later
    for seed, scenario in enumerate(context.scenarios):
        first, again = (known_counts(scenario.test, context, seed, most) for most in base)
        expected = [first, [*again, own, own], [*again, earlier, earlier, own, own]]
        for found, counts in zip(sessions, expected, strict=True):
            np.testing.assert_allclose(found[seed], np.array(counts) / min(counts), rtol=1e-5)


def test_an_oracle_knows_each_class_by_all_its_train_labels(
    tiny_graph: Dataset, tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = prepare(tiny(method="joint", logit_adjustment=1.0), SEEDS, tiny_graph, CPU)
    *_, last = counts_of(context, monkeypatch)
    for seed, scenario in enumerate(context.scenarios):
        labels = scenario.labels[scenario.train_nodes_met(scenario.test, 2)]
        counts = np.array([(labels == c).sum() for c in scenario.test.met(2)])
        np.testing.assert_allclose(last[seed], counts / counts.min(), rtol=1e-5)


def test_wrong_labels_are_held_as_they_were_given(tiny_graph: Dataset, tiny: Tiny) -> None:
    config = tiny(method="proto-gcn", k_shot=3, mislabelled=1, smoothing=0.5)
    context = prepare(config, SEEDS, tiny_graph, CPU)
    streams = [scenario.test for scenario in context.scenarios]
    found = list(
        ReadOut(context)._labels(context.known.session(streams, 2), context.tasks.session(streams, 2))
    )
    for labels, scenario, stream in zip(found, context.scenarios, streams, strict=True):
        place = dict(zip(labels.nodes, labels.position, strict=True))
        given = np.array([[place[node] for node in row] for row in np.concatenate(stream.support)])
        assert (given == np.arange(4, 8)[:, None]).all()
        assert (
            scenario.labels[np.stack(stream.support[1:])] != np.stack(stream.arriving[1:])[..., None]
        ).sum() == 4


def test_supports_that_are_repeated_count_once(tiny_graph: Dataset, tiny: Tiny) -> None:
    # One label of earlier classes beside three of the new ones: rows of one length have it three times.
    context = prepare(tiny(method="frozen", k_shot=3, rehearsal="1", smoothing=0.5), SEEDS, tiny_graph, CPU)
    streams = [scenario.test for scenario in context.scenarios]
    task = context.tasks.session(streams, 2)
    assert task.support.shape == (2, 4, 3)
    for labels in ReadOut(context)._labels(context.known.session(streams, 2), task):
        assert np.bincount(labels.position).tolist() == [1, 1, 1, 1, 1, 1, 3, 3]
        assert len(set(labels.nodes)) == len(labels.nodes)


def test_neither_applies_to_released() -> None:
    plain = resolve(RunConfig.of(protocol="released"))
    config = RunConfig.of(protocol="released", **BOTH, **ESTIMATED)
    for name in BOTH | ESTIMATED:
        assert not config.applies(name) and name not in config.canonical()
        assert RunConfig.of().applies(name)
    assert resolve(config) == plain and resolve(config).hash() == plain.hash()
