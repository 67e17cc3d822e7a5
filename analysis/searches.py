"""Of a study that was a search: the runs that confirm its choices, and what is told of how they were made.

The samples are judged on validation streams with the search's own seeds. What methods are compared by are the
runs of the best samples on fresh seeds: of each search, those of the newest launch that made it.
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
    """Of the launches that chose by searching, each with those searches that none did again later."""
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
    """What was searched for, whatever the ranges and the samples."""
    return str(cell.get("question", f"{cell['dataset']} {cell['method']}"))  # of launches without one


def confirms(launches: Sequence[Launch], config_hash: str, seed: str) -> bool:
    """Whether a run counts: in a study that was a search, only those of its choices do."""
    if not launches:
        return True
    return any(config_hash in launch["configs"] and int(seed) in launch["seeds"] for launch in launches)


def together(launches: Sequence[Launch]) -> Mapping[str, Any]:
    """What is told of the searches of several launches, as of one: the newest's, with all their cells."""
    searches = [launch["search"] for launch in launches]
    lines = dict.fromkeys(line for search in searches for line in search["overlap"])
    return searches[-1] | {
        "cells": [cell for search in searches for cell in search["cells"]],
        "overlap": list(lines),
    }


def naming(keys: Iterable[str], studies: Iterable[str], searches: Searches) -> list[str]:
    """Settings that may name a configuration: where all were chosen by searches, what they chose does not."""
    cells = [cell for search in searches.values() for cell in search["cells"]]
    sampled = {key for cell in cells for key in cell["sampled"]} if set(studies) <= set(searches) else set()
    return [key for key in keys if key not in sampled]


def in_words(search: Mapping[str, Any]) -> str:
    """How the configurations of a study were chosen."""
    samples, seeds = search["samples"], ", ".join(map(str, search["seeds"]))
    count = len(search["cells"])
    searches = "one search" if count == 1 else f"{count} searches"
    return f"the best of {samples} samples in {searches}, seeds {seeds}, by {search['objective']}"


def search_tables(searches: Searches) -> Iterator[Table]:
    """By study: what each search has chosen, and by how many samples."""
    for study, search in searches.items():
        keys = list(dict.fromkeys(key for cell in search["cells"] for key in cell["sampled"]))
        rows = [_row(cell, search["samples"], keys) for cell in search["cells"]]
        lost = [cell["title"] for cell in search["cells"] if cell["chosen"] is None]
        notes = [f"No sample of {', '.join(lost)} ended well: nothing was chosen."] if lost else []
        yield Table(
            name=f"search-{study}",
            section="hyperparameters",
            title=f"What was chosen: {study}",
            caption=(
                f"The objective is {search['objective']}, over seeds {', '.join(map(str, search['seeds']))}, "
                "in percent, on classes kept out of training. The highest of many, it flatters what was "
                "chosen: the accuracies of the other tables are of fresh seeds."
            ),
            columns=["search", "samples", "validation", *keys],
            rows=rows,
            numbers=pd.DataFrame([_numbers(cell) for cell in search["cells"]]),
            notes=[*notes, *search["overlap"]],
        )


def _row(cell: Mapping[str, Any], samples: int, keys: Sequence[str]) -> list[Cell]:
    found, validation = cell["found"], cell["validation"]
    count = str(found) if found == samples else f"{found} of {samples}"
    score = Cell("" if validation is None else f"{100 * validation:.1f}", validation)
    values = [cell["values"].get(key) for key in keys]
    shown = [Cell("" if value is None else _short(value), value) for value in values]
    return [Cell(cell["title"], cell["title"]), Cell(count, found), score, *shown]


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else readable(value)


def _numbers(cell: Mapping[str, Any]) -> dict[str, Any]:
    told = ("title", "dataset", "method", "found", "validation", "chosen")
    return {**{key: cell[key] for key in told}, **cell["values"]}
