"""Read records into tidy tables: one with a row per run, and one with a row per run and session.

Nothing is averaged or dropped silently here. Damaged files, failed runs, missing runs, and runs with
different results in two folders are listed by name.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pandas as pd

from analysis.configs import REVISION, with_fixed_settings, with_short_names
from analysis.labels import comparable, is_absent, labelled, readable, slug, varied_settings
from analysis.searches import Searches, confirms, naming, newest_searches, together
from analysis.traits import told_apart, with_traits
from analysis.words import a_look, datasets_words
from hagmeta.common.errors import UserError, choose
from hagmeta.common.plugins.identity import without_hash
from hagmeta.common.records.differences import sort_key
from hagmeta.common.records.metrics import BUILT_IN, DIAGNOSTICS, MetricDeclaration, from_record
from hagmeta.common.records.records import OpenRecord, RunKey, StudyFolder, opened, read_record
from hagmeta.common.settings.scopes import Scopes, scopes_in

CURVES = tuple(each.name for each in BUILT_IN if each.score)
TOLD = tuple(each.name for each in DIAGNOSTICS)  # some methods do not have them
PER_RUN = tuple(each.name for each in BUILT_IN if each.shown and not each.by_session)
# Scores for headlines, tests and figures; base and novel scores use the same kind of mean.
SCORED_BY = {key.replace("_", " "): key for key in CURVES}
MACRO = "macro accuracy"  # the default
SCORES = ("score", "base_score", "novel_score")
ENVIRONMENT = ("device", "seeds_in_pack", "peak_gpu_bytes", "peak_memory_bytes", "torch", "commit")
IN_EVERY_TITLE = ("dataset", "protocol", "n_way", "k_shot")
OF_A_LAUNCH = ("space", "description", "command", "time", "configs", "seeds")
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
            key not in self.config or readable(_plain(self.config[key])).lower() in map(_as_read, values)
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
        """Return the settings that titles of panels name in addition to IN_EVERY_TITLE."""
        parting = set(self.varied()) - {*IN_EVERY_TITLE, "sessions"}
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
        return Panel(", ".join(words), runs, sessions, self.keys, self.scopes, self.labels)

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
        named = labelled(self.runs[chosen], naming(self.keys, self.runs["study"], self.searches), self.scopes)
        failed = [each for each in self.failed if each.meets(conditions)]
        missing = [each for each in self.missing if each.meets(conditions)]
        return replace(self._with(named), failed=failed, missing=missing)

    def against(self, baseline: str) -> Results:
        """Return the same runs with `baseline`, a method or a label, as the reference."""
        own = (self.runs["label"] == baseline) | (self.runs["method"] == baseline)
        if not own.any():
            there = ", ".join(dict.fromkeys([*self.runs["method"], *self.runs["label"]]))
            raise UserError(
                f"--baseline {baseline}: no run has this method or label; expected one of {there}."
            )
        return self._with(pd.concat([self.runs[own], self.runs[~own]]))

    def by(self, axis: str) -> Results:
        """Return the runs with the values of `axis` as configurations; other settings separate panels."""
        choose("setting", axis, self.keys)
        if axis in self.scopes.task:
            raise UserError(
                f"--by {axis}: accuracies with different {axis} are not comparable. Use --where {axis}=VALUE."
            )
        apart = tuple(key for key in self.varied() if key not in self.scopes.task and key != axis)
        runs = self.runs.sort_values(axis, key=lambda column: column.map(sort_key), kind="stable")
        runs = runs.assign(label=runs[axis].map(lambda value: f"{axis} {readable(value)}"))
        return replace(self._with(runs), apart=apart)

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


@dataclass(frozen=True)
class Gathered:
    """The records of some studies, and what is known about the studies."""

    studies: list[StudyFolder]
    records: list[tuple[Path, str, OpenRecord]]  # file, name of the study, record
    launches: list[dict[str, Any]]
    searches: Searches
    damaged: list[str]


def gather(folders: Sequence[Path]) -> Gathered:
    """Read all records of `folders` that count; of a search, only the runs of chosen configurations do."""
    found = Gathered([StudyFolder(study) for folder in folders for study in _studies(folder)], [], [], {}, [])
    for study in found.studies:
        its_launches, broken = _launches(study)
        found.damaged.extend(broken)
        searching = newest_searches(its_launches)
        found.launches.extend(searching or its_launches)
        if searching:
            found.searches[study.folder.name] = together(searching)
        for path in study.record_files():
            if not confirms(searching, path.parent.name, path.stem):
                continue
            try:
                record = opened(read_record(path))
                _check(record)
                record.pop("class_accuracy", None)  # half the size of a record, and not used here
            except ValueError as error:
                found.damaged.append(f"{path}: {error}")
                continue
            found.records.append((path, study.folder.name, record))
    return found


def read(folders: Sequence[Path], metric: str | None = None) -> Results:
    """Return all records of `folders`, which are studies or folders of studies.

    Scores use `metric`, by default macro accuracy. Raise `UserError` if there is no finished run.
    """
    return results_of(gather(folders), metric)


def results_of(gathered: Gathered, metric: str | None = None) -> Results:
    """Return the records of `gathered` as tables; see `read`."""
    planned = {(record["config_hash"], record["seed"]) for _, _, record in gathered.records}
    graphs = _told_by_graph([record for _, _, record in gathered.records])
    found: dict[tuple[str, int], tuple[str, OpenRecord]] = {}
    conflicts = []
    for path, name, record in gathered.records:
        _, other = found.setdefault((record["config_hash"], record["seed"]), (name, record))
        if other["accuracy"] != record["accuracy"]:
            conflicts.append(f"{path}: accuracies differ from the same run in another folder; left out")
    folders = [study.folder for study in gathered.studies]
    failed = [lost for study in gathered.studies for key, lost in _failures(study) if key not in planned]
    if not found:
        state = f"failed runs: {len(failed)}, damaged files: {len(gathered.damaged)}"
        raise UserError(f"{', '.join(map(str, folders))}: no finished run found ({state}).")
    lost = {each.words: each for launch in gathered.launches for each in _missing(launch, planned)}
    names, records = zip(*found.values(), strict=True)
    metric = choose("metric", metric or MACRO, SCORED_BY)
    today = with_traits(with_short_names(with_fixed_settings(records)))
    others, today = _additional(today)
    task, labels = scopes_in(today)
    scopes = Scopes((*task, REVISION), labels)
    runs, sessions, keys = _tables(zip(names, today, strict=True), metric, gathered.searches, others, scopes)
    return Results(
        runs,
        sessions,
        keys,
        scopes,
        metric,
        folders,
        gathered.launches,
        failed,
        [lost[words] for words in sorted(lost)],
        gathered.damaged,
        conflicts,
        gathered.searches,
        graphs=graphs,
        others=others,
    )


def _told_by_graph(records: Sequence[OpenRecord]) -> list[str]:
    """Rename datasets that share a name but are different graphs, and return a message for each name.

    Names of graphs made in memory end with a fingerprint, which is removed.
    """
    by_name: dict[str, set[str]] = {}
    for record in records:
        by_name.setdefault(without_hash(record["config"]["dataset"]), set()).add(record["data"])
    several = {name: sorted(graphs) for name, graphs in by_name.items() if len(graphs) > 1}
    for record in records:
        name = without_hash(record["config"]["dataset"])
        record["config"] = {**record["config"], "dataset": name}
        if name in several:
            graph = record["data"][:6]
            record["config"]["dataset"] = f"{name} [{graph}]"
            record["config_hash"] = f"{record['config_hash']}-{graph}"
    return [
        f"{name} is the name of {len(graphs)} different graphs. Their names here end with the first six "
        f"digits of their fingerprints: {', '.join(graph[:6] for graph in graphs)}."
        for name, graphs in several.items()
    ]


def _studies(folder: Path) -> list[Path]:
    if (folder / "runs").is_dir():
        return [folder]
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder.")
    studies = sorted(child for child in folder.iterdir() if (child / "runs").is_dir())
    if not studies:
        raise UserError(
            f"{folder}: expected a study, which contains a folder `runs`, or a folder of studies."
        )
    return studies


def _check(record: OpenRecord) -> None:
    """Raise `ValueError` if the configuration of a record lacks something that the report reads."""
    without = [key for key in IN_EVERY_TITLE if key not in record["config"]]
    if without:
        raise ValueError(f"its config has no {', '.join(without)}")


def _failures(study: StudyFolder) -> Iterator[tuple[tuple[str, int], Lost]]:
    for path in sorted(study.failures.glob("*/*.json")):
        try:
            content = json.loads(path.read_bytes())
            lines = content["error"].strip().splitlines() or ["no traceback"]
            config = content.get("config") or {}
            yield (content["config_hash"], content["seed"]), Lost(f"{path}: {lines[-1]}", config)
        except (ValueError, KeyError, TypeError, AttributeError):
            yield ("", -1), Lost(f"{path}: incomplete", {})


def _launches(study: StudyFolder) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the launches that are complete, and messages about damaged ones."""
    whole, broken = [], []
    for path in sorted(study.launches.glob("*.json")):
        try:
            launch = json.loads(path.read_bytes())
            without = [key for key in OF_A_LAUNCH if key not in launch]
        except (ValueError, TypeError):
            broken.append(f"{path}: incomplete")
            continue
        if without:
            broken.append(f"{path}: has no {', '.join(without)}")
        else:
            whole.append(launch)
    return whole, broken


