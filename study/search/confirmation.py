"""Confirm searches: write the best sample of each as a search space for fresh seeds, and a summary."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import yaml

from hagmeta.common.files.files import written_whole
from hagmeta.config.run_config import IDENTITY, RunConfig, resolve
from hagmeta.scenarios import TaskSettings
from study import data
from study.search.history import SearchHistory
from study.search.objective import IN_WORDS
from study.search.overlap import overlap
from study.space import Space
from study.store import Store

FRESH_SEEDS = 10


@dataclass(frozen=True)
class Choice:
    """The best sample of a search."""

    history: SearchHistory
    config: RunConfig  # with no held-out classes
    validation: float

    @property
    def values(self) -> dict[str, Any]:
        """The values of the sampled settings."""
        return {item.key: getattr(self.config, item.key) for item in self.history.cell.dimensions}


def choices_of(histories: Sequence[SearchHistory]) -> list[Choice]:
    """Return the best sample of each search that has a successful one."""
    found = [(history, history.best()) for history in histories]
    return [
        Choice(history, resolve(best[0].replace(val_classes=0, scored_on="test")), best[1])
        for history, best in found
        if best
    ]


def fresh_seeds(seeds: Sequence[int]) -> tuple[int, ...]:
    """Return seeds that the search has not used."""
    return tuple(range(max(seeds) + 1, max(seeds) + 1 + FRESH_SEEDS))


def write_best(space: Space, choices: Sequence[Choice], store: Store) -> None:
    """Write ``best.yaml``: a search space with one case per search, which repeats the confirmation."""
    assert space.search is not None
    lines = [
        f"# Chosen by {IN_WORDS}.",
        f"description: The best of {space.search.samples} samples per search of {space.name}, on fresh seeds",
        "cases:",
        *(f"  - {_in_a_line(_case(choice))}" for choice in choices),
        f"seeds: {list(fresh_seeds(space.seeds))}",
    ]
    with written_whole(store.folder / "best.yaml") as partial:
        partial.write_text("\n".join(lines) + "\n")


def _case(choice: Choice) -> dict[str, Any]:
    settings = choice.config.canonical()
    keys = dict.fromkeys([*IDENTITY, *choice.config.given(), *choice.values])
    return {key: settings[key] for key in keys}


def _in_a_line(case: dict[str, Any]) -> str:
    return yaml.safe_dump(case, sort_keys=False, width=math.inf, default_flow_style=True).strip()


def overlaps(choices: Sequence[Choice], seeds: Sequence[int]) -> list[str]:
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
            shares = overlap(data.load(config.dataset), config, seeds, fresh_seeds(seeds))
            found[split] = f"{config.dataset}: {shares}."
    return list(dict.fromkeys(found.values()))


def summary(
    space: Space, histories: Sequence[SearchHistory], choices: Sequence[Choice], overlapping: Sequence[str]
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
        "cells": [
            {
                "study": history.cell.name,
                "question": history.cell.question,
                "title": history.cell.title,
                "dataset": history.cell.config.dataset,
                "method": history.cell.config.method,
                "found": len(history.found),
                "sampled": [dimension.key for dimension in history.cell.dimensions],
                "chosen": chosen[history.cell.name].config.hash() if history.cell.name in chosen else None,
                "validation": chosen[history.cell.name].validation if history.cell.name in chosen else None,
                "values": chosen[history.cell.name].values if history.cell.name in chosen else {},
            }
            for history in histories
        ],
    }
