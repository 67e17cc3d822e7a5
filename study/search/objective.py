"""Score a sample of a search by its validation streams, with the metrics of test streams."""

from __future__ import annotations

from collections.abc import Sequence

from hagmeta.common.records.records import Record, opened

PARTS = ("last", "average")
Score = tuple[float, float]  # the two parts, of one seed
IN_WORDS = "the mean of last-session and average macro accuracy on validation streams, with session learning"


def is_scored(record: Record) -> bool:
    """Return whether a record has the figures of the objective; those of early versions do not."""
    return all((record["validation"] or {}).get(part) is not None for part in PARTS)


def score_of(record: Record) -> Score:
    """Return the figures of a record that the objective averages."""
    validation = opened(record)["validation"]
    last, average = (float(validation[part]) for part in PARTS)
    return last, average


def by_seed(scores: Sequence[Score]) -> dict[int, float]:
    """Return the objective of each seed, by its place among the seeds."""
    return {place: objective([score]) for place, score in enumerate(scores)}


def objective(scores: Sequence[Score]) -> float:
    """Return the objective of a sample, as the mean over the `scores` of its seeds."""
    figures = [figure for score in scores for figure in score]
    return sum(figures) / len(figures)
