"""What a run has answered, query by query: all that its metrics are made of, in memory and as a file."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from hagmeta.common.errors import UserError


class ClassCounts(NamedTuple):
    """Of each class met by a session, in the order in which they are met."""

    asked: np.ndarray  # queries of the class
    given: np.ndarray  # queries that were taken for it
    right: np.ndarray  # queries that are both


@dataclass(frozen=True)
class Predictions:
    """The queries of every session so far, the class given to each, and its own."""

    known: np.ndarray  # (classes,) met at session 0
    arriving: np.ndarray  # (sessions, N) classes
    queries: list[np.ndarray] = field(default_factory=list)  # by session, as the next two
    predicted: list[np.ndarray] = field(default_factory=list)  # -1 where the answer is no class
    true: list[np.ndarray] = field(default_factory=list)

    def add(self, queries: np.ndarray, predicted: np.ndarray, true: np.ndarray) -> None:
        """The next session's."""
        self.queries.append(queries)
        self.predicted.append(predicted)
        self.true.append(true)

    def met(self, session: int) -> np.ndarray:
        return np.concatenate([self.known, self.arriving[:session].ravel()])

    def correct(self) -> list[np.ndarray]:
        return [given == true for given, true in zip(self.predicted, self.true, strict=True)]

    def counts(self) -> list[ClassCounts]:
        """By session."""
        return [self._counts(session) for session in range(len(self.true))]

    def _counts(self, session: int) -> ClassCounts:
        true, predicted, met = self.true[session], self.predicted[session], self.met(session)

        def count(classes: np.ndarray) -> np.ndarray:
            return np.bincount(classes[classes >= 0], minlength=met.max() + 1)[met]

        return ClassCounts(count(true), count(predicted), count(true[true == predicted]))

    def arrays(self) -> dict[str, np.ndarray]:
        """As a file keeps them: a row a query and session, and a row a class in the order of meeting.

        A query's rows stand together, since it is mostly answered alike from session to session: that is
        what makes the file small.
        """
        session = np.repeat(np.arange(len(self.queries)), [len(asked) for asked in self.queries])
        rows = {
            "session": session,
            "query": np.concatenate(self.queries),
            "predicted": np.concatenate(self.predicted),
            "true": np.concatenate(self.true),
        }
        order = np.lexsort((session, rows["query"]))
        rows = {name: column[order] for name, column in rows.items()}
        sessions, n_way = self.arriving.shape
        classes = {
            "classes": self.met(sessions),
            "arrived": np.repeat(np.arange(sessions + 1), [len(self.known), *[n_way] * sessions]),
        }
        return {name: _narrow(column) for name, column in (rows | classes).items()}


def from_arrays(arrays: dict[str, np.ndarray]) -> Predictions:
    """What ``arrays`` had; within a session by query."""
    session, arrived = arrays["session"], arrays["arrived"]
    classes = arrays["classes"].astype(np.int64)
    arriving = classes[arrived > 0].reshape(int(arrived.max()), -1)
    found = Predictions(classes[arrived == 0], arriving)
    for number in range(int(session.max()) + 1):
        rows = session == number
        found.add(*(arrays[name][rows].astype(np.int64) for name in ("query", "predicted", "true")))
    return found


def read_predictions(path: Path) -> Predictions:
    """The predictions of a run (``StudyFolder.predictions_of``), or a UserError that names the file."""
    try:
        with np.load(path) as arrays:
            return from_arrays(dict(arrays))
    except FileNotFoundError:
        raise UserError(f"{path}: the predictions of this run were not kept.") from None
    except Exception as error:  # a damaged archive raises what it likes
        raise UserError(f"{path}: not whole ({error}); the run's record is not touched by that.") from None


def _narrow(column: np.ndarray) -> np.ndarray:
    """In the smallest integers that hold it."""
    largest = int(column.max())
    extreme = min(int(column.min()), -largest - 1) if column.min() < 0 else largest
    return column.astype(np.min_scalar_type(extreme))
