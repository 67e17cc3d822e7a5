"""The predictions of a run for every query, in memory and as a file. All metrics derive from them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from hagmeta.common.errors import UserError

LEVELS = 65_520  # of a stored confidence: a multiple of the bins of the calibration error, below 2 ** 16
NO_NUMBER = 2**16 - 1  # stored for a confidence that is NaN


class ClassCounts(NamedTuple):
    """Counts for each class up to a session, in the order in which classes are met."""

    asked: np.ndarray  # queries of the class
    given: np.ndarray  # queries predicted as the class
    right: np.ndarray  # queries of the class predicted correctly


@dataclass(frozen=True)
class Predictions:
    """The queries of every session, with predicted and true classes.

    Attributes:
        arriving: The classes that arrive, by session. Those of session 0 are known at the start.
        queries: The nodes that were classified, by session.
        predicted: Their predicted classes, by session; -1 if the prediction is not a class.
        true: Their true classes, by session.
        confidence: The probabilities of the predicted classes, by session. Empty if the method has none, or
            if a file from before they were stored was read.
    """

    arriving: tuple[np.ndarray, ...]
    queries: list[np.ndarray] = field(default_factory=list)
    predicted: list[np.ndarray] = field(default_factory=list)
    true: list[np.ndarray] = field(default_factory=list)
    confidence: list[np.ndarray] = field(default_factory=list)

    def add(
        self,
        queries: np.ndarray,
        predicted: np.ndarray,
        true: np.ndarray,
        confidence: np.ndarray | None = None,
    ) -> None:
        """Add the predictions of the next session."""
        self.queries.append(queries)
        self.predicted.append(predicted)
        self.true.append(true)
        if confidence is not None:
            self.confidence.append(confidence)

    @property
    def known(self) -> np.ndarray:
        """Return the classes that are known at session 0."""
        return self.arriving[0]

    def met(self, session: int) -> np.ndarray:
        """Return all classes up to ``session``, in the order in which they are met."""
        return np.concatenate(self.arriving[: session + 1])

    def correct(self) -> list[np.ndarray]:
        """Return whether each prediction is correct, by session."""
        return [given == true for given, true in zip(self.predicted, self.true, strict=True)]

    def counts(self) -> list[ClassCounts]:
        """Return the counts of each class, by session."""
        return [self._counts(session) for session in range(len(self.true))]

    def _counts(self, session: int) -> ClassCounts:
        true, predicted, met = self.true[session], self.predicted[session], self.met(session)

        def count(classes: np.ndarray) -> np.ndarray:
            return np.bincount(classes[classes >= 0], minlength=met.max() + 1)[met]

        return ClassCounts(count(true), count(predicted), count(true[true == predicted]))

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays of a file: one row per query and session, and one row per class.

        Rows are sorted by query. Predictions of a query rarely change between sessions, so the file
        compresses well.
        """
        session = np.repeat(np.arange(len(self.queries)), [len(asked) for asked in self.queries])
        rows = {
            "session": session,
            "query": np.concatenate(self.queries),
            "predicted": np.concatenate(self.predicted),
            "true": np.concatenate(self.true),
        }
        if len(self.confidence) == len(self.queries):
            rows["confidence"] = _levels(np.concatenate(self.confidence))
        order = np.lexsort((session, rows["query"]))
        rows = {name: column[order] for name, column in rows.items()}
        sizes = [len(classes) for classes in self.arriving]
        classes = {
            "classes": np.concatenate(self.arriving),
            "arrived": np.repeat(np.arange(len(sizes)), sizes),
        }
        return {name: _narrow(column) for name, column in (rows | classes).items()}


def from_arrays(arrays: dict[str, np.ndarray]) -> Predictions:
    """Return the predictions in ``arrays``, sorted by query within a session."""
    session, arrived = arrays["session"], arrays["arrived"]
    classes = arrays["classes"].astype(np.int64)
    found = Predictions(tuple(classes[arrived == number] for number in range(int(arrived.max()) + 1)))
    for number in range(int(session.max()) + 1):
        rows = session == number
        columns = [arrays[name][rows].astype(np.int64) for name in ("query", "predicted", "true")]
        if "confidence" in arrays:
            columns.append(_shares(arrays["confidence"][rows]))
        found.add(*columns)
    return found


def _levels(confidence: np.ndarray) -> np.ndarray:
    """Return probabilities as whole numbers. Rounding down keeps each in its bin of the calibration error."""
    levels = np.clip(np.floor(confidence.astype(np.float64) * LEVELS), 0, LEVELS - 1)
    return np.where(np.isnan(confidence), NO_NUMBER, levels).astype(np.uint16)


def _shares(levels: np.ndarray) -> np.ndarray:
    """Return the probabilities in the middle of their levels: at most 0.00001 from those that were stored."""
    return np.where(levels == NO_NUMBER, np.nan, (levels + 0.5) / LEVELS)


def read_predictions(path: Path) -> Predictions:
    """Read the predictions of a run from the file ``StudyFolder.predictions_of``.

    Raises:
        UserError: The file is missing or damaged.
    """
    try:
        with np.load(path) as arrays:
            return from_arrays(dict(arrays))
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; the predictions of this run were not saved.") from None
    except Exception as error:  # a damaged archive raises many kinds of errors
        raise UserError(f"{path}: damaged file ({error}); the record of the run is not affected.") from None


def _narrow(column: np.ndarray) -> np.ndarray:
    """Return ``column`` in the smallest sufficient integer type."""
    largest = int(column.max())
    extreme = min(int(column.min()), -largest - 1) if column.min() < 0 else largest
    return column.astype(np.min_scalar_type(extreme))
