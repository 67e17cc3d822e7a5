"""What a sample of a search is judged by: how its validation streams went, in the terms of test streams."""

from __future__ import annotations

from collections.abc import Sequence

from hagmeta.common.records import Record, opened

PARTS = ("last", "average")
IN_WORDS = (
    "the mean of macro accuracy at the last session and on average over the sessions of validation streams, "
    "with session learning"
)


def is_scored(record: Record) -> bool:
    """Samples of the first versions were judged by other figures."""
    return all((record["validation"] or {}).get(part) is not None for part in PARTS)


def objective(records: Sequence[Record]) -> float:
    """Of a sample, over its seeds."""
    figures = [opened(record)["validation"][part] for record in records for part in PARTS]
    return float(sum(figures) / len(figures))
