"""Read studies that tuned hyperparameters: which runs count, and how their configurations were chosen.

A search scores its samples on validation streams with separate seeds. The report compares the runs of the
best samples on fresh seeds. If a search was launched again, only the newest launch counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from analysis.labels import readable
from analysis.table import Cell, Table

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
            chosen = {cell["chosen"] for cell in cells}
            configs = {key: config for key, config in launch["configs"].items() if key in chosen}
            found.append(launch | {"search": launch["search"] | {"cells": cells}, "configs": configs})
    return found[::-1]


def _question(cell: Mapping[str, Any]) -> str:
    """Return the identity of a search, which does not depend on its ranges or samples."""
    return str(cell.get("question", f"{cell['dataset']} {cell['method']}"))  # older launches have none


def confirms(launches: Sequence[Launch], config_hash: str, seed: str) -> bool:
    """Return whether a run counts; in a search, only the runs of chosen configurations do."""
    if not launches:
        return True
    return any(config_hash in launch["configs"] and int(seed) in launch["seeds"] for launch in launches)


def together(launches: Sequence[Launch]) -> Mapping[str, Any]:
    """Return the searches of several launches as one: the newest, with the cells of all."""
    searches = [launch["search"] for launch in launches]
    lines = dict.fromkeys(line for search in searches for line in search["overlap"])
    return searches[-1] | {
        "cells": [cell for search in searches for cell in search["cells"]],
        "overlap": list(lines),
    }


def naming(keys: Iterable[str], studies: Iterable[str], searches: Searches) -> list[str]:
    """Return the settings that may name a configuration, without sampled ones if all studies are searches."""
    cells = [cell for search in searches.values() for cell in search["cells"]]
    sampled = {key for cell in cells for key in cell["sampled"]} if set(studies) <= set(searches) else set()
    return [key for key in keys if key not in sampled]


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


def search_tables(searches: Searches) -> Iterator[Table]:
    """Yield a table per study: the chosen values of each search, and its number of samples."""
    for study, search in searches.items():
        keys = list(dict.fromkeys(key for cell in search["cells"] for key in cell["sampled"]))
        rows = [_row(cell, search["samples"], keys) for cell in search["cells"]]
        lost = [cell["title"] for cell in search["cells"] if cell["chosen"] is None]
        notes = [f"Nothing was chosen for {', '.join(lost)}, because no sample finished."] if lost else []
        if any(cell.get("pruned") for cell in search["cells"]):
            notes.append("Pruned samples did not run all seeds, because they were significantly worse.")
        yield Table(
            name=f"search-{study}",
            section="hyperparameters",
            title=f"Chosen hyperparameters: {study}",
            caption=(
                f"Validation is {search['objective']} in percent, averaged over seeds "
                f"{', '.join(map(str, search['seeds']))}, on validation nodes. As the best of "
                "many samples it is too optimistic. The other tables therefore use fresh seeds."
            ),
            columns=["search", "samples", "validation", *keys],
            rows=rows,
            numbers=pd.DataFrame([_numbers(cell) for cell in search["cells"]]),
            notes=[*notes, *search["overlap"]],
        )


def _row(cell: Mapping[str, Any], samples: int, keys: Sequence[str]) -> list[Cell]:
    found, validation = cell["found"], cell["validation"]
    count = str(found) if found == samples else f"{found} of {samples}"
    count += f" ({cell['pruned']} pruned)" if cell.get("pruned") else ""
    score = Cell("" if validation is None else f"{100 * validation:.1f}", validation)
    values = [cell["values"].get(key) for key in keys]
    shown = [Cell("" if value is None else _short(value), value) for value in values]
    return [Cell(cell["title"], cell["title"]), Cell(count, found), score, *shown]


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else readable(value)


def _numbers(cell: Mapping[str, Any]) -> dict[str, Any]:
    told = ("title", "dataset", "method", "found", "validation", "chosen")
    return {**{key: cell[key] for key in told}, "pruned": cell.get("pruned", 0), **cell["values"]}
