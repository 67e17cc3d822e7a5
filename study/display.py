"""The table that ends a study, on the terminal; the report says the rest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import rich.box
from rich.console import Console
from rich.table import Table

from hagmeta.common.records import Record
from hagmeta.config import sort_key
from hagmeta.display import percent

TASK = ("dataset", "method", "protocol", "n_way", "k_shot")
MEASURES: dict[str, Callable[[Record], float]] = {
    "first": lambda record: record["accuracy"][0],
    "last": lambda record: record["accuracy"][-1],
    "PD": lambda record: record["pd"],
    "RPD": lambda record: record["rpd"] or 0.0,
}


def study_table(records: Sequence[Record], width: int) -> Table:
    """One row a configuration, named by the settings in which the configurations differ.

    What does not fit a narrow terminal is left out, from the right; the report has it all.
    """
    by_config: dict[str, list[Record]] = {}
    for record in records:
        by_config.setdefault(record["config_hash"], []).append(record)
    groups = list(by_config.values())
    keys = varied([group[0]["config"] for group in groups]) or ["dataset"]
    groups.sort(key=lambda group: [sort_key(group[0]["config"].get(key)) for key in keys])
    for shown in range(len(MEASURES), 1, -1):
        table = _table(groups, keys, list(MEASURES)[:shown])
        if Console(width=1000).measure(table).maximum <= width:
            break
    return table


def _table(groups: Sequence[Sequence[Record]], keys: Sequence[str], measures: Sequence[str]) -> Table:
    table = Table(
        caption="accuracy at the first and last session, mean ± 95 % interval over the seeds, percent",
        box=rich.box.SIMPLE,
        padding=(0, 1, 0, 0),
    )
    for key in keys:
        table.add_column(key if len(key) < 9 else key.replace("_", "_\n"), overflow="fold")
    for name in ("seeds", *measures):
        table.add_column(name, justify="right", no_wrap=True)
    for group in groups:
        table.add_row(
            *(_readable(group[0], key) for key in keys),
            str(len(group)),
            *(percent([MEASURES[name](record) for record in group]) for name in measures),
        )
    return table


def varied(configs: Sequence[dict[str, Any]]) -> list[str]:
    """The settings that tell configurations apart: the task's, and those that differ within a method.

    Sessions follow from N, and training queries from K and the protocol, where those vary.
    """
    keys = dict.fromkeys(key for config in configs for key in config)

    def differs(key: str) -> bool:
        if key in TASK:
            return len({str(config[key]) for config in configs}) > 1
        within = "dataset" if key == "classes" else "method"  # the dataset decides its classes, unless given
        values: dict[str, set[str]] = {}
        for config in configs:
            if key in config:
                values.setdefault(config[within], set()).add(str(config[key]))
        return any(len(found) > 1 for found in values.values())

    found = [key for key in keys if differs(key)]
    implied = {"sessions": {"n_way"}, "query_shot": {"k_shot", "protocol"}}
    return [key for key in found if not implied.get(key, set()) & set(found)]


def _readable(record: Record, key: str) -> str:
    """A setting's value in a cell; an oracle is marked beside its name."""
    value = record["config"].get(key, "")
    mark = " (oracle)" if key == "method" and record.get("oracle") else ""
    return {True: "yes", False: ""}[value] if isinstance(value, bool) else f"{value}{mark}"
