from __future__ import annotations

import numpy as np
import pytest

from hagmeta.scenarios.evaluator import Evaluator, calibration_error
from hagmeta.scenarios.metrics import accuracy, matrix, novel_accuracy
from hagmeta.scenarios.scenario import Stream

LABELS = np.array([2, 2, 0, 0, 1, 1, 3, 3])


def stream() -> Stream:
    """Classes 2 and 0 are known; then 3 comes, then 1: labels to the model are places in that order."""
    arrival = np.array([0, 0, 0, 0, 2, 2, 1, 1], dtype=np.int16)
    return Stream(
        arriving=(np.array([2, 0]), np.array([3]), np.array([1])),
        support=(np.empty((0, 1), dtype=np.int64), np.array([[6]]), np.array([[4]])),
        queries=(np.array([0, 1, 2, 3]), np.array([0, 1, 2, 3, 7]), np.array([0, 1, 2, 3, 5, 7])),
        arrival=arrival,
        labelled_from=arrival,
    )


def answered() -> Evaluator:
    evaluator = Evaluator(stream(), LABELS)
    answers = [
        [2, 2, 0, 2],  # three of four
        [2, 3, 0, 0, 3],  # four of five, the new one right
        [2, 3, 0, 1, 3, 3],  # base two of four, 3 right, the new one wrong
    ]
    for queries, classes in zip(stream().queries, answers, strict=True):
        evaluator.record(queries, np.array(classes))
    return evaluator


def test_accuracies_over_all_by_task_and_over_novel_classes() -> None:
    evaluator = answered()
    assert accuracy(evaluator.predictions) == [0.75, 0.8, 0.5]
    assert matrix(evaluator.predictions) == [[0.75], [0.75, 1.0], [0.5, 1.0, 0.0]]
    assert novel_accuracy(evaluator.predictions) == [None, 1.0, 0.5]


def test_answers_to_queries_of_the_caller_s_own_are_counted_alike() -> None:
    evaluator = Evaluator(stream(), LABELS)
    evaluator.record(np.array([0, 2, 2]), np.array([2, 0, 2]))
    assert accuracy(evaluator.predictions) == [pytest.approx(2 / 3)]


def test_an_answer_that_is_no_class_is_wrong() -> None:
    evaluator = Evaluator(stream(), LABELS)
    evaluator.record(np.array([0, 2]), np.array([-1, 0]))
    assert accuracy(evaluator.predictions) == [0.5]


def test_the_calibration_error_by_hand() -> None:
    confidence = np.array([0.95, 0.95, 0.95, 1.0, 0.3, 0.3])  # one bin holds the first four
    right = np.array([1, 1, 0, 1, 0, 1], dtype=bool)
    by_hand = (4 * abs(3.85 / 4 - 3 / 4) + 2 * abs(0.3 - 0.5)) / 6
    assert calibration_error(confidence, right) == pytest.approx(by_hand)
    assert calibration_error(np.ones(5), np.ones(5, dtype=bool)) == 0


def test_the_calibration_error_is_told_where_answers_have_a_probability() -> None:
    assert "calibration_error" not in answered().diagnostics()
    evaluator = Evaluator(stream(), LABELS)
    evaluator.record(np.arange(4), LABELS[:4], np.full(4, 0.75))
    evaluator.record(np.arange(4), LABELS[[0, 1, 2, 4]], np.full(4, 0.75))
    assert evaluator.diagnostics() == {"calibration_error": [0.25, 0.0]}
