"""Score predictions. Only the Evaluator sees the labels of queries; methods get no feedback."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hagmeta.scenarios.predictions import Predictions
from hagmeta.scenarios.scenario import Stream

DIGITS = 4  # of diagnostics
BINS = 15  # of confidence, for the calibration error


class Evaluator:
    """Compare the predictions of one seed with the hidden labels, session by session."""

    def __init__(self, stream: Stream, labels: np.ndarray) -> None:
        self._stream = stream
        self._labels = labels
        self.predictions = Predictions(stream.arriving)
        self.notes: list[dict[str, float]] = []  # diagnostics of the method by session
        self._calibration: dict[str, list[float]] = {}  # by session, if predictions have probabilities
        self.embeddings: dict[str, np.ndarray] | None = None  # of the queries of one session, if asked for

    @property
    def answers(self) -> list[np.ndarray]:
        """Return the predicted class of each query, by session."""
        return self.predictions.predicted

    def record(
        self,
        queries: np.ndarray,
        classes: np.ndarray,
        confidence: np.ndarray | None = None,
        tempered: np.ndarray | None = None,
    ) -> None:
        """Add the predictions of the next session.

        Args:
            queries: The nodes that were classified.
            classes: The predicted class of each query.
            confidence: The probability of each prediction, if the method has one.
            tempered: The same with a temperature, if one was fitted.
        """
        self.predictions.add(queries, classes, self._labels[queries], confidence)
        right = classes == self._labels[queries]
        for name, given in (("calibration_error", confidence), ("tempered_calibration_error", tempered)):
            if given is not None:
                self._calibration.setdefault(name, []).append(calibration_error(given, right))

    def note(self, values: dict[str, float]) -> None:
        """Add diagnostics of the current session."""
        self.notes.append(values)

    def diagnostics(self) -> dict[str, list[float | None]]:
        """Return the diagnostics by name and session; None where a session has no value.

        Values are rounded, because the last digits depend on the number of seeds in a pack.
        """
        names = dict.fromkeys(name for values in self.notes for name in values)
        series = {name: [values.get(name, math.nan) for values in self.notes] for name in names}
        series |= self._calibration | self._by_age()
        return {
            name: [None if math.isnan(value) else round(value, DIGITS) for value in values]
            for name, values in series.items()
        }

    def _by_age(self) -> dict[str, list[float]]:
        """Return accuracies on old and new nodes of earlier classes, if there are new ones in any session."""
        done, rows = self.predictions, [(math.nan, math.nan)]
        for session in range(1, len(done.true)):
            true, new = done.true[session], self._stream.arrival[done.queries[session]] == session
            right = done.predicted[session] == true
            rows.append(accuracy_by_age(true, right, new, done.met(session - 1)))
        if all(math.isnan(new) for _, new in rows):
            return {}
        old, new = (list(column) for column in zip(*rows, strict=True))
        return {"macro_old_node_accuracy": old, "macro_new_node_accuracy": new}

    def state(self) -> dict[str, Any]:
        """Return all predictions so far, for a checkpoint."""
        done = self.predictions
        columns = [done.queries, done.predicted, done.true, *([done.confidence] if done.confidence else [])]
        rows = [list(row) for row in zip(*columns, strict=True)]
        return {
            "answered": rows,
            "notes": self.notes,
            "calibration": self._calibration,
            "embeddings": self.embeddings,
        }

    def load(self, state: dict[str, Any]) -> None:
        """Continue from a checkpoint."""
        for row in state["answered"]:
            self.predictions.add(*(part.numpy() for part in row))
        self.notes = list(state["notes"])
        self._calibration = {name: list(values) for name, values in state["calibration"].items()}
        if state["embeddings"]:
            self.embeddings = {name: array.numpy() for name, array in state["embeddings"].items()}

    def last_accuracy(self) -> float:
        """Return the accuracy of the last session."""
        return float((self.predictions.predicted[-1] == self.predictions.true[-1]).mean())


def accuracy_by_age(
    true: np.ndarray, right: np.ndarray, new: np.ndarray, earlier: np.ndarray
) -> tuple[float, float]:
    """Return the mean accuracies per class on old and on new nodes, over the same classes.

    Args:
        true: The class of each query.
        right: Whether its prediction is correct.
        new: Whether the node arrived in this session.
        earlier: The classes that arrived before. Those without new nodes do not count.

    Returns:
        The two means. Both are NaN if no class counts.
    """
    classes = np.intersect1d(true[new], earlier)
    means = [[right[(true == c) & age].mean() for c in classes] for age in (~new, new)]
    old, young = (float(np.mean(values)) if values else math.nan for values in means)
    return old, young


def calibration_error(confidence: np.ndarray, right: np.ndarray) -> float:
    """Return the expected calibration error (Guo et al., 2017) over bins of equal width."""
    bins = np.minimum((confidence * BINS).astype(np.int64), BINS - 1)
    gaps = np.bincount(bins, weights=confidence - right, minlength=BINS)
    return float(np.abs(gaps).sum() / len(right))
