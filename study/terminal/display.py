"""Print the table at the end of a study so that it fits the terminal."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import rich.box
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from hagmeta.api.display import FEWEST_FOR_INTERVAL, percent, score, transductive
from hagmeta.common.records.differences import differing, sort_key
from hagmeta.common.records.records import Record
from hagmeta.common.settings.scopes import Scopes, scopes_in
from study.terminal.naming import common_values, differences, settings_text, short_names, value_text

MEASURES: dict[str, Callable[[Record], float]] = {
    "first": lambda record: score(record)[0],
    "last": lambda record: score(record)[-1],
    "average": lambda record: sum(score(record)) / len(score(record)),
    "PD": lambda record: score(record)[0] - score(record)[-1],
}
FEWEST_MEASURES = 2
LONG_NAME = 9  # characters; the name of a setting is broken at underscores from here on


def study_table(records: Sequence[Record], width: int, chosen: Collection[str] = ()) -> RenderableType:
    """Return a table with one row per configuration, and notes below it.

    Columns show the settings in which the configurations differ. Where they do not fit, configurations are
    numbered and their settings are listed below the table. Measures that do not fit are left out, from the
    right.

    Args:
        records: The records of all configurations and seeds.
        width: Columns of the terminal.
        chosen: Settings that a search has chosen; they do not become columns.
    """
    by_config: dict[str, list[Record]] = {}
    for record in records:
        by_config.setdefault(record["config_hash"], []).append(record)
    groups = list(by_config.values())
    for layout in _layouts(groups, _columns(groups, chosen)):
        table = layout.table()
        if Console(width=1000).measure(table).maximum <= width:
            break
    return Group(table, *map(_indented, layout.notes()), "")


def _indented(note: RenderableType) -> Padding:
    return Padding(note, (0, 1))


def _columns(groups: Sequence[Sequence[Record]], chosen: Collection[str]) -> list[str]:
    """Return the settings that tell configurations apart.

    If method and task are enough, as where each method was tuned for each dataset, no other is needed.
    """
    firsts = [group[0] for group in groups]
    given = [record["given"] for record in firsts]
    configs = [record["config"] for record in firsts]
    scopes = scopes_in(firsts)
    keys = differing(configs, scopes, given if len(given) == len(configs) else None)
    keys = [key for key in keys if key not in chosen] or ["dataset"]
    task = _of_the_task(keys, scopes)
    if len({tuple(str(config.get(key)) for key in task) for config in configs}) == len(groups) > 1:
        return task
    return keys


def _of_the_task(keys: Sequence[str], scopes: Scopes) -> list[str]:
    """Return the method and the settings in `keys` that are not of the method alone."""
    return [key for key in keys if key in ("method", *scopes.both)]


@dataclass
class Layout:
    """A way to arrange the table: settings as columns or in a list below, and the measures to show."""

    groups: Sequence[Sequence[Record]]
    columns: list[str]
    listed: list[str]  # settings in the list below
    measures: list[str]

    def __post_init__(self) -> None:
        self._configs = [group[0]["config"] for group in self.groups]
        self._names = _names(self.groups)
        self._common = common_values(self._configs, self.listed)
        # Configurations that are listed alike share a number, unless that would make rows look the same.
        self._by_difference = True
        rows = {(*self._raw(config, self.columns), *self._combination(config)) for config in self._configs}
        self._by_difference = len(rows) == len(self.groups)
        self._numbers = self._numbered()

    def _numbered(self) -> dict[tuple[str, ...], int]:
        """Number the combinations of listed settings, those with the fewest differences first."""

        def order(combination: tuple[str, ...]) -> tuple[Any, ...]:
            config = examples[combination]
            apart = [key for key in self._common if config.get(key, self._common[key]) != self._common[key]]
            places = [self.listed.index(key) for key in apart]
            named = [sort_key(config.get(key)) for key in self.listed if key not in self._common]
            return named, len(apart), places, [sort_key(config.get(key)) for key in self.listed]

        examples = {self._combination(config): config for config in self._configs}
        return {combination: number for number, combination in enumerate(sorted(examples, key=order), 1)}

    def _combination(self, config: Mapping[str, Any]) -> tuple[str, ...]:
        if self._by_difference:
            return tuple(differences(config, self.listed, self._common, {}))
        return self._raw(config, self.listed)

    def _raw(self, config: Mapping[str, Any], keys: Sequence[str]) -> tuple[str, ...]:
        return tuple(str(config.get(key, "")) for key in keys)

    def table(self) -> Table:
        table = Table(box=rich.box.SIMPLE, padding=(0, 1, 0, 0))
        for key in self.columns:
            table.add_column(key if len(key) < LONG_NAME else key.replace("_", "_\n"), overflow="fold")
        for name in (*(["config"] if self.listed else []), "seeds", *self.measures):
            table.add_column(name, justify="right", no_wrap=True)
        for group in sorted(self.groups, key=self._order):
            number = [str(self._number(group))] if self.listed else []
            table.add_row(
                *(_cell(group[0], key, self._names) for key in self.columns),
                *number,
                str(len(group)),
                *(percent([MEASURES[name](record) for record in group]) for name in self.measures),
            )
        return table

    def _order(self, group: Sequence[Record]) -> tuple[Any, ...]:
        values = [sort_key(group[0]["config"].get(key)) for key in self.columns]
        return (values, self._number(group) if self.listed else 0)

    def _number(self, group: Sequence[Record]) -> int:
        return self._numbers[self._combination(group[0]["config"])]

    def notes(self) -> Iterator[RenderableType]:
        """Yield the list of configurations, then how to read the figures."""
        if self.listed:
            yield self._list()
            if self._common:
                yield Text(f"common values: {settings_text(self._common)}")
            yield Text("")
        yield Text(" ".join(self._legend()))

    def _list(self) -> Table:
        table = Table.grid(padding=(0, 2, 0, 0))
        table.add_column(justify="right")
        table.add_column()
        table.add_row("config", "differs from the common values in" if self._common else "settings")
        examples = {self._combination(group[0]["config"]): group[0] for group in self.groups}
        for combination, number in self._numbers.items():
            record = examples[combination]
            config = record["config"] | {"method": _cell(record, "method", self._names)}
            shown = differences(config, self.listed, self._common, self._names)
            table.add_row(str(number), ", ".join(shown) or "nothing")
        return table

    def _legend(self) -> Iterator[str]:
        """Yield what the figures are; an interval is explained only where one is shown."""
        seeds = [len(group) for group in self.groups]
        if max(seeds) == 1:
            yield "Macro accuracy in percent, one seed per configuration."
        elif max(seeds) < FEWEST_FOR_INTERVAL:
            yield "Macro accuracy in percent, mean over seeds."
        else:
            yield "Macro accuracy in percent, mean over seeds ± 95 % interval."
            if min(seeds) < FEWEST_FOR_INTERVAL:
                yield f"Intervals need {FEWEST_FOR_INTERVAL} seeds."
        if "PD" in self.measures:
            yield "PD: first minus last session."
        missing = [name for name in MEASURES if name not in self.measures]
        if missing:
            yield f"A wider terminal also shows: {', '.join(missing)}."


def _names(groups: Sequence[Sequence[Record]]) -> dict[str, str]:
    """Return short names for the datasets and plug-ins of all configurations."""
    by_setting: dict[str, list[str]] = {}
    for group in groups:
        for key, value in group[0]["config"].items():
            if isinstance(value, str):
                by_setting.setdefault(key, []).append(value)
    return {name: short for values in by_setting.values() for name, short in short_names(values).items()}


def _cell(record: Record, key: str, names: Mapping[str, str]) -> str:
    """Return the value of a setting; a method's name comes with what marks its predictions."""
    if key not in record["config"]:
        return ""
    text = value_text(record["config"][key], names)
    if key != "method":
        return text
    oracle = " (oracle)" if record["oracle"] else ""
    return text + oracle + "".join(f", {mark}" for mark in transductive(record))


def _layouts(groups: Sequence[Sequence[Record]], keys: list[str]) -> Iterator[Layout]:
    """Yield layouts from the widest to the narrowest."""
    names = _names(groups)
    widths = {key: max(len(_cell(group[0], key, names)) for group in groups) for key in keys}
    arrangements: list[tuple[list[str], list[str]]] = [(keys, [])]
    columns = _of_the_task(keys, scopes_in(group[0] for group in groups))
    while columns:
        arrangements.append((columns, [key for key in keys if key not in columns]))
        widest = max(columns, key=lambda key: widths[key])
        columns = [key for key in columns if key != widest]
    for columns, listed in [*arrangements, ([], keys)]:
        for shown in range(len(MEASURES), FEWEST_MEASURES - 1, -1):
            yield Layout(groups, columns, listed, list(MEASURES)[:shown])
