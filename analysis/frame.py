"""Records to tidy tables: one row a run, and one row a run and session.

Nothing is averaged here, and nothing is dropped in silence: damaged files, failed runs, runs that were
planned and are not there, and runs that two folders tell differently are kept by name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from hagmeta.config import RELEASED_QUERIES, RunConfig
from hagmeta.errors import UserError, choose
from study.store import Record, Store, read_record

# Accuracies are comparable only where all of these are equal.
SETTING = (
    *("dataset", "protocol", "n_way", "k_shot", "classes", "sessions"),
    *("queries_per_class", "drop_small", "val_classes"),
)
TOGGLES = ("gpil", "nla", "tla")
BY_SESSION = ("accuracy", "base_accuracy", "novel_accuracy", "new_accuracy", "harmonic")
ENVIRONMENT = ("device", "seeds_in_pack", "peak_gpu_bytes", "peak_memory_bytes", "torch", "commit")
VERSION = ("commit", "torch", "device")  # what runs that are averaged should share
NAMES = {
    "hag-meta": "HAG-Meta",
    "proto-gcn": "Proto-GCN",
    "proto-gat": "Proto-GAT",
    "meta-gnn": "Meta-GNN",
    "gpn": "GPN",
    "er-gnn": "ER-GNN",
    "icarl": "iCaRL",
    "cec": "CEC",
    "joint": "Joint (oracle)",
    "frozen": "Frozen",
}


@dataclass(frozen=True)
class Results:
    """What some folders of records hold."""

    runs: pd.DataFrame  # a row a run: its settings, seed, summary, cost, environment and label
    sessions: pd.DataFrame  # a row a run and session: the same settings, and the accuracies
    keys: list[str]  # the columns that are settings
    folders: list[Path] = field(default_factory=list)
    launches: list[dict[str, Any]] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)
    conflicts: list[str] = field(default_factory=list)
    apart: tuple[str, ...] = ()  # settings that part panels, beside SETTING

    def varied(self) -> list[str]:
        """Settings with more than one value."""
        return varied(self.runs.drop_duplicates("config_hash"), self.keys)

    def panels(self) -> list[Panel]:
        """Parts within which accuracies may be compared."""
        return self._panels

    @cached_property
    def _panels(self) -> list[Panel]:
        different = [key for key in self.keys if key in SETTING or key in self.apart]
        order = ["dataset", "protocol", "n_way", "k_shot"]
        groups = self.runs.groupby(different, dropna=False, sort=False)
        parting = [key for key in self.varied() if key in different and key not in order]
        panels = [self._panel(runs.index, parting) for _, runs in groups]
        return sorted(panels, key=lambda panel: [sort_key(panel.runs[key].iloc[0]) for key in order])

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
        runs = self.runs[chosen]
        sessions = self.sessions[self.sessions["run"].isin(runs["run"])]
        return replace(self, runs=runs, sessions=sessions)

    def by(self, axis: str) -> Results:
        """The same runs with the values of one setting as configurations, and all others apart."""
        choose("setting", axis, self.keys)
        if axis in SETTING:
            raise UserError(f"--by {axis}: accuracies under different {axis} cannot stand in one table.")
        apart = tuple(key for key in self.varied() if key not in SETTING and key != axis)
        runs = self.runs.sort_values(axis, key=lambda column: column.map(sort_key), kind="stable")
        runs = runs.assign(label=runs[axis].map(lambda value: f"{axis} {readable(value)}"))
        sessions = self.sessions.assign(label=self.sessions["run"].map(runs.set_index("run")["label"]))
        return replace(self, runs=runs, sessions=sessions, apart=apart)


@dataclass(frozen=True)
class Panel:
    """Runs under one setting: what may stand in one table or one pair of axes."""

    title: str
    runs: pd.DataFrame
    sessions: pd.DataFrame
    keys: list[str]

    @property
    def slug(self) -> str:
        """For file names."""
        return re.sub(r"[^a-z0-9]+", "-", self.title.lower()).strip("-")

    @property
    def leaks(self) -> bool:
        return bool((self.runs["protocol"] == "released").any())

    @property
    def labels(self) -> list[str]:
        """The configurations, the reference first."""
        return list(dict.fromkeys(self.runs["label"]))

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

    def mixed_versions(self, label: str) -> bool:
        """Whether the runs of a configuration were made by more than one version of the code or its tools."""
        return bool(
            (self.runs.loc[self.runs["label"] == label, list(VERSION)].nunique(dropna=False) > 1).any()
        )

    def by_seed(self, column: str, session: int | None = None) -> pd.DataFrame:
        """(seeds, configurations): a column of the runs, or of one session; the last is -1."""
        rows = self.runs
        if session is not None:
            rows = self.sessions
            wanted = rows["session"].max() if session == -1 else session
            rows = rows[rows["session"] == wanted]
        return rows.pivot(index="seed", columns="label", values=column)[self.labels]


def read(folders: Sequence[Path]) -> Results:
    """All records of some studies, or of folders of studies."""
    stores = [Store(study) for folder in folders for study in _studies(folder)]
    found: dict[tuple[str, int], tuple[str, Record]] = {}
    damaged, conflicts = [], []
    for store in stores:
        for path in sorted(store.runs.glob("*/*.json")):
            try:
                record = read_record(path)
                _check_curve(record)
            except ValueError as error:
                damaged.append(f"{path}: {error}")
                continue
            _, other = found.setdefault((record["config_hash"], record["seed"]), (store.folder.name, record))
            if other["accuracy"] != record["accuracy"]:
                conflicts.append(f"{path}: other accuracies than the same run has elsewhere; not counted")
    failed = [line for store in stores for key, line in _failures(store) if key not in found]
    if not found:
        state = f"{len(failed)} failed, {len(damaged)} files damaged"
        raise UserError(f"{', '.join(map(str, folders))}: no finished run there ({state}).")
    launches = [launch for store in stores for launch in _launches(store)]
    missing = sorted({line for launch in launches for line in _missing(launch, set(found))})
    runs, sessions, keys = _tables(found.values())
    return Results(
        runs, sessions, keys, [s.folder for s in stores], launches, failed, missing, damaged, conflicts
    )


def varied(runs: pd.DataFrame, keys: Iterable[str]) -> list[str]:
    """Settings that differ between runs of one method; and those of a panel, and the method, if they do."""

    def values(key: str) -> int:
        if key in SETTING or key == "method":
            return runs[key].nunique()
        if key == "query_shot":  # K or the protocol decides it, unless it was given
            default = runs["k_shot"].where(runs["protocol"] != "released", RELEASED_QUERIES)
            given = runs[key].where(runs[key] != default)
            return given.groupby(runs["method"]).nunique(dropna=False).max()
        return runs.groupby("method")[key].nunique().max()

    return [key for key in keys if values(key) > 1]


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
    lengths = {len(record[key]) for key in (*BY_SESSION, "matrix") if key in record}
    if len(lengths) != 1 or not isinstance(record["config"], dict) or "method" not in record["config"]:
        raise ValueError("its curves are not whole")


def _failures(store: Store) -> Iterator[tuple[tuple[str, int], str]]:
    for path in sorted(store.failures.glob("*/*.json")):
        try:
            content = json.loads(path.read_bytes())
            lines = content["error"].strip().splitlines() or ["no traceback"]
            yield (content["config_hash"], content["seed"]), f"{path}: {lines[-1]}"
        except (ValueError, KeyError, TypeError, AttributeError):
            yield ("", -1), f"{path}: not whole"


def _launches(store: Store) -> Iterator[dict[str, Any]]:
    for path in sorted(store.launches.glob("*.json")):
        try:
            yield json.loads(path.read_bytes())
        except ValueError:
            continue  # it is only a plan: the records are what counts


def _missing(launch: dict[str, Any], found: set[tuple[str, int]]) -> Iterator[str]:
    for config in launch["configs"]:
        left = [seed for seed in launch["seeds"] if (config, seed) not in found]
        if left:
            yield f"configuration {config}: seeds {', '.join(map(str, left))}"


def _tables(found: Iterable[tuple[str, Record]]) -> tuple[pd.DataFrame, pd.DataFrame, list[str]]:
    rows, curves = [], []
    keys: dict[str, None] = {}
    for number, (study, record) in enumerate(found):
        config = {key: _plain(value) for key, value in record["config"].items()}
        keys.update(dict.fromkeys(config))
        environment = record.get("environment", {})
        rows.append(
            {
                "run": number,
                "study": study,
                **config,
                "config_hash": record["config_hash"],
                "seed": record["seed"],
                "first": record["accuracy"][0],
                "last": record["accuracy"][-1],
                **{key: record.get(key) for key in ("pd", "rpd", "average_accuracy", "matrix")},
                "validation": record["validation"].get("stream"),
                **{f"seconds_{phase}": value for phase, value in record["seconds"].items()},
                "seconds": sum(record["seconds"].values()),
                **{key: environment.get(key) for key in ENVIRONMENT},
            }
        )
        for session, values in enumerate(zip(*(record[key] for key in BY_SESSION), strict=True)):
            curves.append({"run": number, "session": session, **dict(zip(BY_SESSION, values, strict=True))})
    runs = _labelled(pd.DataFrame(rows), list(keys))
    columns = ["run", "study", *keys, "config_hash", "seed", "label", "first", "pd", "rpd", "seconds"]
    sessions = pd.DataFrame(curves).astype(dict.fromkeys(BY_SESSION, float)).merge(runs[columns], on="run")
    return runs, sessions, list(keys)


def _labelled(runs: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """A name for each configuration, from the settings in which they differ; the reference comes first."""
    different = [key for key in varied(runs, keys) if key not in SETTING and key != "method"]
    toggled = [key for key in TOGGLES if key in different]
    others = [key for key in different if key not in TOGGLES]
    several = runs["method"].nunique() > 1

    def name(run: pd.Series) -> str:
        parts = [readable(run[key]) if key == "encoder" else f"{key} {readable(run[key])}" for key in others]
        parts = [part for key, part in zip(others, parts, strict=True) if not is_absent(run[key])]
        on = [key.upper() for key in TOGGLES if is_on(run.get(key))]
        has_toggles = toggled and run["method"] == "hag-meta"
        if has_toggles and not (several and len(on) == len(TOGGLES)):
            parts.insert(0, " + ".join(on) or "none of the three")
        method = NAMES.get(run["method"], run["method"])
        if several or not parts:
            return f"{method} ({', '.join(parts)})" if parts else method
        return ", ".join(parts)

    configs = runs.drop_duplicates("config_hash")
    labels = configs.apply(name, axis=1)
    # Two configurations of one setting never share a name, whatever told them apart.
    twins = labels.duplicated(keep=False) & configs.assign(label=labels).duplicated(
        [*(key for key in SETTING if key in keys), "label"], keep=False
    )
    labels = labels.where(~twins, labels + " [" + configs["config_hash"].str[:6] + "]")
    named = runs.assign(label=runs["config_hash"].map(dict(zip(configs["config_hash"], labels, strict=True))))
    return named.sort_values(by="config_hash", key=_rank(configs, keys), kind="stable").reset_index(drop=True)


def _rank(configs: pd.DataFrame, keys: list[str]) -> Any:
    """Sorts configurations: HAG-Meta with everything on first, then by method and by settings."""
    methods = {name: number for number, name in enumerate(NAMES)}

    def order(run: pd.Series) -> tuple[Any, ...]:
        off = sum(not is_on(run.get(key)) for key in TOGGLES)
        changed = _changes(run, keys)
        rest = [sort_key(run[key]) for key in keys]
        return (methods.get(run["method"], 99), len(changed), off, rest)

    ranked = sorted((run for _, run in configs.iterrows()), key=order)
    position = {run["config_hash"]: number for number, run in enumerate(ranked)}
    return lambda column: column.map(position)


def _changes(run: pd.Series, keys: list[str]) -> list[str]:
    """The settings, toggles and those of the panel aside, that are not the default."""
    defaults = RunConfig().canonical()
    apart = (*SETTING, *TOGGLES, "method", "query_shot")
    return [
        key for key in keys if key not in apart and not is_absent(run[key]) and run[key] != defaults.get(key)
    ]


def _plain(value: Any) -> Any:
    return "/".join(map(str, value)) if isinstance(value, list) else value


def is_on(value: Any) -> bool:
    """A switch, whichever library's truth it holds."""
    return not is_absent(value) and bool(value)


def is_absent(value: Any) -> bool:
    """A setting that a configuration has not."""
    return value is None or (isinstance(value, float) and value != value)


def readable(value: Any) -> str:
    """A setting's value as a person would write it."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def sort_key(value: Any) -> tuple[bool, float, str]:
    """Numbers by size, then the rest by name."""
    number = isinstance(value, (int, float)) and not is_absent(value)
    return (not number, float(value) if number else 0.0, str(value))
