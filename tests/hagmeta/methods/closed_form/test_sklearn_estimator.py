"""Classifiers of scikit-learn as methods: equal to a script, and one line for what they cannot do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier

import hagmeta
from hagmeta import datasets
from hagmeta.common.errors import UserError
from hagmeta.config.remarks import remarks
from hagmeta.config.run_config import RunConfig, resolve
from hagmeta.engine.run import prepare, pretrain
from hagmeta.methods import METHODS
from hagmeta.testing import GRAPH, SMALL, TASK, check_method, records_of, run_context

CPU = torch.device("cpu")
LOGISTIC = "sklearn:sklearn.linear_model:LogisticRegression"
ONE_LINE = "sklearn: {} fails with {} classes, "


class AtMostTen(KNeighborsClassifier):
    """Refuses more than ten classes, as some tabular models do."""

    def fit(self, rows: np.ndarray, target: np.ndarray) -> AtMostTen:
        if len(np.unique(target)) > 10:
            raise ValueError(f"Number of classes {len(np.unique(target))}\nexceeds the maximum of 10")
        return super().fit(rows, target)


class Broken:
    """Fits, but returns one column."""

    def fit(self, rows: np.ndarray, target: np.ndarray) -> Broken:
        return self

    def decision_function(self, rows: np.ndarray) -> np.ndarray:
        return np.zeros((len(rows), 1))


def config(reference: str, **settings: Any) -> RunConfig:
    given = {"dataset": GRAPH, **SMALL, **TASK, "features": "propagated", **settings}
    return RunConfig.of(given, method=reference)


@pytest.mark.parametrize("features", ["propagated", "both"])
def test_predictions_are_those_of_a_script_on_exported_features(features: str) -> None:
    chosen = config(LOGISTIC, features=features, estimator__C="0.1", estimator__class_weight="balanced")
    graph = datasets.load(GRAPH, Path())
    context = prepare(chosen, [3], graph, CPU, mode="plain")
    _, ((*_, answers),) = run_context(context)
    # What a user would export: features, and the labels that may be read in the last session.
    stream, last, pack = context.scenarios[0].test, 2, pretrain(context)
    known = context.known.session([stream], last)
    everything = torch.arange(graph.num_nodes)[None]
    shared = context.tasks.shared(known, stream.sizes(last))
    rows = pack.run("embeddings", (shared,), known.view, everything)[0].numpy()
    ((labelled, labels),) = known.averaged_over
    supports = np.concatenate([part.ravel() for part in stream.supports(last)])
    nodes = np.unique(np.concatenate([labelled[np.isin(labels, stream.known)], supports]))

    model = LogisticRegression(C=0.1, class_weight="balanced", random_state=3)
    model.fit(rows[nodes], graph.labels[nodes])
    np.testing.assert_array_equal(model.predict(rows[stream.queries[last]]), answers)


@pytest.mark.parametrize(
    "reference",
    ["sklearn:sklearn.linear_model:RidgeClassifier", "sklearn:sklearn.tree:DecisionTreeClassifier"],
)
def test_estimators_keep_the_contract_without_probabilities_and_with_random_numbers(reference: str) -> None:
    check_method(reference, features="propagated")


def test_more_classes_than_an_estimator_takes_end_in_one_line() -> None:
    reference = f"sklearn:{__file__}:AtMostTen"
    settings = {"dataset": "synthetic:nodes=600,edges=1800,features=40,classes=39", "classes": (13, 13, 13)}
    with pytest.raises(UserError) as raised:
        hagmeta.run(reference, **{**settings, "n_way": 3, "k_shot": 2, "features": "propagated"})
    words = str(raised.value)
    assert words.startswith(ONE_LINE.format("AtMostTen", 26)) and "\n" not in words
    assert words.endswith("ValueError: Number of classes 26 exceeds the maximum of 10")


@pytest.mark.parametrize(
    ("reference", "settings", "message"),
    [
        (
            LOGISTIC,
            {"estimator__C": -1.0},
            "sklearn: LogisticRegression fails with 4 classes, .*InvalidParam",
        ),
        (f"sklearn:{__file__}:Broken", {}, r"sklearn: Broken returns scores of shape \(\d+, 1\); expected"),
        (LOGISTIC, {"rehearsal": "none"}, "rehearsal: none is not possible"),
        (LOGISTIC, {"estimator__gamma": 1}, "estimator__gamma"),
        ("sklearn:sklearn.decomposition:PCA", {}, "method PCA: expected a class with fit, and with predict"),
        ("sklearn:sklearn.svm:LinearSVM", {}, "the module has no 'LinearSVM'"),
        ("sklearn:LogisticRegression", {}, "is not a reference"),
    ],
)
def test_what_cannot_work_ends_in_one_line(reference: str, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        records_of(config(reference, **settings), [0], datasets.load(GRAPH, Path()))


def test_parameters_are_settings_and_defaults_do_not_change_the_hash() -> None:
    plain = resolve(config(LOGISTIC))
    assert resolve(config(LOGISTIC, estimator__C=1, estimator__tol="1e-4")).hash() == plain.hash()
    other = resolve(config(LOGISTIC, estimator__C="0.5", estimator__fit_intercept="false"))
    assert (other.estimator__C, other.estimator__fit_intercept) == (0.5, False)  # type: ignore[attr-defined]
    assert other.given()[-2:] == ["estimator__C", "estimator__fit_intercept"]
    assert other.hash() != plain.hash() and METHODS[plain.method] is METHODS.find(LOGISTIC)
    assert any("the method LogisticRegression runs one seed at a time" in note for note in remarks(plain))


def test_records_say_that_an_estimator_was_pretrained_elsewhere() -> None:
    graph = datasets.load(GRAPH, Path())
    for given in (True, False):
        (record,) = records_of(config(LOGISTIC, pretrained_elsewhere=given), [0], graph)
        assert record["traits"]["pretrained_elsewhere"] is given


def test_a_learner_learns_new_classes_with_an_estimator(tmp_path: Path) -> None:
    data = datasets.load("synthetic:nodes=300,edges=1200,features=40,classes=10", Path())
    names = [data.class_names[label] for label in data.labels]
    labels = {node: name for node, name in enumerate(names) if name < "6" and node % 3}
    learner = hagmeta.Learner("sklearn:sklearn.neighbors:KNeighborsClassifier", features="propagated")
    learner.fit(data, labels).learn(data, {"nine": [n for n, name in enumerate(names) if name == "9"][:5]})
    found = learner.predict(data)
    assert "nine" in found and "nine" in learner.classes_
    again = hagmeta.Learner.load(learner.save(tmp_path / "saved"))
    np.testing.assert_array_equal(again.predict(data), found)
