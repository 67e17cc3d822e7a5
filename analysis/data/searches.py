"""Read studies that tuned hyperparameters: which runs count, and how their configurations were chosen.

A search scores its samples on validation streams with separate seeds. The report compares the runs of the
best samples on fresh seeds. If a search was launched again, only the newest launch counts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from analysis.data.labels import labelled
from hagmeta.common.records.records import RunKey
from hagmeta.common.settings.scopes import Scopes

CONFIRMED = ("chosen", "default")  # older launches have not confirmed the defaults

Launch = dict[str, Any]
Searches = dict[str, Mapping[str, Any]]  # by study


def newest_searches(launches: Sequence[Launch]) -> list[Launch]:
    """Return the launches that searched, without the searches that a later launch repeated."""
    found: list[Launch] = []
    again: set[str] = set()
    searching = [launch for launch in launches if launch.get("search")]
    for launch in sorted(searching, key=lambda launch: launch["time"], reverse=True):
        cells = [cell for cell in launch["search"]["cells"] if _question(cell) not in again]
        if cells:
            again |= {_question(cell) for cell in cells}
            chosen = {cell.get(key) for cell in cells for key in CONFIRMED}
            configs = {key: config for key, config in launch["configs"].items() if key in chosen}
            found.append(launch | {"search": launch["search"] | {"cells": cells}, "configs": configs})
    return found[::-1]


def begun(launches: Sequence[Launch], runs: Collection[RunKey]) -> list[Launch]:
    """Return the launches without the searches that have no confirmed run yet, unless there is no other.

    So the last confirmation counts until the next one has runs.
    """
    waiting = [
        launch
        for launch in launches
        if launch.get("search")
        and not any((config, seed) in runs for config in launch["configs"] for seed in launch["seeds"])
    ]
    kept = [launch for launch in launches if launch not in waiting]
    return kept if any(launch.get("search") for launch in kept) else list(launches)


def _question(cell: Mapping[str, Any]) -> str:
    """Return the identity of a search, which does not depend on its ranges or samples."""
    return str(cell.get("question", f"{cell['dataset']} {cell['method']}"))  # older launches have none


def earlier_choices(launches: Sequence[Launch], newest: Sequence[Launch]) -> list[dict[str, Any]]:
    """Return what earlier launches chose in the `newest` searches, with the seeds that confirmed it."""
    now = {_question(cell): cell["chosen"] for launch in newest for cell in launch["search"]["cells"]}
    found: dict[tuple[str, Any], dict[str, Any]] = {}
    for launch in sorted(launches, key=lambda launch: str(launch["time"])):
        for cell in launch["search"]["cells"] if launch.get("search") else ():
            question, chosen = _question(cell), cell["chosen"]
            if chosen and question in now and now[question] != chosen:
                found[question, chosen] = {**cell, "seeds": launch["seeds"]}
    return list(found.values())


def seen_seeds(search: Mapping[str, Any]) -> list[int]:
    """Return the seeds of the confirmation that had already confirmed an earlier choice."""
    return sorted({seed for cell in search["earlier"] for seed in cell["seeds"]} & {*search["confirmed"]})


def confirms(launches: Sequence[Launch], config_hash: str, seed: str) -> bool:
    """Return whether a run counts; in a search, only the runs of chosen configurations do."""
    if not launches:
        return True
    return any(config_hash in launch["configs"] and int(seed) in launch["seeds"] for launch in launches)


def together(launches: Sequence[Launch], earlier: Sequence[Mapping[str, Any]] = ()) -> Mapping[str, Any]:
    """Return the searches of several launches as one: the newest, with the cells of all."""
    searches = [launch["search"] for launch in launches]
    lines = dict.fromkeys(line for search in searches for line in search["overlap"])
    return searches[-1] | {
        "cells": [cell for search in searches for cell in search["cells"]],
        "overlap": list(lines),
        "earlier": list(earlier),
        "confirmed": sorted({seed for launch in launches for seed in launch["seeds"]}),
    }


def naming(keys: Iterable[str], studies: Iterable[str], searches: Searches) -> list[str]:
    """Return the settings that may name a configuration, without sampled ones if all studies are searches."""
    cells = [cell for search in searches.values() for cell in search["cells"]]
    sampled = {key for cell in cells for key in cell["sampled"]} if set(studies) <= set(searches) else set()
    return [key for key in keys if key not in sampled]


def named(runs: pd.DataFrame, keys: Iterable[str], searches: Searches, scopes: Scopes) -> pd.DataFrame:
    """Return the runs with a label for each configuration; those of searches are tuned or default."""
    own = naming(keys, runs["study"], searches)
    cells = [cell for search in searches.values() for cell in search["cells"]]
    tuned, default = ({cell.get(key) for cell in cells} for key in CONFIRMED)
    untuned = runs["config_hash"].isin(default - tuned)
    if not untuned.any():
        return labelled(runs, own, scopes)
    parts = [(runs[~untuned], "tuned"), (runs[untuned], "default")]
    found = [labelled(part, own, scopes).assign(role=f" ({role})") for part, role in parts]
    both = pd.concat(found)
    return both.assign(label=both["label"] + both["role"]).drop(columns="role")


def in_words(search: Mapping[str, Any]) -> str:
    """Return how the configurations of a study were chosen."""
    samples, seeds = search["samples"], ", ".join(map(str, search["seeds"]))
    count = len(search["cells"])
    searches = "one search" if count == 1 else f"{count} searches"
    pruned = sum(cell.get("pruned", 0) for cell in search["cells"])  # older launches pruned none
    early = f" ({pruned} pruned)" if pruned else ""
    points = len(search.get("start", ()))  # older launches have none
    given = f" with {points} starting point{'s' * (points != 1)}" if points else ""
    return (
        f"the best of {samples} samples{early} in {searches}{given}, seeds {seeds}, by {search['objective']}"
    )
