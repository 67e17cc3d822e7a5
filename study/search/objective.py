"""Score a sample of a search by its validation streams, with the metrics of test streams."""

from __future__ import annotations

from collections.abc import Sequence

from hagmeta.common.records import Record, opened

PARTS = ("last", "average")
IN_WORDS = "the mean of last-session and average macro accuracy on validation streams, with session learning"


def is_scored(record: Record) -> bool:
    """Return whether a record has the figures of the objective; those of early versions do not."""
    return all((record["validation"] or {}).get(part) is not None for part in PARTS)


def objective(records: Sequence[Record]) -> float:
    """Return the objective of a sample, as the mean over the `records` of its seeds."""
    figures = [opened(record)["validation"][part] for record in records for part in PARTS]
    return float(sum(figures) / len(figures))
