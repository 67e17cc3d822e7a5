"""Records to tidy tables: one row a run, and one row a run and session.

Nothing is averaged here, and nothing is dropped in silence: damaged files, failed runs, runs that were
planned and are not there, and runs that two folders tell differently are kept by name.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.inference import MARGIN
from analysis.labels import SETTING, labelled, readable, slug, varied
from analysis.old_records import completed, with_later_settings
from analysis.searches import Searches, confirms, naming, newest_searches, together
from hagmeta.common.differences import sort_key
from hagmeta.common.errors import UserError, choose
from hagmeta.common.records import Record, StudyFolder, read_record

BY_SESSION = ("accuracy", "base_accuracy", "novel_accuracy", "new_accuracy", "harmonic")
MACRO = ("macro_accuracy", "macro_f1", "macro_base_accuracy", "macro_novel_accuracy", "macro_harmonic")
# Of methods that have such weights, and of records that are young enough.
DIAGNOSTICS = ("nla_entropy", "tla_base_share", "tla_equal_share", "calibration_error")
# What headlines, tests and figures go by, as records have it: over all classes met, base and novel ones.
METRICS = {
    "macro accuracy": ("macro_accuracy", "macro_base_accuracy", "macro_novel_accuracy"),
    "accuracy": ("accuracy", "base_accuracy", "novel_accuracy"),
}
SCORES = ("score", "base_score", "novel_score")
ENVIRONMENT = ("device", "seeds_in_pack", "peak_gpu_bytes", "peak_memory_bytes", "torch", "commit")
IN_EVERY_TITLE = ("dataset", "protocol", "n_way", "k_shot")
VERSION = ("commit", "torch", "device")  # what runs that are averaged should share


@dataclass(frozen=True, eq=False)  # one is not another, whatever they hold
class Results:
    """What some folders of records hold."""

    runs: pd.DataFrame  # a row a run: its settings, which were given, seed, summary, cost and label
    sessions: pd.DataFrame  # a row a run and session: the same settings, and the accuracies
    keys: list[str]  # the columns that are settings
    metric: str  # of METRICS: what scores are
    folders: list[Path] = field(default_factory=list)
    launches: list[dict[str, Any]] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)
    conflicts: list[str] = field(default_factory=list)
    searches: Searches = field(default_factory=dict)  # by study: how its runs were chosen
    apart: tuple[str, ...] = ()  # settings that part panels, beside SETTING
    margin: float = MARGIN  # within which differences are of no interest

    def varied(self) -> list[str]:
        """Settings with more than one value."""
        return varied(self.runs.drop_duplicates("config_hash"), self.keys)

    def panels(self) -> list[Panel]:
        """Parts within which accuracies may be compared."""
        return self._panels

    @cached_property
    def _panels(self) -> list[Panel]:
        different = [key for key in self.keys if key in SETTING or key in self.apart]
        groups = self.runs.groupby(different, dropna=False, sort=False)
        parting = self._parting(different)
        panels = [self._panel(runs.index, parting) for _, runs in groups]

        def place(panel: Panel) -> list[Any]:
            first = panel.runs.iloc[0]
            return [panel.leaks, *(sort_key(first[key]) for key in (*IN_EVERY_TITLE, *parting))]

        return sorted(panels, key=place)

    def _parting(self, different: list[str]) -> list[str]:
        """What the titles of panels name beside what they always do."""
        parting = set(self.varied()) - {*IN_EVERY_TITLE, "sessions"}
        if self.runs.groupby(["dataset", "n_way"])["sessions"].nunique().max() > 1:
            parting.add("sessions")  # which N alone does not decide here
        return [key for key in different if key in parting]

    def _panel(self, rows: pd.Index, parting: list[str]) -> Panel:
        runs = self.runs.loc[rows]
        sessions = self.sessions[self.sessions["run"].isin(runs["run"])]
        first = runs.iloc[0]
        words = [first["dataset"], first["protocol"], f"{first['n_way']}-way {first['k_shot']}-shot"]
        words += [f"{key} {readable(first[key])}" for key in parting]
        return Panel(", ".join(words), runs, sessions, self.keys)

    def where(self, conditions: dict[str, str]) -> Results:
        """Only the runs whose settings read like this."""
        chosen = pd.Series(True, index=self.runs.index)
        for key, value in conditions.items():
            choose("setting", key, [*self.keys, "seed"])
            column = self.runs[key].map(readable)
            if value.lower() not in set(column.str.lower()):
                there = ", ".join(sorted(set(column)))
                raise UserError(f"--where {key}={value}: no run has it; there is {there}.")
            chosen &= column.str.lower() == value.lower()
        if not chosen.any():
            raise UserError("--where: no run meets all the conditions together.")
        return self._with(labelled(self.runs[chosen], naming(self.keys, self.runs["study"], self.searches)))

    def by(self, axis: str) -> Results:
        """The same runs with the values of one setting as configurations, and all others apart."""
        choose("setting", axis, self.keys)
        if axis in SETTING:
            raise UserError(f"--by {axis}: accuracies under different {axis} cannot stand in one table.")
        apart = tuple(key for key in self.varied() if key not in SETTING and key != axis)
        runs = self.runs.sort_values(axis, key=lambda column: column.map(sort_key), kind="stable")
        runs = runs.assign(label=runs[axis].map(lambda value: f"{axis} {readable(value)}"))
        return replace(self._with(runs), apart=apart)

    def _with(self, runs: pd.DataFrame) -> Results:
        """These runs, under the names that they have now."""
        sessions = self.sessions[self.sessions["run"].isin(runs["run"])]
        sessions = sessions.assign(label=sessions["run"].map(runs.set_index("run")["label"]))
        return replace(self, runs=runs, sessions=sessions)


@dataclass(frozen=True, eq=False)
class Panel:
    """Runs under one setting: what may stand in one table or one pair of axes."""

    title: str
    runs: pd.DataFrame
    sessions: pd.DataFrame
    keys: list[str]

    @property
    def slug(self) -> str:
        """For file names."""
        return slug(self.title)

    @property
    def leaks(self) -> bool:
        return bool(self.runs["leaks"].any())

    @cached_property
    def labels(self) -> list[str]:
        """The configurations, the reference first."""
        return list(dict.fromkeys(self.runs["label"]))

    @cached_property
    def counts(self) -> dict[str, int]:
        """Seeds of each configuration."""
        return {str(label): int(count) for label, count in self.runs["label"].value_counts().items()}

    @cached_property
    def oracles(self) -> set[str]:
        """Configurations that know labels which the others never see. Under `released` all know as much."""
        return set() if self.leaks else set(self.runs.loc[self.runs["oracle"], "label"])

    @property
    def reference(self) -> str:
        """What the others are compared with."""
        return self.labels[0]

    def varied(self) -> list[str]:
        """Settings in which its configurations differ."""
        return self._varied

    @cached_property
    def _varied(self) -> list[str]:
        return varied(self.runs.drop_duplicates("config_hash"), self.keys)

    @cached_property
    def mixed(self) -> set[str]:
        """Configurations whose runs were made by more than one version of the code or its tools."""
        versions = self.runs.groupby("label")[list(VERSION)].nunique(dropna=False)
        return set(versions.index[(versions > 1).any(axis=1)])

    def by_seed(self, column: str, session: int | None = None) -> pd.DataFrame:
        """(seeds, configurations): a column of the runs, or of one session."""
        rows = self.runs if session is None else self.sessions[self.sessions["session"] == session]
        return rows.pivot(index="seed", columns="label", values=column)[self.labels]


def read(folders: Sequence[Path]) -> Results:
    """All records of some studies, or of folders of studies."""
    studies = [StudyFolder(study) for folder in folders for study in _studies(folder)]
    found: dict[tuple[str, int], tuple[str, Record]] = {}
    damaged, conflicts = [], []
    launches: list[dict[str, Any]] = []
    searches: Searches = {}
    for study in studies:
        its_launches = list(_launches(study))
        searching = newest_searches(its_launches)
        launches += searching or its_launches
        if searching:
            searches[study.folder.name] = together(searching)
        for path in study.record_files():
            if not confirms(searching, path.parent.name, path.stem):
                continue
            try:
                record = read_record(path)
                _check_curve(record)
                record = completed(record)
            except ValueError as error:
                damaged.append(f"{path}: {error}")
                continue
            _, other = found.setdefault((record["config_hash"], record["seed"]), (study.folder.name, record))
            if other["accuracy"] != record["accuracy"]:
                conflicts.append(f"{path}: other accuracies than the same run has elsewhere; not counted")
    failed = [line for study in studies for key, line in _failures(study) if key not in found]
    if not found:
        state = f"{len(failed)} failed, {len(damaged)} files damaged"
        raise UserError(f"{', '.join(map(str, folders))}: no finished run there ({state}).")
    missing = sorted({line for launch in launches for line in _missing(launch, set(found))})
    names, records = zip(*found.values(), strict=True)
    metric = "macro accuracy" if all("macro_accuracy" in record for record in records) else "accuracy"
    runs, sessions, keys = _tables(zip(names, with_later_settings(records), strict=True), metric, searches)
    return Results(
        runs,
        sessions,
        keys,
        metric,
        [study.folder for study in studies],
        launches,
        failed,
        missing,
        damaged,
        conflicts,
        searches,
    )


def _studies(folder: Path) -> list[Path]:
    if (folder / "runs").is_dir():
        return [folder]
    if not folder.is_dir():
        raise UserError(f"{folder}: there is no such folder.")
    studies = sorted(child for child in folder.iterdir() if (child / "runs").is_dir())
    if not studies:
        raise UserError(f"{folder}: neither a study nor a folder of studies; a study has a folder `runs`.")
    return studies


def _check_curve(record: Record) -> None:
    lengths = {len(record[key]) for key in (*BY_SESSION, *MACRO, *DIAGNOSTICS, "matrix") if key in record}
    if len(lengths) != 1 or not isinstance(record["config"], dict) or "method" not in record["config"]:
        raise ValueError("its curves are not whole")


def _failures(study: StudyFolder) -> Iterator[tuple[tuple[str, int], str]]:
    for path in sorted(study.failures.glob("*/*.json")):
        try:
            content = json.loads(path.read_bytes())
            lines = content["error"].strip().splitlines() or ["no traceback"]
            yield (content["config_hash"], content["seed"]), f"{path}: {lines[-1]}"
        except (ValueError, KeyError, TypeError, AttributeError):
            yield ("", -1), f"{path}: not whole"


def _launches(study: StudyFolder) -> Iterator[dict[str, Any]]:
    for path in sorted(study.launches.glob("*.json")):
        try:
            yield json.loads(path.read_bytes())
        except ValueError:
            continue  # it is only a plan: the records are what counts


def _missing(launch: dict[str, Any], found: set[tuple[str, int]]) -> Iterator[str]:
    for config in launch["configs"]:
        left = [seed for seed in launch["seeds"] if (config, seed) not in found]
        if left:
            yield f"configuration {config}: seeds {', '.join(map(str, left))}"


def _tables(
    found: Iterable[tuple[str, Record]], metric: str, searches: Searches
) -> tuple[pd.DataFrame, pd.DataFrame, list[str]]:
    rows, curves = [], []
    keys: dict[str, None] = {}
    for number, (study, record) in enumerate(found):
        config = {key: _plain(value) for key, value in record["config"].items()}
        keys.update(dict.fromkeys(config))
        environment = record.get("environment", {})
        score = record[METRICS[metric][0]]
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
                "average": sum(score) / len(score),
                "pd": drop,
                "rpd": drop / score[0] if score[0] else None,
                "matrix": record.get("matrix"),
                "backward_transfer": _number(record.get("backward_transfer")),
                "forgetting": _mean(record.get("forgetting") or []),
                "validation": record["validation"].get("stream"),
                "oracle": record.get("oracle", False),
                "leaks": record["leaks"],
                "given": frozenset(record["given"]),
                **{f"seconds_{phase}": value for phase, value in record["seconds"].items()},
                "seconds": sum(record["seconds"].values()),
                **{key: environment.get(key) for key in ENVIRONMENT},
            }
        )
        unknown = [None] * len(record["accuracy"])  # to records of the first versions
        series = {key: record[key] for key in BY_SESSION}
        series |= {key: record.get(key, unknown) for key in (*MACRO, *DIAGNOSTICS)}
        series |= {name: series[key] for name, key in zip(SCORES, METRICS[metric], strict=True)}
        for session, values in enumerate(zip(*series.values(), strict=True)):
            curves.append({"run": number, "session": session, **dict(zip(series, values, strict=True))})
    runs = pd.DataFrame(rows)
    runs = labelled(runs, naming(keys, runs["study"], searches))
    columns = ["run", "study", *keys, "config_hash", "seed", "label", "first", "pd", "rpd", "seconds"]
    numbers = dict.fromkeys((*BY_SESSION, *MACRO, *DIAGNOSTICS, *SCORES), float)
    sessions = pd.DataFrame(curves).astype(numbers).merge(runs[columns], on="run")
    return runs, sessions, list(keys)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else math.nan


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def _plain(value: Any) -> Any:
    return "/".join(map(str, value)) if isinstance(value, list) else value
