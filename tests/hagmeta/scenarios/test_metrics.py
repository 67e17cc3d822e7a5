from __future__ import annotations

import json
from typing import Any, ClassVar

import numpy as np
import pytest
from sklearn.metrics import f1_score

from hagmeta.common.errors import UserError
from hagmeta.common.records.metrics import BUILT_IN, DIAGNOSTICS, harmonic_mean
from hagmeta.common.records.record_schema import NOT_BY_SESSION, schema
from hagmeta.scenarios.evaluator import Evaluator
from hagmeta.scenarios.metrics import METRICS, Metric, metrics_of, with_metrics
from hagmeta.scenarios.predictions import Predictions
from hagmeta.scenarios.scenario import Stream


def answered(rights: list[list[int]]) -> Predictions:
    """Ten base queries and ten of each later class; ``rights[t][j]`` of task j are answered right."""
    sessions = len(rights) - 1
    labels = np.repeat(np.arange(sessions + 1), 10)
    stream = Stream(
        arriving=tuple(np.arange(sessions + 1).reshape(-1, 1)),
        support=tuple(np.zeros((int(t > 0), 1), dtype=np.int64) for t in range(sessions + 1)),
        queries=tuple(np.arange(10 * (t + 1)) for t in range(sessions + 1)),
        arrival=labels.astype(np.int16),
        labelled_from=labels.astype(np.int16),
    )
    evaluator = Evaluator(stream, labels)
    for session, row in enumerate(rights):
        wrong = np.arange(10) >= np.array(row)[:, None]  # (tasks, queries)
        tasks = np.arange(session + 1)[:, None]
        evaluator.record(stream.queries[session], np.where(wrong, -1, tasks).ravel())
    return evaluator.predictions


def test_a_hand_made_matrix() -> None:
    record = metrics_of(answered([[8], [6, 4], [7, 2, 3]]))
    assert record["matrix"] == [[0.8], [0.6, 0.4], [0.7, 0.2, 0.3]]
    assert record["accuracy"] == pytest.approx([0.8, 0.5, 0.4])
    assert record["base_accuracy"] == [0.8, 0.6, 0.7]
    assert record["new_accuracy"] == [None, 0.4, 0.3]
    assert record["novel_accuracy"][0] is None
    assert record["novel_accuracy"][1:] == pytest.approx([0.4, 0.25])
    assert record["harmonic"][0] is None
    assert record["harmonic"][1:] == pytest.approx([2 * 0.6 * 0.4 / 1.0, 2 * 0.7 * 0.25 / 0.95])
    assert record["pd"] == pytest.approx(0.4)
    assert record["rpd"] == pytest.approx(0.5)
    assert record["average_accuracy"] == pytest.approx(1.7 / 3)
    # The base task was best at the start, 0.8, and ends at 0.7; the first novel one falls from 0.4 to 0.2.
    assert record["forgetting"] == pytest.approx([0.1, 0.2])


def test_a_model_that_is_always_wrong_has_no_relative_drop() -> None:
    record = metrics_of(answered([[0], [0, 0]]))
    assert (record["pd"], record["rpd"], record["harmonic"]) == (0.0, None, [None, 0.0])


def test_forgetting_is_measured_from_the_best_and_may_be_negative() -> None:
    assert metrics_of(answered([[5], [7, 2], [2, 4, 9]]))["forgetting"] == pytest.approx([0.5, -0.2])


def test_the_harmonic_mean_is_zero_when_one_side_is() -> None:
    assert harmonic_mean(0.9, 0.0) == 0.0
    assert harmonic_mean(0.5, 0.5) == 0.5
    assert harmonic_mean(0.9, None) is None


def unbalanced() -> Predictions:
    """Class 5 is known with four queries, 2 with one; then 7 comes with two."""
    found = Predictions((np.array([5, 2]), np.array([7])))
    true = np.array([5, 5, 5, 5, 2])
    found.add(np.arange(5), np.array([5, 5, 5, 2, 5]), true)
    found.add(np.arange(7), np.array([5, 5, 7, 2, 2, 7, -1]), np.append(true, [7, 7]))
    return found


