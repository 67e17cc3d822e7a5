from __future__ import annotations

import json

import numpy as np
import pytest

from hagmeta.protocol.evaluator import Evaluator
from hagmeta.protocol.metrics import forgetting, harmonic_mean, summarise
from hagmeta.protocol.scenario import Stream


def evaluator_of(rights: list[list[int]]) -> Evaluator:
    """Ten base queries and ten of each later class; ``rights[t][j]`` of task j are answered right."""
    sessions = len(rights) - 1
    labels = np.repeat(np.arange(sessions + 1), 10)
    stream = Stream(
        known=np.array([0]),
        arriving=np.arange(1, sessions + 1).reshape(sessions, 1),
        support=np.zeros((sessions, 1, 1), dtype=np.int64),
        queries=tuple(np.arange(10 * (t + 1)) for t in range(sessions + 1)),
        arrival=labels.astype(np.int16),
        readable_from=labels.astype(np.int16),
    )
    evaluator = Evaluator(stream, labels)
    for session, row in enumerate(rights):
        wrong = np.arange(10) >= np.array(row)[:, None]  # (tasks, queries)
        tasks = np.arange(session + 1)[:, None]
        evaluator.record(stream.queries[session], np.where(wrong, -1, tasks).ravel())
    return evaluator


def test_a_hand_made_matrix() -> None:
    record = summarise(evaluator_of([[8], [6, 4], [7, 2, 3]]))
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


def test_a_record_s_metrics_survive_json() -> None:
    record = summarise(evaluator_of([[8], [6, 4]]))
    assert json.loads(json.dumps(record, allow_nan=False)) == record


def test_a_model_that_is_always_wrong_has_no_relative_drop() -> None:
    record = summarise(evaluator_of([[0], [0, 0]]))
    assert (record["pd"], record["rpd"], record["harmonic"]) == (0.0, None, [None, 0.0])


def test_forgetting_is_measured_from_the_best_and_may_be_negative() -> None:
    assert forgetting([[0.5], [0.75, 0.25], [0.25, 0.5, 1.0]]) == [0.5, -0.25]


def test_the_harmonic_mean_is_zero_when_one_side_is() -> None:
    assert harmonic_mean(0.9, 0.0) == 0.0
    assert harmonic_mean(0.5, 0.5) == 0.5
    assert harmonic_mean(0.9, None) is None
