"""The Evaluator keeps the labels of the queries: a method is handed nodes and gets nothing back."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hagmeta.protocol.predictions import Predictions
from hagmeta.protocol.scenario import Stream

DIGITS = 4  # of what a method tells of itself
BINS = 15  # of confidence


class Evaluator:
    """Compares one seed's answers, session by session, with labels that nobody else sees."""

    def __init__(self, stream: Stream, labels: np.ndarray) -> None:
        self._stream = stream
        self._labels = labels
        self.predictions = Predictions(stream.known, stream.arriving)
        self.notes: list[dict[str, float]] = []  # by session, what a method tells of itself
        self.calibration_error: list[float] = []  # by session, where answers have a probability

    @property
    def answers(self) -> list[np.ndarray]:
        """By session, the class given to each query."""
        return self.predictions.predicted

    def score(self, predictions: np.ndarray) -> None:
        """The next session's answers to its queries: positions in the order in which classes are met."""
        session = len(self.answers)
        self.record(self._stream.queries[session], self._stream.met(session)[predictions])

    def record(self, queries: np.ndarray, classes: np.ndarray, confidence: np.ndarray | None = None) -> None:
        """The next session's answers to queries of the caller's own, and how probable each is said to be."""
        self.predictions.add(queries, classes, self._labels[queries])
        if confidence is not None:
            right = classes == self._labels[queries]
            self.calibration_error.append(calibration_error(confidence, right))

    def note(self, values: dict[str, float]) -> None:
        """Numbers to keep beside the session's answers."""
        self.notes.append(values)

    def diagnostics(self) -> dict[str, list[float | None]]:
        """By name, session by session; None where there was no such number.

        Rounded: the last digits of small products depend on how many seeds are in a pack.
        """
        names = dict.fromkeys(name for values in self.notes for name in values)
        series = {name: [values.get(name, math.nan) for values in self.notes] for name in names}
        if self.calibration_error:
            series["calibration_error"] = self.calibration_error
        return {
            name: [None if math.isnan(value) else round(value, DIGITS) for value in values]
            for name, values in series.items()
        }

    def state(self) -> dict[str, Any]:
        """What was answered so far."""
        told = self.predictions
        rows = [list(row) for row in zip(told.queries, told.predicted, told.true, strict=True)]
        return {"answered": rows, "notes": self.notes, "calibration_error": self.calibration_error}

    def load(self, state: dict[str, Any]) -> None:
        """Go on from such a state."""
        for row in state["answered"]:
            self.predictions.add(*(part.numpy() for part in row))
        self.notes, self.calibration_error = list(state["notes"]), list(state["calibration_error"])

    def last_accuracy(self) -> float:
        """Of the session that was answered last."""
        return float((self.predictions.predicted[-1] == self.predictions.true[-1]).mean())

    def accuracy(self) -> list[float]:
        return [float(correct.mean()) for correct in self.predictions.correct()]


def calibration_error(confidence: np.ndarray, right: np.ndarray) -> float:
    """Expected calibration error (Guo et al., 2017): |confidence - accuracy| over bins of equal width.

    It is NaN where a confidence is: training that diverged gives no probabilities.
    """
    if np.isnan(confidence).any():  # as a whole number NaN is 0 on some processors and negative on others
        return math.nan
    bins = np.minimum((confidence * BINS).astype(np.int64), BINS - 1)
    gaps = np.bincount(bins, weights=confidence - right, minlength=BINS)
    return float(np.abs(gaps).sum() / len(right))