def _missing(launch: dict[str, Any], found: set[tuple[str, int]]) -> Iterator[Lost]:
    for name, config in launch["configs"].items():
        left = [seed for seed in launch["seeds"] if (name, seed) not in found]
        if left:
            what = ", ".join(str(config[key]) for key in ("dataset", "method", "protocol") if key in config)
            words = f"{what} (configuration {name}): seeds {', '.join(map(str, left))}"
            yield Lost(words, config)


def _additional(records: Sequence[OpenRecord]) -> tuple[tuple[MetricDeclaration, ...], list[OpenRecord]]:
    """Return the metrics that are not built in, and the records with their values by column.

    Column names begin with "metric", because settings are columns as well. If different code computed metrics
    of one name, each has a column and a title with digits of its hash.
    """
    found: dict[str, MetricDeclaration] = {}
    changed = []
    for record in records:
        values = {}
        for name, said in record.get("metrics", {}).items():
            column = f"metric {name} {said['source']}"
            found.setdefault(column, from_record(column, said))
            values[column] = record[name]
        changed.append(record | values)
    titles = told_apart({column: each.title for column, each in found.items()})
    return tuple(replace(each, title=titles[column]) for column, each in found.items()), changed


def _tables(
    found: Iterable[tuple[str, OpenRecord]],
    metric: str,
    searches: Searches,
    others: Sequence[MetricDeclaration],
    scopes: Scopes,
) -> tuple[pd.DataFrame, pd.DataFrame, list[str]]:
    rows = []
    curves: dict[str, list[Any]] = {}
    keys: dict[str, None] = {}
    by_session = [each.name for each in others if each.by_session]
    for number, (study, record) in enumerate(found):
        config = {key: _plain(value) for key, value in record["config"].items()}
        keys.update(dict.fromkeys(config))
        environment = record["environment"]
        score = [_number(value) for value in record[SCORED_BY[metric]]]
        known = [value for value in score if value == value]
        drop = score[0] - score[-1]
        rows.append(
            {
                "run": number,
                "study": study,
                **config,
                "config_hash": record["config_hash"],
                "seed": record["seed"],
                "first": score[0],
                "last": score[-1],
                "average": mean_of(known),
                "pd": drop,
                "rpd": drop / score[0] if score[0] else math.nan,
                "matrix": record.get("matrix"),
                **{key: _over_tasks(record.get(key)) for key in PER_RUN},
                **_other_values(record, others),
                "traits": record["traits"],
                "validation": record["validation"].get("stream"),
                "oracle": record["oracle"],
                "leaks": record["leaks"],
                "given": frozenset(record["given"]),
                **{f"seconds_{phase}": value for phase, value in record["seconds"].items()},
                "seconds": sum(record["seconds"].values()),
                **{key: environment.get(key) for key in ENVIRONMENT},
            }
        )
        unknown = [None] * len(record["accuracy"])  # of diagnostics that only other methods have
        series = {key: record.get(key, unknown) for key in (*CURVES, *TOLD, *by_session)}
        kind = "macro_" if metric.startswith("macro") else ""
        behind = (SCORED_BY[metric], f"{kind}base_accuracy", f"{kind}novel_accuracy")
        series |= {name: series[key] for name, key in zip(SCORES, behind, strict=True)}
        place = {"run": [number] * len(unknown), "session": range(len(unknown))}
        for key, values in (place | series).items():
            curves.setdefault(key, []).extend(values)
    runs = pd.DataFrame(rows)
    # Selecting rows is slow with many string columns; columns of objects share one block.
    runs = runs.astype(dict.fromkeys([name for name in runs if runs[name].dtype == "str"], object)).copy()
    runs.columns = runs.columns.astype(object)
    runs = labelled(runs, naming(keys, runs["study"], searches), scopes)
    columns = ["run", "study", *keys, "config_hash", "seed", "label", "first", "pd", "rpd", "seconds"]
    numbers = dict.fromkeys((*CURVES, *TOLD, *by_session, *SCORES), float)
    sessions = pd.DataFrame(curves).astype(numbers).merge(runs[columns], on="run")
    return runs, sessions, list(keys)


