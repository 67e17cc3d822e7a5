"""The table that ends a study, on the terminal; the report says the rest."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import rich.box
from rich.console import Console
from rich.table import Table

from hagmeta.common.differences import TASK, differing, sort_key
from hagmeta.common.identity import without_hash
from hagmeta.common.records import Record
from hagmeta.display import FEWEST_FOR_INTERVAL, percent, score, transductive

MEASURES: dict[str, Callable[[Record], float]] = {
    "first": lambda record: score(record)[0],
    "last": lambda record: score(record)[-1],
    "average": lambda record: sum(score(record)) / len(score(record)),
    "PD": lambda record: score(record)[0] - score(record)[-1],
}


def study_table(records: Sequence[Record], width: int, chosen: Collection[str] = ()) -> Table:
    """One row a configuration, named by the settings in which the configurations differ.

    Those that a search has ``chosen`` name nothing, and where method and task tell all rows apart, as where
    each method was tuned for each dataset, nothing else does. What does not fit a narrow terminal is left
    out, from the right; the report has it all.
    """
    by_config: dict[str, list[Record]] = {}
    for record in records:
        by_config.setdefault(record["config_hash"], []).append(record)
    groups = list(by_config.values())
    keys = [key for key in _differing([group[0] for group in groups]) if key not in chosen] or ["dataset"]
    task = [key for key in keys if key in TASK]
    if len({tuple(group[0]["config"].get(key) for key in task) for group in groups}) == len(groups) > 1:
        keys = task
    groups.sort(key=lambda group: [sort_key(group[0]["config"].get(key)) for key in keys])
    for shown in range(len(MEASURES), 1, -1):
        table = _table(groups, keys, list(MEASURES)[:shown])
        if Console(width=1000).measure(table).maximum <= width:
            break
    return table


def _differing(records: Sequence[Record]) -> list[str]:
    """Older records do not say what was given."""
    given = [record["given"] for record in records if "given" in record]
    configs = [record["config"] for record in records]
    return differing(configs, given if len(given) == len(configs) else None)


def _table(groups: Sequence[Sequence[Record]], keys: Sequence[str], measures: Sequence[str]) -> Table:
    table = Table(
        caption="accuracy, every class the same, percent: mean over the seeds ± 95 % interval "
        f"(from {FEWEST_FOR_INTERVAL} seeds on)",
        box=rich.box.SIMPLE,
        padding=(0, 1, 0, 0),
    )
    for key in keys:
        table.add_column(key if len(key) < 9 else key.replace("_", "_\n"), overflow="fold")
    for name in ("seeds", *measures):
        table.add_column(name, justify="right", no_wrap=True)
    names = {key: _names(groups, key) for key in keys}
    for group in groups:
        table.add_row(
            *(_readable(group[0], key, names[key]) for key in keys),
            str(len(group)),
            *(percent([MEASURES[name](record) for record in group]) for name in measures),
        )
    return table


def _names(groups: Sequence[Sequence[Record]], key: str) -> dict[str, str]:
    """Plug-ins and graphs in memory without their hashes, unless two would be called the same."""
    given = {str(group[0]["config"].get(key, "")) for group in groups}
    short = [without_hash(name) for name in given]
    return {name: without_hash(name) for name in given if short.count(without_hash(name)) == 1}


def _readable(record: Record, key: str, names: Mapping[str, str]) -> str:
    """A setting's value in a cell; beside a method's name, what sets its answers apart."""
    value = record["config"].get(key, "")
    value = names.get(value, value) if isinstance(value, str) else value
    mark = ""
    if key == "method":
        mark += " (oracle)" if record.get("oracle") else ""
        mark += "".join(f", {told}" for told in transductive(record))
    return {True: "yes", False: ""}[value] if isinstance(value, bool) else f"{value}{mark}"
