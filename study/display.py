"""The table that ends a study, until there is a report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import rich.box
from rich.table import Table

from hagmeta.display import percent
from study.store import Record


def study_table(records: Sequence[Record]) -> Table:
    """One row a configuration, named by the settings in which the configurations differ."""
    by_config: dict[str, list[Record]] = {}
    for record in records:
        by_config.setdefault(record["config_hash"], []).append(record)
    groups = list(by_config.values())
    varied = _varied([group[0]["config"] for group in groups])
    table = Table(
        caption="accuracy at the first and last session, mean ± 95 % interval over the seeds, percent",
        box=rich.box.SIMPLE,
        padding=(0, 1, 0, 0),
    )
    for key in varied or ["dataset"]:
        table.add_column(key)
    for column in ("seeds", "first", "last", "PD", "RPD"):
        table.add_column(column, justify="right")
    for group in sorted(groups, key=lambda group: [_readable(group[0], key) for key in varied]):
        table.add_row(
            *(_readable(group[0], key) for key in varied or ["dataset"]),
            str(len(group)),
            *(percent([record["accuracy"][session] for record in group]) for session in (0, -1)),
            percent([record["pd"] for record in group]),
            percent([record["rpd"] or 0.0 for record in group]),
        )
    return table


def _varied(configs: Sequence[dict[str, Any]]) -> list[str]:
    """The settings in which configurations differ; those that do not apply to a method are not in its own."""
    keys = dict.fromkeys(key for config in configs for key in config)
    return [key for key in keys if len({str(config[key]) for config in configs if key in config}) > 1]


def _readable(record: Record, key: str) -> str:
    """A setting's value in a cell; an oracle is marked beside its name."""
    value = record["config"].get(key, "")
    mark = " (oracle)" if key == "method" and record.get("oracle") else ""
    return {True: "yes", False: ""}[value] if isinstance(value, bool) else f"{value}{mark}"
