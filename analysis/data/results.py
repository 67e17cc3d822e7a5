"""Hold the runs of studies as tidy tables, in panels within which accuracies are comparable."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pandas as pd

from analysis.data.labels import comparable, is_absent, readable, slug, varied_settings
from analysis.data.searches import Searches, named
from analysis.words import a_look, datasets_words
from hagmeta.common.errors import UserError, choose
from hagmeta.common.records.differences import sort_key
from hagmeta.common.records.metrics import BUILT_IN, DIAGNOSTICS, MetricDeclaration
from hagmeta.common.records.records import RunKey
from hagmeta.common.settings.scopes import Scopes

CURVES = tuple(each.name for each in BUILT_IN if each.score)
TOLD = tuple(each.name for each in DIAGNOSTICS)  # some methods do not have them
PER_RUN = tuple(each.name for each in BUILT_IN if each.shown and not each.by_session)
# Scores for headlines, tests and figures; base and novel scores use the same kind of mean.
SCORED_BY = {key.replace("_", " "): key for key in CURVES}
MACRO = "macro accuracy"  # the default
SCORES = ("score", "base_score", "novel_score")
IN_EVERY_TITLE = ("dataset", "protocol", "n_way", "k_shot")
LOOKS = 16  # number of distinct line styles in figures
VERSION = ("commit", "torch", "device")  # runs that are averaged should share these


@dataclass(frozen=True)
class Lost:
    """A failed or missing run: its description and its configuration."""

    words: str
    config: dict[str, Any]

    def meets(self, conditions: Mapping[str, Sequence[str]]) -> bool:
        """Return whether the run meets `conditions`; settings that are not known count as met."""
        return all(
            key not in self.config or readable(plain(self.config[key])).lower() in map(_as_read, values)
            for key, values in conditions.items()
        )


class StoredAnswers(Protocol):
    """Predictions of the last session that are not in the folder of a study."""

    def answers(self, dataset: str, key: RunKey) -> dict[str, np.ndarray] | None:
        """Return queries, predictions and true classes of a run, or None if there are none."""

    def known(self, dataset: str, seed: int) -> frozenset[int]:
        """Return the classes that are known at session 0."""


@dataclass(frozen=True, eq=False)  # compared and hashed by identity
class Results:
    """The runs of some folders of records."""

    runs: pd.DataFrame  # one row per run: settings, explicitly set ones, seed, summary, cost and label
    sessions: pd.DataFrame  # one row per run and session: the same settings, and the scores
    keys: list[str]  # the columns that are settings
    scopes: Scopes  # which settings are of the task, and which of the labels
    metric: str  # a key of SCORED_BY
    folders: list[Path] = field(default_factory=list)
    launches: list[dict[str, Any]] = field(default_factory=list)
    failed: list[Lost] = field(default_factory=list)
    missing: list[Lost] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)
    conflicts: list[str] = field(default_factory=list)
    searches: Searches = field(default_factory=dict)  # by study: how its configurations were chosen
    apart: tuple[str, ...] = ()  # settings that separate panels, in addition to those of the task
    by: tuple[str, ...] = ()  # the settings whose values are compared, if the runs are means over others
    pooled: str = ""  # over which settings the runs are means
    graphs: list[str] = field(default_factory=list)  # messages about names that several graphs share
    others: tuple[MetricDeclaration, ...] = ()  # metrics that are not built in; columns have their names
    stored: StoredAnswers | None = None  # predictions of runs that are in no folder

    def varied(self) -> list[str]:
        """Return the settings with more than one value."""
        return self._varied

    @cached_property
    def _varied(self) -> list[str]:
        return varied_settings(self.runs.drop_duplicates("config_hash"), self.keys, self.scopes)

    @property
    def task(self) -> list[str]:
        """Return the settings of the task: accuracies are comparable only if all of these are equal."""
        return [key for key in self.keys if key in self.scopes.task]

    def comparable(self, runs: pd.DataFrame) -> Iterator[pd.DataFrame]:
        """Yield `runs` of one task in groups within which methods may be compared."""
        return comparable(runs, [key for key in self.keys if key in self.scopes.labels])

    @property
    def not_default(self) -> list[str]:
        """Return "split fixed" or "visibility whole on debian" for each value that is not the default.

        These are the settings of the task and of the labels that are not in every title.
        """
        runs, found = self.runs.drop_duplicates("config_hash"), []
        for key in self.keys:
            if key not in self.scopes.both or key in IN_EVERY_TITLE:
                continue
            own = runs[[key in given for given in runs["given"]]]
            for value, same in own.groupby(key, sort=False):
                there = list(dict.fromkeys(same["dataset"]))
                others = set(runs["dataset"]) - set(there)
                some = f" on {datasets_words(there)}" if others else " in some runs"
                found.append(f"{key} {readable(value)}" + some * (len(same) < len(runs)))
        return found

    @cached_property
    def labels(self) -> list[str]:
        """Return all configurations in the order in which figures assign styles, the reference first.

        If there are more than LOOKS, those that end highest or lowest somewhere come next, because figures
        highlight them.
        """
        found = list(dict.fromkeys(self.runs["label"]))
        if len(found) <= LOOKS:
            return found
        means = self.runs.groupby([*self.task, "label"], dropna=False)["last"].mean()
        far = (means.groupby(self.task, dropna=False).rank(pct=True) - 0.5).abs().groupby("label").max()
        return [found[0], *sorted(found[1:], key=lambda label: -far[label])]

    @cached_property
    def panels(self) -> list[Panel]:
        """Return the panels: groups of runs with comparable accuracies."""
        different = [key for key in self.keys if key in self.scopes.task or key in self.apart]
        tasks = self.runs.groupby(different, dropna=False, sort=False)
        groups = [runs.index for _, task in tasks for runs in self.comparable(task)]
        parting = self._parting([*different, *self.scopes.labels])
        panels = _told_apart([self._panel(rows, parting) for rows in groups], different)

        def place(panel: Panel) -> list[Any]:
            values = (common_value(panel.runs, key) for key in (*IN_EVERY_TITLE, *parting))
            return [panel.leaks, *map(sort_key, values)]

        return sorted(panels, key=place)

    def _parting(self, different: list[str]) -> list[str]:
        """Return the settings that titles of panels name in addition to IN_EVERY_TITLE.

        A setting with one value per dataset is not among them: `not_default` names it.
        """
        several = self.runs.groupby("dataset")[self.varied()].nunique(dropna=False).max() > 1
        parting = {*several.index[several]} - {*IN_EVERY_TITLE, "sessions"}
        if self.sessions_apart:
            parting.add("sessions")
        return [key for key in different if key in parting]

    @cached_property
    def sessions_apart(self) -> bool:
        """Return whether runs with the same dataset and N have different numbers of sessions."""
        return bool(self.runs.groupby(["dataset", "n_way"])["sessions"].nunique().max() > 1)

    def _panel(self, rows: pd.Index, parting: list[str]) -> Panel:
        runs = self.runs.loc[rows]
        sessions = self.sessions[self.sessions["run"].isin(runs["run"])]
        first = runs.iloc[0]
        words = [first["dataset"], first["protocol"], f"{first['n_way']}-way {first['k_shot']}-shot"]
        words += common_words(runs, parting)
        return Panel(", ".join(words), runs, sessions, self.keys, self.scopes, self.labels, bool(self.by))

    def where(self, conditions: Mapping[str, Sequence[str]]) -> Results:
        """Return the runs whose settings have one of these values; raise `UserError` if there are none."""
        chosen = pd.Series(True, index=self.runs.index)
        for key, values in conditions.items():
            choose("setting", key, [*self.keys, "seed"])
            column = self.runs[key].map(readable)
            for value in values:
                if _as_read(value) not in set(column.str.lower()):
                    there = ", ".join(sorted(set(column)))
                    raise UserError(f"--where {key}={value}: no run has this value; expected one of {there}.")
            chosen &= column.str.lower().isin([_as_read(value) for value in values])
        if not chosen.any():
            raise UserError("--where: no run meets all conditions together. Leave one of them out.")
        kept = named(self.runs[chosen], self.keys, self.searches, self.scopes)
        failed = [each for each in self.failed if each.meets(conditions)]
        missing = [each for each in self.missing if each.meets(conditions)]
        return replace(self._with(kept), failed=failed, missing=missing)

    def against(self, baseline: str) -> Results:
        """Return the same runs with `baseline`, a method or a label, as the reference."""
        own = (self.runs["label"] == baseline) | (self.runs["method"] == baseline)
        if not own.any():
            there = ", ".join(dict.fromkeys([*self.runs["method"], *self.runs["label"]]))
            raise UserError(
                f"--baseline {baseline}: no run has this method or label; expected one of {there}."
            )
        return self._with(pd.concat([self.runs[own], self.runs[~own]]))

    def _with(self, runs: pd.DataFrame) -> Results:
        """Return results with `runs`, and with their labels in the sessions."""
        sessions = self.sessions[self.sessions["run"].isin(runs["run"])]
        sessions = sessions.assign(label=sessions["run"].map(runs.set_index("run")["label"]))
        return replace(self, runs=runs, sessions=sessions)


@dataclass(frozen=True, eq=False)
class Panel:
    """Runs under one setting, which may share a table or a pair of axes."""

    title: str
    runs: pd.DataFrame
    sessions: pd.DataFrame
    keys: list[str]
    scopes: Scopes
    everyone: list[str]  # the configurations of the whole report; their order decides styles in figures
    pooled: bool = False  # its configurations are values of settings, averaged over the others

    @property
    def slug(self) -> str:
        """Return the title as a file name."""
        return slug(self.title)

    @property
    def dataset(self) -> str:
        return str(self.runs["dataset"].iloc[0])

    @property
    def leaks(self) -> bool:
        return bool(self.runs["leaks"].any())

    @cached_property
    def labels(self) -> list[str]:
        """Return the configurations, the reference first."""
        return list(dict.fromkeys(self.runs["label"]))

    @cached_property
    def counts(self) -> dict[str, int]:
        """Return the number of seeds of each configuration."""
        return {str(label): int(count) for label, count in self.runs["label"].value_counts().items()}

    @cached_property
    def oracles(self) -> set[str]:
        """Return the configurations that see labels which the others never see; none under `released`."""
        return set() if self.leaks else set(self.runs.loc[self.runs["oracle"], "label"])

    @property
    def rivals(self) -> list[str]:
        """Return all configurations except oracles."""
        return [label for label in self.labels if label not in self.oracles]

    @property
    def badge(self) -> str:
        """Return a warning if no two configurations have enough seeds for a test."""
        return a_look(self.enough)

    @property
    def enough(self) -> int:
        """Return the largest number of seeds that two configurations have, or that of the only one."""
        return sorted(self.counts.values(), reverse=True)[:2][-1]

    @property
    def reference(self) -> str:
        """Return the configuration that the others are compared with."""
        return self.labels[0]

    def varied(self) -> list[str]:
        """Return the settings in which the configurations differ."""
        return self._varied

    @cached_property
    def _varied(self) -> list[str]:
        return varied_settings(self.runs.drop_duplicates("config_hash"), self.keys, self.scopes)

    @cached_property
    def mixed(self) -> set[str]:
        """Return the configurations whose runs have different commits, torch versions or devices."""
        versions = self.runs.groupby("label")[list(VERSION)].nunique(dropna=False)
        return set(versions.index[(versions > 1).any(axis=1)])

    def by_seed(self, column: str, session: int | None = None) -> pd.DataFrame:
        """Return a table (seeds, configurations) of a column of the runs, or of one session."""
        key = (column, session)
        if key not in self._pivots:
            rows = self.runs if session is None else self._by_session[session]
            seeds, row = np.unique(rows["seed"], return_inverse=True)
            wide = np.full((len(seeds), len(self.labels)), np.nan)
            labels = pd.Index(self.labels, dtype=object)
            wide[row, labels.get_indexer(rows["label"])] = rows[column]
            self._pivots[key] = pd.DataFrame(wide, pd.Index(seeds, name="seed"), labels)
        return self._pivots[key]

    @cached_property
    def _pivots(self) -> dict[tuple[str, int | None], pd.DataFrame]:
        return {}  # a cache: many tables and figures need the same

    @cached_property
    def _by_session(self) -> dict[int, pd.DataFrame]:
        return {int(session): rows for session, rows in self.sessions.groupby("session")}


def common_value(runs: pd.DataFrame, key: str) -> Any:
    """Return the value of a setting that all `runs` with the setting share, or NaN."""
    values = runs[key].dropna().unique()
    return values[0] if len(values) == 1 else math.nan


def common_words(runs: pd.DataFrame, keys: Iterable[str]) -> list[str]:
    """Return "key value" for each of the settings that has one value in `runs`."""
    values = {key: common_value(runs, key) for key in keys}
    return [f"{key} {readable(value)}" for key, value in values.items() if not is_absent(value)]


def _told_apart(panels: list[Panel], keys: Sequence[str]) -> list[Panel]:
    """Return the panels with unique titles, by settings that only some records have."""
    found = []
    for panel in panels:
        twins = [each for each in panels if each.title == panel.title]
        own = [key for key in keys if len({str(each.runs[key].iloc[0]) for each in twins}) > 1]
        words = [f"{key} {readable(panel.runs[key].iloc[0])}" for key in own]
        found.append(replace(panel, title=", ".join([panel.title, *words])))
    return found


def _as_read(value: str) -> str:
    """Return a value that a user typed in the form of `readable`; tables show switches as "yes"."""
    return {"yes": "true", "no": "false"}.get(value.lower(), value.lower())


def plain(value: Any) -> Any:
    """Return a setting, with a list as text such as "4/2/4"."""
    return "/".join(map(str, value)) if isinstance(value, list) else value
