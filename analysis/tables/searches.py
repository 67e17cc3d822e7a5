"""Show what searches chose."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from analysis.comparisons import Analysis
from analysis.data.labels import readable, transductive_words
from analysis.data.searches import Searches, seen_seeds
from analysis.statistics.estimates import estimate
from analysis.tables.cells import DIFFERENCES, INTERVAL, LEAKS, difference_cell, estimate_cell, verdict_cell
from analysis.tables.table import Cell, Table
from analysis.words import a_look


def search_tables(searches: Searches) -> Iterator[Table]:
    """Yield a table per study: the chosen values of each search, and its number of samples."""
    for study, search in searches.items():
        keys = list(dict.fromkeys(key for cell in search["cells"] for key in cell["sampled"]))
        defaults = any(cell.get("default_validation") is not None for cell in search["cells"])
        rows = [_row(cell, search["samples"], keys, defaults) for cell in search["cells"]]
        rows += [_row(_earlier(cell), cell["found"], keys, defaults) for cell in search["earlier"]]
        lost = [cell["title"] for cell in search["cells"] if cell["chosen"] is None]
        notes = [f"Nothing was chosen for {', '.join(lost)}, because no sample finished."] if lost else []
        if any(cell.get("pruned") for cell in search["cells"]):
            notes.append("Pruned samples did not run all seeds, because they were significantly worse.")
        if seen := seen_seeds(search):
            notes.append(
                f"Seeds {', '.join(map(str, seen))} had confirmed an earlier choice of these searches. They "
                "are not fresh, so differences on them can be too optimistic."
            )
        yield Table(
            name=f"search-{study}",
            section="search",
            title=f"Chosen hyperparameters: {study}",
            caption=(
                f"Validation is {search['objective']} in percent, averaged over seeds "
                f"{', '.join(map(str, search['seeds']))}, on validation nodes. As the best of "
                "many samples it is too optimistic. The other tables therefore use other seeds."
            ),
            columns=["search", "samples", "validation", *["defaults"] * defaults, *keys],
            rows=rows,
            numbers=pd.DataFrame(
                [_numbers(cell) for cell in (*search["cells"], *map(_earlier, search["earlier"]))]
            ),
            notes=[*notes, *search["overlap"]],
            extra=("samples",),
        )


def tuning_table(analysis: Analysis) -> Table | None:
    """Return what each method gains over its own default, or None if no search confirmed defaults."""
    tests = analysis.comparisons.tuning
    if not tests.comparisons:
        return None
    rows, numbers = [], []
    for each in analysis.tuned:
        last, test = each.panel.by_seed("last"), tests[each.key]
        both = [estimate_cell(estimate(last[label])) for label in (each.default, each.chosen)]
        head = [Cell(text, text) for text in (each.method, each.panel.title)]
        rows.append([*head, *both, difference_cell(test), verdict_cell(test)])
        numbers.append({"method": each.method, "where": each.panel.title, **test.told})
    leaks = any(each.panel.leaks for each in analysis.tuned)
    return Table(
        name="tuning",
        section="search",
        title="Gain from tuning",
        caption=(
            "Accuracy at the last session with the default of each method, and with what its search chose. "
            f"{INTERVAL} {DIFFERENCES} {tests.words}"
        ),
        columns=["method", "where", "default", "tuned", "tuned minus default", "verdict"],
        rows=rows,
        numbers=pd.DataFrame(numbers),
        notes=[LEAKS] * leaks + transductive_words(pd.concat([each.panel.runs for each in analysis.tuned])),
        leaks=leaks,
        badge=a_look(max(test.seeds for test in tests.comparisons.values())),
    )


def _earlier(cell: Mapping[str, Any]) -> Mapping[str, Any]:
    return {**cell, "title": f"{cell['title']}, earlier choice"}


def _row(cell: Mapping[str, Any], samples: int, keys: Sequence[str], defaults: bool) -> list[Cell]:
    found = cell["found"]
    count = str(found) if found == samples else f"{found} of {samples}"
    count += f" ({cell['pruned']} pruned)" if cell.get("pruned") else ""
    scores = [_score(cell["validation"]), *[_score(cell.get("default_validation"))] * defaults]
    values = [cell["values"].get(key) for key in keys]
    shown = [Cell("" if value is None else _short(value), value) for value in values]
    return [Cell(cell["title"], cell["title"]), Cell(count, found), *scores, *shown]


def _score(validation: float | None) -> Cell:
    return Cell("" if validation is None else f"{100 * validation:.1f}", validation)


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else readable(value)


def _numbers(cell: Mapping[str, Any]) -> dict[str, Any]:
    told = ("title", "dataset", "method", "found", "validation", "chosen")
    return {
        **{key: cell[key] for key in told},
        "default_validation": cell.get("default_validation"),
        **cell["values"],
    }
