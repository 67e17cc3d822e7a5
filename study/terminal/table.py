"""Print the table at the end of a study so that it fits the terminal."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import rich.box
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table

from hagmeta.api.display import FEWEST_FOR_INTERVAL, percent, score, transductive
from hagmeta.common.records.differences import differing, sort_key
from hagmeta.common.records.records import Record
from hagmeta.common.settings.scopes import scopes_in
from study.terminal.naming import SWITCHES, Names, settings_text, wrapped

MEASURES: dict[str, Callable[[Record], float]] = {
    "first": lambda record: score(record)[0],
    "last": lambda record: score(record)[-1],
    "average": lambda record: sum(score(record)) / len(score(record)),
    "PD": lambda record: score(record)[0] - score(record)[-1],
}
LEAST_ROOM = 24  # columns for settings

Groups = Sequence[Sequence[Record]]  # the records of each configuration


def study_table(
    records: Sequence[Record],
    width: int,
    chosen: Collection[str] = (),
    roles: Mapping[str, str] | None = None,
) -> RenderableType:
    """Return a table with one row per configuration, and notes below it.

    Columns show the settings in which the configurations differ. Where they do not fit, one column lists them
    and is wrapped. Measures that do not fit are left out, from the right.

    Args:
        records: The records of all configurations and seeds.
        width: Columns of the terminal.
        chosen: Settings that a search has chosen; rows are not named by them.
        roles: What rows are, by the hash of the configuration: tuned or default.
    """
    by_config: dict[str, list[Record]] = {}
    for record in records:
        by_config.setdefault(record["config_hash"], []).append(record)
    groups = list(by_config.values())
    keys = _settings_that_vary(groups, chosen)
    names = Names([group[0]["config"] for group in groups], keys)
    listed = [key for key in ("dataset", "method") if key in keys]
    longest = max(len(", ".join(names.settings([group[0]["config"]]))) for group in groups)
    least = min(longest, LEAST_ROOM)
    layouts: list[tuple[Sequence[str], int]] = [(keys, 4), (keys, 3), (listed, 4), (listed, 3), (listed, 2)]
    for columns, shown in [*layouts, ((), 2)]:
        measures, apart = list(MEASURES)[:shown], [key for key in keys if key not in columns]
        without = _table(groups, keys, columns, names, measures, roles or {}, 0)
        room = width - Console(width=1000).measure(without).maximum + len("settings") * bool(apart)
        if room >= (least if apart else 0):
            break
    table = _table(groups, keys, columns, names, measures, roles or {}, max(room, 1))
    common = names.common if apart else {}
    return Group(table, *(Padding(note, (0, 1)) for note in _notes(groups, common, measures)), "")


def _settings_that_vary(groups: Groups, chosen: Collection[str]) -> list[str]:
    """Return the settings that tell configurations apart.

    If method and task are enough, as where each method was tuned for each dataset, no other is needed.
    """
    firsts = [group[0] for group in groups]
    given = [record["given"] for record in firsts]
    configs, scopes = [record["config"] for record in firsts], scopes_in(firsts)
    keys = [key for key in differing(configs, scopes, given) if key not in chosen]
    task = [key for key in keys if key in ("method", *scopes.both)]
    enough = len({tuple(str(config.get(key)) for key in task) for config in configs}) == len(groups) > 1
    return task if enough else keys or ["dataset"]


def _table(
    groups: Groups,
    keys: Sequence[str],
    columns: Sequence[str],
    names: Names,
    measures: Sequence[str],
    roles: Mapping[str, str],
    room: int,
) -> Table:
    """Return the table. What has no column is wrapped to `room` columns, or left out if that is 0."""
    table = Table(box=rich.box.SIMPLE, padding=(0, 1, 0, 0))
    inside = [key for key in ("method", "dataset") if key in keys and key not in columns]
    described = inside or any(key not in columns for key in keys)
    heads = (key.upper() if key in SWITCHES else key for key in columns)
    for name in (*heads, *["settings"] * bool(described), *["values"] * bool(roles)):
        table.add_column(name, overflow="fold")
    for name in ("seeds", *measures):
        table.add_column(name, justify="right", no_wrap=True)
    rows = {}
    for group in groups:
        first, config = group[0], group[0]["config"]
        cells = [_value(first, key, names) for key in columns]
        if described:
            parts = [_value(first, key, names) for key in inside] + names.settings([config])
            cells.append(wrapped("", parts or ["common values"], room, "", "") if room else "")
        cells += [roles.get(first["config_hash"], "")] * bool(roles)
        figures = [percent([MEASURES[name](record) for record in group]) for name in measures]
        place = (
            *(sort_key(config.get(key)) for key in keys),
            roles.get(first["config_hash"], ""),
            first["config_hash"],
        )
        rows[place] = [*cells, str(len(group)), *figures]
    for place in sorted(rows):
        table.add_row(*rows[place])
    return table


def _value(record: Record, key: str, names: Names) -> str:
    """Return the value of a setting; a method's name comes with what marks its predictions."""
    text = names.value(record["config"], key)
    if key != "method":
        return text
    return text + " (oracle)" * record["oracle"] + "".join(f", {mark}" for mark in transductive(record))


def _notes(groups: Groups, common: Mapping[str, Any], measures: Sequence[str]) -> Iterator[str]:
    """Yield what names leave out, and what the figures are."""
    if common:
        yield f"common values: {settings_text(common)}"
    yield " ".join(_legend([len(group) for group in groups], measures))


def _legend(seeds: Sequence[int], measures: Sequence[str]) -> Iterator[str]:
    if max(seeds) == 1:
        yield "Macro accuracy in percent, one seed per configuration."
    elif max(seeds) < FEWEST_FOR_INTERVAL:
        yield "Macro accuracy in percent, mean over seeds."
    else:
        yield "Macro accuracy in percent, mean over seeds ± 95 % interval."
        if min(seeds) < FEWEST_FOR_INTERVAL:
            yield f"Intervals need {FEWEST_FOR_INTERVAL} seeds."
    if "PD" in measures:
        yield "PD: first minus last session."
    missing = [name for name in MEASURES if name not in measures]
    if missing:
        yield f"A wider terminal also shows: {', '.join(missing)}."
