"""Confirm searches: write the best sample of each as a search space for fresh seeds, and a summary."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import count
from typing import Any

import yaml

from hagmeta.common.files.files import written_whole
from hagmeta.config.run_config import IDENTITY, RunConfig, resolve
from hagmeta.scenarios import TaskSettings
from study.planning import data
from study.search.history import SearchHistory
from study.search.objective import IN_WORDS
from study.search.overlap import overlap
from study.space.spaces import Space
from study.store.store import Store

FRESH_SEEDS = 10


@dataclass(frozen=True)
class Choice:
    """The best sample of a search."""

    history: SearchHistory
    config: RunConfig  # with no held-out classes, as below
    validation: float
    default: RunConfig  # the defaults, which are confirmed as well
    default_validation: float | None  # None if the search has no finished sample with all defaults

    @property
    def values(self) -> dict[str, Any]:
        """The values of the sampled settings."""
        return {item.key: getattr(self.config, item.key) for item in self.history.cell.dimensions}


def choices_of(histories: Sequence[SearchHistory]) -> list[Choice]:
    """Return the best sample of each search that has a successful one."""
    return [_choice(history, *best) for history in histories if (best := history.best())]


def _choice(history: SearchHistory, best: RunConfig, validation: float) -> Choice:
    default, first = history.cell.config, history.found.get(0)
    scored = first is not None and history.cell.sample(history.values[0]) == default
    tested = (resolve(config.replace(val_classes=0, scored_on="test")) for config in (best, default))
    tuned, untuned = tested
    return Choice(history, tuned, validation, untuned, first.value if first and scored else None)


def roles(choices: Sequence[Choice]) -> dict[str, str]:
    """Return the name of each row of the confirmation, by the hash of the configuration."""
    default = {choice.default.hash(): "default" for choice in choices}
    tuned = {choice.config.hash(): "tuned" for choice in choices}
    both = {name: "tuned, the defaults" for name in default.keys() & tuned.keys()}
    return default | tuned | both


def fresh_seeds(seeds: Sequence[int]) -> tuple[int, ...]:
    """Return seeds that the search has not used."""
    return tuple(range(max(seeds) + 1, max(seeds) + 1 + FRESH_SEEDS))


def seen_seeds(space: Space, choices: Sequence[Choice], store: Store) -> tuple[int, ...]:
    """Return the seeds that have confirmed other choices of these searches: they are not fresh any more.

    A search that is launched again with more samples, or with other ranges, chooses after its user has seen
    the former confirmation. A launch that repeats an earlier one goes on with the same seeds.
    """
    assert space.search is not None
    ours = {
        choice.history.cell.question: (space.search.samples, choice.history.cell.name, choice.config.hash())
        for choice in choices
    }
    seen: set[int] = set()
    for launch in store.asked()[::-1]:
        if not launch.get("search"):
            continue
        samples = launch["search"]["samples"]
        theirs = {
            cell["question"]: (samples, cell["study"], cell["chosen"])
            for cell in launch["search"]["cells"]
            if cell.get("question") in ours
        }
        if theirs == ours:
            return tuple(launch["search"].get("seen", ()))
        if any(theirs[question] != ours[question] for question in theirs):
            seen |= {*launch["seeds"]}
    return tuple(sorted(seen))


def write_best(space: Space, choices: Sequence[Choice], seeds: Sequence[int], store: Store) -> None:
    """Write ``best.yaml``: a search space with one case per search, which repeats the confirmation.

    A file with an earlier choice is kept as ``best-1.yaml`` and so on.
    """
    assert space.search is not None
    lines = [
        f"# Chosen by {IN_WORDS}.",
        f"description: The best of {space.search.samples} samples per search of {space.name}, on fresh seeds",
        "cases:",
        *(f"  - {_in_a_line(_case(choice))}" for choice in choices),
        f"seeds: {list(seeds)}",
    ]
    path, text = store.folder / "best.yaml", "\n".join(lines) + "\n"
    if path.exists() and path.read_text() != text:
        earlier = (store.folder / f"best-{number}.yaml" for number in count(1))
        path.rename(next(each for each in earlier if not each.exists()))
    with written_whole(path) as partial:
        partial.write_text(text)


def _case(choice: Choice) -> dict[str, Any]:
    settings = choice.config.canonical()
    keys = dict.fromkeys([*IDENTITY, *choice.config.given(), *choice.values])
    return {key: settings[key] for key in keys}


def _in_a_line(case: dict[str, Any]) -> str:
    return yaml.safe_dump(case, sort_keys=False, width=math.inf, default_flow_style=True).strip()


def overlaps(choices: Sequence[Choice], seeds: Sequence[int], fresh: Sequence[int]) -> list[str]:
    """Return a line on the overlap for each dataset and each way in which its classes are split."""
    found: dict[tuple[Any, ...], str] = {}
    for choice in choices:
        config = choice.history.cell.config
        split = (
            config.dataset,
            config.protocol,
            *(getattr(config, item.name) for item in fields(TaskSettings)),
        )
        if split not in found:
            shares = overlap(data.load(config.dataset), config, seeds, fresh)
            found[split] = f"{config.dataset}: {shares}."
    return list(dict.fromkeys(found.values()))


def summary(
    space: Space,
    histories: Sequence[SearchHistory],
    choices: Sequence[Choice],
    overlapping: Sequence[str],
    seen: Sequence[int],
) -> dict[str, Any]:
    """Return what a report needs to know about the searches, as plain values."""
    assert space.search is not None
    chosen = {choice.history.cell.name: choice for choice in choices}
    return {
        "samples": space.search.samples,
        "seeds": list(space.seeds),
        "objective": IN_WORDS,
        "start": [dict(point) for point in space.search.start],
        "overlap": list(overlapping),
        "seen": list(seen),  # seeds that have confirmed other choices
        "cells": [
            {
                "study": history.cell.name,
                "question": history.cell.question,
                "title": history.cell.title,
                "dataset": history.cell.config.dataset,
                "method": history.cell.config.method,
                "found": len(history.found),
                "sampled": [dimension.key for dimension in history.cell.dimensions],
                **_chosen(chosen.get(history.cell.name)),
            }
            for history in histories
        ],
    }


def _chosen(choice: Choice | None) -> dict[str, Any]:
    if choice is None:
        return {"chosen": None, "validation": None, "values": {}, "default": None, "default_validation": None}
    return {
        "chosen": choice.config.hash(),
        "validation": choice.validation,
        "values": choice.values,
        "default": choice.default.hash(),
        "default_validation": choice.default_validation,
    }
