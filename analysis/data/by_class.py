"""Compute what a configuration gets right: accuracy and forgetting by class, confusions, single queries.

Accuracy and forgetting come from records. Confusions and queries need the predictions of the runs.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from analysis.data.results import Panel, StoredAnswers
from analysis.statistics.estimates import Estimate, estimate
from hagmeta.common.records.records import RunKey, StudyFolder

MOST_CONFUSIONS = 3  # wrong answers per class
MOST_QUERIES = 40  # per configuration
BASE, NOVEL, EITHER = "base", "novel", "base or novel"


@dataclass(frozen=True)
class ClassScore:
    """One class at the last session, over the seeds in which it was met."""

    number: int
    group: str  # BASE if it is known at session 0, NOVEL if it arrives later, EITHER if seeds differ
    accuracy: Estimate
    forgetting: Estimate  # best earlier accuracy minus the last one


@dataclass(frozen=True)
class Confusion:
    """The share of the queries of class `true` that were predicted as class `predicted`."""

    true: int
    predicted: int  # -1 if the prediction is not a class
    share: float


@dataclass(frozen=True)
class OnlyRight:
    """A query that one configuration gets right and all others get wrong."""

    seed: int
    query: int
    true: int
    answer: int  # the most frequent answer of the others
    others: int  # how many of the others gave it


@dataclass
class Answers:
    """The predictions of one configuration at the last session, over all seeds with predictions."""

    counts: Counter[tuple[int, int]] = field(default_factory=Counter)  # by true and predicted class
    seeds: int = 0
    compared: int = 0  # queries that other configurations answered as well
    only: int = 0  # of these: queries that only this configuration gets right
    examples: list[OnlyRight] = field(default_factory=list)

    def confusions(self) -> list[Confusion]:
        """Return the most frequent wrong answers of each class."""
        asked: Counter[int] = Counter()
        wrong: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
        for (true, predicted), count in self.counts.items():
            asked[true] += count
            if true != predicted:
                wrong[true].append((count, predicted))
        return [
            Confusion(true, predicted, count / asked[true])
            for true in sorted(wrong)
            for count, predicted in sorted(wrong[true], key=lambda each: (-each[0], each[1]))[
                :MOST_CONFUSIONS
            ]
        ]


def class_scores(panel: Panel, label: str, folders: Sequence[Path]) -> list[ClassScore]:
    """Return the scores of each class from the records of `label`; empty if they have none."""
    accuracy: defaultdict[int, list[float]] = defaultdict(list)
    forgetting: defaultdict[int, list[float]] = defaultdict(list)
    groups: defaultdict[int, set[str]] = defaultdict(set)
    for key in _keys(panel, label):
        record = _record(folders, key)
        rows = record.get("class_accuracy")
        if not rows:
            continue
        for place, number in enumerate(record["classes_met"]):
            curve = [row[place] for row in rows if place < len(row) and row[place] is not None]
            if not curve:
                continue
            groups[number].add(BASE if place < len(rows[0]) else NOVEL)
            accuracy[number].append(curve[-1])
            if len(curve) > 1:
                forgetting[number].append(max(curve[:-1]) - curve[-1])
    return _scores(groups, accuracy, forgetting)


def _scores(
    groups: Mapping[int, set[str]],
    accuracy: Mapping[int, list[float]],
    forgetting: Mapping[int, list[float]],
) -> list[ClassScore]:
    return [
        ClassScore(
            number,
            EITHER if len(groups[number]) > 1 else next(iter(groups[number])),
            estimate(accuracy[number]),
            estimate(forgetting.get(number, [])),
        )
        for number in sorted(accuracy)
    ]


def stored_scores(panel: Panel, label: str, stored: StoredAnswers) -> list[ClassScore]:
    """Return the accuracy of each class from stored predictions of `label`, without forgetting."""
    accuracy: defaultdict[int, list[float]] = defaultdict(list)
    groups: defaultdict[int, set[str]] = defaultdict(set)
    for key in _keys(panel, label):
        rows = stored.answers(panel.dataset, key)
        if rows is None:
            continue
        known = stored.known(panel.dataset, key[1])
        for number in np.unique(rows["true"]).tolist():
            groups[number].add(BASE if number in known else NOVEL)
            accuracy[number].append(float(np.mean(rows["predicted"][rows["true"] == number] == number)))
    return _scores(groups, accuracy, {})


def answers(
    panel: Panel, labels: Iterable[str], folders: Sequence[Path], stored: StoredAnswers | None = None
) -> tuple[dict[str, Answers], list[str]]:
    """Return the predictions at the last session by label, and messages about damaged files.

    Labels without predictions are left out. Oracles see labels that the others never see. So "all others" are
    the `labels` that are no oracles.
    """
    damaged: list[str] = []
    found: defaultdict[str, Answers] = defaultdict(Answers)
    by_seed: defaultdict[int, dict[str, dict[str, np.ndarray]]] = defaultdict(dict)
    for label in labels:
        for name, seed in _keys(panel, label):
            key = name, seed
            rows = stored.answers(panel.dataset, key) if stored else _last_session(folders, key, damaged)
            if rows is not None:
                by_seed[seed][label] = rows
                pairs = zip(rows["true"].tolist(), rows["predicted"].tolist(), strict=True)
                found[label].counts.update(pairs)
                found[label].seeds += 1
    for seed in sorted(by_seed):
        rivals = {label: rows for label, rows in by_seed[seed].items() if label not in panel.oracles}
        _add_only_right(found, seed, rivals)
    return dict(found), damaged


def _add_only_right(
    found: Mapping[str, Answers], seed: int, rivals: Mapping[str, dict[str, np.ndarray]]
) -> None:
    """Add the queries of one seed that only one of the configurations gets right."""
    if len(rivals) < 2:
        return
    first = next(iter(rivals.values()))
    if any(not np.array_equal(rows["query"], first["query"]) for rows in rivals.values()):
        return  # they were asked different queries
    labels, predicted = list(rivals), np.stack([rows["predicted"] for rows in rivals.values()])
    right = predicted == first["true"]  # (configurations, queries)
    alone = right.sum(axis=0) == 1
    for row, label in enumerate(labels):
        own = found[label]
        own.compared += len(alone)
        places = np.flatnonzero(alone & right[row])
        own.only += len(places)
        for place in places[: MOST_QUERIES - len(own.examples)].tolist():
            others = Counter(np.delete(predicted[:, place], row).tolist())
            answer, count = min(others.items(), key=lambda each: (-each[1], each[0]))
            own.examples.append(
                OnlyRight(seed, int(first["query"][place]), int(first["true"][place]), answer, count)
            )


def _keys(panel: Panel, label: str) -> list[RunKey]:
    runs = panel.runs[panel.runs["label"] == label]
    # The hash of a graph may follow the hash of the configuration.
    return [
        (str(name).partition("-")[0], int(seed))
        for name, seed in sorted(zip(runs["config_hash"], runs["seed"], strict=True))
    ]


def _record(folders: Sequence[Path], key: RunKey) -> dict[str, Any]:
    """Return the record of a run. It was checked when it was read."""
    files = (StudyFolder(folder).runs / key[0] / f"{key[1]}.json" for folder in folders)
    path = next(path for path in files if path.exists())
    record: dict[str, Any] = json.loads(path.read_bytes())
    return record


def _last_session(folders: Sequence[Path], key: RunKey, damaged: list[str]) -> dict[str, np.ndarray] | None:
    """Return queries, predictions and true classes of the last session, or None if there is no whole file.

    Add a message to `damaged` if the file cannot be read.
    """
    path = next(filter(Path.exists, (StudyFolder(each).predictions_of(key) for each in folders)), None)
    if path is None:
        return None
    try:
        with np.load(path) as arrays:
            last = arrays["session"] == arrays["session"].max()
            return {name: arrays[name][last].astype(int) for name in ("query", "predicted", "true")}
    except Exception as error:  # a damaged archive raises many kinds of errors
        damaged.append(f"{path}: damaged file ({error})")
        return None
