"""Read records into tidy tables: one with a row per run, and one with a row per run and session.

Nothing is averaged or dropped silently here. Damaged files, failed runs, missing runs, and runs with
different results in two folders are listed by name.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.data.configs import REVISION, with_fixed_settings, with_short_names
from analysis.data.labels import is_absent, setting_words
from analysis.data.results import (
    CURVES,
    IN_EVERY_TITLE,
    MACRO,
    PER_RUN,
    SCORED_BY,
    SCORES,
    TOLD,
    Lost,
    Results,
    plain,
)
from analysis.data.searches import (
    Searches,
    begun,
    confirms,
    earlier_choices,
    named,
    newest_searches,
    together,
)
from analysis.data.traits import told_apart, with_traits
from hagmeta.common.errors import UserError, choose
from hagmeta.common.plugins.identity import without_hash
from hagmeta.common.records.differences import differing
from hagmeta.common.records.metrics import MetricDeclaration, from_record
from hagmeta.common.records.records import OfOtherVersion, OpenRecord, StudyFolder, opened, read_record
from hagmeta.common.settings.scopes import Scopes, scopes_in

ENVIRONMENT = ("device", "seeds_in_pack", "peak_gpu_bytes", "peak_memory_bytes", "torch", "commit")
IN_EVERY_NAME = ("dataset", "method", "protocol")  # of a missing run, next to what varies
OF_A_LAUNCH = ("space", "description", "command", "time", "configs", "seeds")


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
        its_launches = begun(its_launches, set(study.run_keys()))
        searching = newest_searches(its_launches)
        found.launches.extend(searching or its_launches)
        if searching:
            earlier = earlier_choices(its_launches, searching)
            found.searches[study.folder.name] = together(searching, earlier)
        for path in study.record_files():
            if not confirms(searching, path.parent.name, path.stem):
                continue
            try:
                record = opened(read_record(path))
                _check(record)
                record.pop("class_accuracy", None)  # half the size of a record, and not used here
            except OfOtherVersion:
                raise
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
    configs = launch["configs"]
    varied = [] if launch.get("search") else differing(list(configs.values()), Scopes((), ()))
    for name, config in configs.items():
        left = [seed for seed in launch["seeds"] if (name, seed) not in found]
        if left:
            what = [str(config[key]) for key in IN_EVERY_NAME if key in config]
            own = [key for key in varied if key not in IN_EVERY_NAME and not is_absent(config.get(key))]
            what += [setting_words(key, config[key]) for key in own]
            words = f"{', '.join(what)} (configuration {name}): seeds {', '.join(map(str, left))}"
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
        config = {key: plain(value) for key, value in record["config"].items()}
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
                "trained_parameters": _number(record.get("trained_parameters")),
                "given": frozenset(record["given"]),
                **{f"seconds_{phase}": value for phase, value in record["seconds"].items()},
                "seconds": sum(record["seconds"].values()),
                **{key: environment.get(key) for key in ENVIRONMENT},
                **{key: _number(environment.get(key)) for key in ("gpu_joules", "gpu_share")},
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
    runs = named(runs, list(keys), searches, scopes)
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