def test_macro_metrics_by_hand() -> None:
    record = metrics_of(unbalanced())
    assert record["classes_met"] == [5, 2, 7]
    assert record["class_accuracy"] == [[0.75, 0.0], [0.5, 1.0, 0.5]]
    assert record["accuracy"] == pytest.approx([3 / 5, 4 / 7])
    assert record["macro_accuracy"] == pytest.approx([0.375, 2 / 3])
    assert record["macro_base_accuracy"] == [0.375, 0.75]
    assert record["macro_novel_accuracy"] == [None, 0.5]
    assert record["macro_harmonic"] == [None, pytest.approx(2 * 0.75 * 0.5 / 1.25)]
    # 2 TP / (asked + given). Session 0: 5 has 6/(4+4), 2 none; session 1: 5 has 4/(4+2), 2 has 2/(1+2),
    # 7 has 2/(2+2).
    assert record["macro_f1"] == pytest.approx([0.375, (2 / 3 + 2 / 3 + 1 / 2) / 3])


def test_macro_f1_is_scikit_learn_s() -> None:
    rng = np.random.default_rng(0)
    met = rng.permutation(20)[:12]
    found = Predictions((met[:9], met[9:]))
    for classes in (met[:9], met):
        true = np.append(classes, rng.choice(classes, 300))
        predicted = np.where(rng.random(len(true)) < 0.5, true, rng.choice(classes[1:], len(true)))
        predicted[:40] = -1
        found.add(np.arange(len(true)), predicted, true)
    expected = [
        f1_score(true, predicted, labels=classes, average="macro", zero_division=0)
        for true, predicted, classes in zip(found.true, found.predicted, (met[:9], met), strict=True)
    ]
    assert metrics_of(found)["macro_f1"] == pytest.approx(expected, abs=1e-12)


def test_a_class_that_is_not_asked_about_takes_no_part_in_a_macro_mean() -> None:
    found = Predictions((np.array([0, 1]),))
    found.add(np.arange(2), np.array([0, 1]), np.array([0, 0]))
    record = metrics_of(found)
    assert record["class_accuracy"] == [[0.5, None]]
    assert record["macro_accuracy"] == [0.5] and record["macro_f1"] == pytest.approx([2 / 3])
    assert json.loads(json.dumps(record, allow_nan=False)) == record


def test_macro_and_plain_accuracy_are_one_where_classes_have_equally_many_queries() -> None:
    record = metrics_of(answered([[8], [6, 4], [7, 2, 3]]))
    for plain in ("accuracy", "base_accuracy", "novel_accuracy", "harmonic"):
        macro = record["macro_" + plain]
        assert macro == [pytest.approx(value) if value is not None else None for value in record[plain]]


def test_backward_transfer_is_measured_from_a_task_s_own_session() -> None:
    # The base task goes from 0.5 to 0.2, the next from 0.2 to 0.7: (-0.3 + 0.5) / 2.
    record = metrics_of(answered([[5], [7, 2], [2, 7, 9]]))
    assert record["backward_transfer"] == pytest.approx(0.1)
    assert metrics_of(answered([[5]]))["backward_transfer"] is None
    assert metrics_of(answered([[8], [6, 4], [7, 2, 3]]))["backward_transfer"] == pytest.approx(-0.15)


class WorstClass(Metric):
    name, title, by_session = "worst_class", "worst class", False

    def compute(self, predictions: Predictions) -> float:
        last = predictions.counts()[-1]
        return float((last.right / last.asked).min())


class Errors(Metric):
    name, title, by_session, higher_is_better = "errors", "wrong answers", True, False

    def compute(self, predictions: Predictions) -> Any:
        return np.array([(~correct).sum() for correct in predictions.correct()])


PREDICTIONS = answered([[8], [6, 4], [7, 2, 3]])
ADDITIONAL: dict[str, type[Metric]] = {"WorstClass@012345678901": WorstClass, "Errors@abcdefabcdef": Errors}