def mean_of(values: Sequence[float]) -> float:
    """Return the mean, or NaN if there are no values."""
    return sum(values) / len(values) if values else math.nan


def _over_tasks(value: list[float] | float | None) -> float:
    """Return the mean of a list over tasks, or the single value."""
    return mean_of(value) if isinstance(value, list) else _number(value)


def last_and_average(each: MetricDeclaration) -> dict[str, str]:
    """Return the columns of a metric that is not built in, by title."""
    if not each.by_session:
        return {each.title: each.name}
    return {f"{each.title}, last": f"{each.name} last", f"{each.title}, average": f"{each.name} average"}


def _other_values(record: OpenRecord, others: Iterable[MetricDeclaration]) -> dict[str, float]:
    found: dict[str, float] = {}
    for each in others:
        value = record.get(each.name)
        if each.by_session:
            values = value or [None]
            numbers = [_number(values[-1]), mean_of([known for known in values if known is not None])]
        else:
            numbers = [_number(value)]
        found |= zip(last_and_average(each).values(), numbers, strict=True)
    return found


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def _as_read(value: str) -> str:
    """Return a value that a user typed in the form of `readable`; tables show switches as "yes"."""
    return {"yes": "true", "no": "false"}.get(value.lower(), value.lower())


def _plain(value: Any) -> Any:
    return "/".join(map(str, value)) if isinstance(value, list) else value
