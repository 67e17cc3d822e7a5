"""A learner says how likely a node belongs to a class that nobody has named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from hagmeta import Dataset, Learner, UserError
from hagmeta.learner.novelty import FALSE_ALARMS, fitted_novelty, log_odds
from tests.hagmeta.learner.playing import clear_graph
from tests.hagmeta.learner.test_learner import fitted, nodes_of

UNKNOWN = ("5", "6", "7")


@pytest.fixture(scope="module")
def graph() -> Dataset:
    return clear_graph()


@pytest.mark.parametrize(
    ("method", "smoothing"), [("sgc-ncm", 0), ("sgc-ncm", 0.5), ("sgc-lda", 0), ("posterior-means", 0)]
)
def test_nodes_of_unknown_classes_are_found(graph: Dataset, method: str, smoothing: float) -> None:
    learner = fitted(graph, method=method, smoothing=smoothing)
    labels = np.array(graph.class_names)[graph.labels]
    for unknown in (("4", *UNKNOWN), UNKNOWN):
        found = learner.predict_unknown(graph)
        assert found.columns.tolist() == ["node", "unknown"]
        assert found["node"].tolist() == list(graph.node_ids or ())
        strange, shares = np.isin(labels, unknown), found["unknown"].to_numpy()
        assert ((shares >= 0) & (shares <= 1)).all()
        assert roc_auc_score(strange, shares) > 0.95
        assert (shares[strange] > 0.5).mean() > 0.9
        learner.learn(graph, {"4": nodes_of(graph, "4")[:5]})


def test_unknown_nodes_can_have_a_name(graph: Dataset) -> None:
    learner = fitted(graph)
    asked = nodes_of(graph, "7") + nodes_of(graph, "0")
    named, plain = learner.predict(graph, asked, unknown="other"), learner.predict(graph, asked)
    strange = learner.predict_unknown(graph, asked)["unknown"].to_numpy() > 0.5
    assert 0 < strange.sum() < len(asked)
    assert (named == np.where(strange, "other", plain)).all()
    with pytest.raises(UserError, match="unknown is '0', a class that the learner knows; use another name"):
        learner.predict(graph, asked, unknown="0")
    with pytest.raises(UserError, match="holds node 'nobody'"):
        learner.predict_unknown(graph, ["nobody"])
    assert len(learner.predict_unknown(graph, [])) == 0 == len(learner.predict(graph, [], unknown="other"))


def test_a_saved_learner_says_the_same(graph: Dataset, tmp_path: Path) -> None:
    learner = fitted(graph)
    path = learner.save(tmp_path / "saved")
    one, other = (each.predict_unknown(graph) for each in (learner, Learner.load(path, device="cpu")))
    assert one.equals(other)


def examples(distance: float) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    scores, truth = rng.normal(size=(500, 6)), rng.integers(6, size=500)
    scores[np.arange(500), truth] += distance
    return scores, truth


@pytest.mark.parametrize("distance", [0.0, 3.0, 100.0])
def test_probabilities_fall_with_the_score(distance: float) -> None:
    scores, truth = examples(distance)
    novelty = fitted_novelty(scores, truth)
    points = np.linspace(-100, 200, 50)
    found = novelty.probability(points)
    assert np.isfinite(novelty).all() and (np.diff(found) <= 0).all() and found[0] > 0.5 > found[-1]
    known = novelty.probability(novelty.fit_of(scores))
    assert (known >= 0.5).mean() >= FALSE_ALARMS


def test_the_threshold_is_where_played_classes_are_told_apart() -> None:
    scores, truth = examples(2.0)
    novelty = fitted_novelty(scores, truth)
    others = scores.copy()
    others[np.arange(500), truth] = -np.inf
    known, played = novelty.fit_of(scores), novelty.fit_of(others)
    errors = [(known < c).mean() + (played >= c).mean() for c in np.linspace(-3, 4, 141)]
    assert (known < novelty.middle).mean() > FALSE_ALARMS  # the least share does not decide
    assert (known < novelty.middle).mean() + (played >= novelty.middle).mean() < min(errors) + 0.03


def test_logits_or_odds_are_used_whichever_tells_more() -> None:
    scores, truth = examples(4.0)
    assert not fitted_novelty(scores, truth).by_odds
    level = np.random.default_rng(1).normal(scale=50, size=(500, 1))  # says nothing about the class
    assert fitted_novelty(scores + level, truth).by_odds
    assert not fitted_novelty(scores[:, :2] + level, truth % 2).by_odds  # one class has no odds


def test_log_odds() -> None:
    shares = np.array([[0.7, 0.2, 0.1], [0.25, 0.25, 0.5]])
    assert log_odds(np.log(shares)) == pytest.approx(np.log([7 / 3, 1]))
    assert (log_odds(np.array([[2000.0, 0.0], [1000.0, 0.0]])) == [2000, 1000]).all()  # no limit of precision