def test_declarations_schema_and_computation_agree() -> None:
    properties, declared = schema()["properties"], {each.name: each for each in BUILT_IN}
    assert METRICS.keys() == metrics_of(PREDICTIONS).keys() == declared.keys() <= properties.keys()
    for name, each in declared.items():
        is_list = properties[name]["type"] == "array"
        assert is_list or not each.by_session, name
        assert (name in NOT_BY_SESSION) != each.by_session, name
        assert isinstance(metrics_of(PREDICTIONS)[name], list) == is_list, name
        if each.score:
            limits = properties[name]["items"]
            assert each.by_session and (limits["minimum"], limits["maximum"]) == (0, 1), name
    assert not {each.name for each in DIAGNOSTICS} & properties.keys()


def test_additional_metrics_follow_the_built_in_ones() -> None:
    found = metrics_of(PREDICTIONS, ADDITIONAL)
    assert list(found) == [*metrics_of(PREDICTIONS), "worst_class", "errors"]
    assert found["worst_class"] == 0.2 and found["errors"] == [2.0, 10.0, 18.0]
    assert json.loads(json.dumps(found)) == found


def test_a_metric_that_comes_later_is_added_to_a_record_with_its_declaration() -> None:
    record = metrics_of(PREDICTIONS)
    first = dict(list(ADDITIONAL.items())[:1])
    found = with_metrics(with_metrics(record, PREDICTIONS, first), PREDICTIONS, ADDITIONAL)
    assert {name: found[name] for name in record} == record and "metrics" not in record
    assert found["errors"] == [2.0, 10.0, 18.0]
    assert found["metrics"]["worst_class"] == {
        "title": "worst class",
        "by_session": False,
        "higher_is_better": True,
        "shown": True,
        "source": "WorstClass@012345678901",
    }
    assert with_metrics(record, PREDICTIONS, {}) == record


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0.5, "metric errors: compute returned 0.5; expected a list of 3 values, one per session."),
        ([1, 2], "metric errors: compute returned 2 values; expected 3, one per session."),
        ([1, float("nan"), 2], "metric errors: compute returned nan; expected finite numbers or None."),
        ([1, "2", 3], "metric errors: compute returned '2'; expected finite numbers or None."),
        ([1, True, 3], "metric errors: compute returned True; expected finite numbers or None."),
    ],
)
def test_a_metric_with_wrong_values_is_named(value: Any, words: str) -> None:
    wrong = type("Wrong", (Errors,), {"compute": lambda self, predictions: value})
    with pytest.raises(UserError) as error:
        metrics_of(PREDICTIONS, {"Wrong@012345678901": wrong})
    assert str(error.value) == words


@pytest.mark.parametrize(
    ("attribute", "words"),
    [
        ({"name": "accuracy"}, "metric accuracy: a built-in value already has this name. Rename the metric."),
        (
            {"name": "nla_entropy"},
            "metric nla_entropy: a built-in value already has this name. Rename the metric.",
        ),
        ({"name": "Worst!"}, "metric Mine: name is 'Worst!'; expected lower-case letters, digits and _."),
        ({"title": ""}, "metric Mine: title is ''; expected a str."),
        ({"by_session": 1}, "metric Mine: by_session is 1; expected a bool."),
    ],
)
def test_a_metric_that_is_declared_wrongly_is_named(attribute: dict[str, Any], words: str) -> None:
    mine = type("Mine", (WorstClass,), attribute)
    with pytest.raises(UserError) as error:
        metrics_of(PREDICTIONS, {"Mine@012345678901": mine})
    assert str(error.value) == words


def test_two_metrics_of_one_name_are_refused() -> None:
    class Twin(WorstClass):
        title: ClassVar[str] = "twin"

    with pytest.raises(UserError, match="metric worst_class: another metric already has this name"):
        metrics_of(PREDICTIONS, {**ADDITIONAL, "Twin@012345678901": Twin})
    with pytest.raises(UserError, match="metric worst_class: records already have a value with this name"):
        with_metrics({"worst_class": [0.0]}, PREDICTIONS, ADDITIONAL)
