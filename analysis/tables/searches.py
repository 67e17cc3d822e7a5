"""Show what searches chose."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from analysis.data.labels import readable
from analysis.data.searches import Searches
from analysis.tables.table import Cell, Table


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
