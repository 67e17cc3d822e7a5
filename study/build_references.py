"""Make the file of reference results from the folders of studies.

python -m study.build_references results/tuned results/defaults
python -m study.build_references analysis/references.npz results/tuned

The second command adds a study to an existing file, and keeps the predictions of runs that stay in it. A run
of a study replaces the same run of the file and its predictions. The file has the records of all methods
under a protocol without leaks. For tuned methods, it also has the predictions of the last session, if they
were saved. The same folders give the same bytes.
"""

from __future__ import annotations

import io
import json
import re
import sys
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from analysis.frame import Gathered, gather
from analysis.references import (
    CURVES,
    DEFAULTS,
    FORMAT,
    OF_CONFIGURATION,
    PATH,
    TUNED,
    References,
    read_references,
    tasks,
)
from hagmeta import datasets
from hagmeta.common.command import Parser, plain_console, show_error
from hagmeta.common.errors import UserError
from hagmeta.common.files import writing, written_whole
from hagmeta.common.outputs import Kind, check_output
from hagmeta.common.records import OpenRecord, RunKey, StudyFolder
from hagmeta.common.scopes import BEFORE, scopes_in
from hagmeta.common.version import __version__
from hagmeta.config import RunConfig
from hagmeta.protocol.predictions import read_predictions

Answers = tuple[np.ndarray, np.ndarray, np.ndarray]  # queries, true and predicted classes

MOST_BYTES = 5_000_000
SEARCHED = "best.yaml"  # a study with this file chose its configurations by a search
IN_ENVIRONMENT = ("device", "seeds_in_pack", "peak_gpu_bytes", "peak_memory_bytes", "torch", "commit")
WIDTHS = {"configuration": np.uint16, "seed": np.uint32, "environment": np.uint16, "sessions": np.uint8}


def _are_references(path: Path) -> bool:
    with zipfile.ZipFile(path) as archive:
        return {"header.npy", "configuration.npy", "seed.npy"} <= set(archive.namelist())


REFERENCES = Kind("a file of reference results", _are_references)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    parser = Parser(
        prog="python -m study.build_references",
        description="Make the file of reference results from the folders of studies.",
    )
    add = parser.add_argument
    add(
        "studies",
        nargs="+",
        type=Path,
        metavar="STUDY",
        help="folder of a study, tuned or with defaults, or a file that this command made",
    )
    add("--out", type=Path, default=PATH, metavar="FILE", help="file to write (default: the packaged one)")
    parser.add_force()
    console = plain_console()
    try:
        options = parser.options(arguments)
        check_output("--out", options.out, REFERENCES, force=options.force)
        content, notes = build(options.studies)
        with writing("--out", options.out), written_whole(options.out) as partial:
            partial.write_bytes(content)
    except UserError as error:
        show_error(error)
        return 2
    for note in notes:
        console.print(note, soft_wrap=True)
    console.print(f"{options.out}: {len(content):,} bytes", soft_wrap=True)
    return 0


def build(studies: Sequence[Path], most: int = MOST_BYTES) -> tuple[bytes, list[str]]:
    """Return the bytes of the file, at most `most`, and messages about what was left out.

    Raises:
        UserError: A study has no usable run, two configurations of a method claim the same place, runs of one
            graph have different tasks, or the file is too large.
    """
    files = [read_references(path) for path in studies if path.suffix == PATH.suffix]
    gathered = gather([path for path in studies if path.suffix != PATH.suffix])
    stored = {_key(record): record for file in files for record in file.records}
    chosen = {**stored, **{_key(record): record for _, _, record in _whole(gathered)}}
    old = outdated(list(chosen.values()))
    notes = [*gathered.damaged, *(f"left out, outdated: {why}" for why in sorted(old.values()))]
    records = [record for key, record in sorted(chosen.items()) if key[0] not in old]
    if not records:
        raise UserError(f"{', '.join(map(str, studies))}: no current run without leaks found.")
    kinds = _kinds(gathered, list(stored.values()), {record["config_hash"] for record in records})
    notes += _without_kind(records, kinds)
    records = sorted((r for r in records if kinds[r["config_hash"]]), key=_place)
    if not records:
        raise UserError(f"{', '.join(map(str, studies))}: no run is tuned or has the method's defaults.")
    _check_one_each(records, kinds)
    _check_tasks(records)
    header, arrays = _columns(records, kinds)
    sources: dict[RunKey, References | StudyFolder] = {
        **{_key(record): file for file in files for record in file.records},
        **{_key(record): StudyFolder(path.parents[2]) for path, _, record in _whole(gathered)},
    }
    tuned = [r for r in records if TUNED in kinds[r["config_hash"]]]
    header["predicted"], predicted, missing = _predictions(tuned, lambda r: _answers(r, sources[_key(r)]))
    notes += [f"no predictions of the last session: {missing} of {len(tuned)} tuned runs"] * (missing > 0)
    header |= {
        "format": FORMAT,
        "hagmeta": __version__,
        "command": f"python -m study.build_references {' '.join(path.name for path in studies)}",
        "launches": _merged(
            [_without_folders(launch["command"]) for launch in gathered.launches], files, "launches"
        ),
        "searches": _merged([_description(study.folder) for study in gathered.studies], files, "searches"),
    }
    content, left_out = _limited(header, arrays, predicted, most)
    return content, notes + left_out


def _key(record: OpenRecord) -> RunKey:
    return record["config_hash"], record["seed"]


def _without_folders(command: str) -> str:
    """Return a command whose arguments name files without their folders, which differ between machines."""
    words = command.split(" ")
    return " ".join([*words[:2], *(re.sub(r"[^=:,]*/", "", word) for word in words[2:])])


def _merged(own: Sequence[str], files: Sequence[References], key: str) -> list[str]:
    """Return texts of the studies and of files that were made before, without repetitions and empty ones."""
    return sorted({*filter(None, own), *(text for file in files for text in file.header[key])})


def _limited(
    header: dict[str, Any], arrays: Mapping[str, np.ndarray], predicted: dict[str, np.ndarray], most: int
) -> tuple[bytes, list[str]]:
    """Return the file with the predictions of as many seeds as fit into `most` bytes, and a message."""
    content, left = _archive(header, {**arrays, **predicted}), []
    while len(content) > most and header["predicted"]:
        last = max(map(_seed, header["predicted"]))
        left.append(last)
        header["predicted"] = {n: each for n, each in header["predicted"].items() if _seed(n) != last}
        predicted = {n: each for n, each in predicted.items() if n.startswith("labels") or _seed(n) != last}
        content = _archive(header, {**arrays, **predicted})
    if len(content) > most:
        raise UserError(f"the file would have {len(content):,} bytes; expected at most {most:,}.")
    seeds = ", ".join(map(str, sorted(left)))
    return content, [f"left out to stay below {most:,} bytes: predictions of seeds {seeds}"] * bool(left)


def _seed(name: str) -> int:
    """Return the seed at the end of the name of an array."""
    return int(name.split()[-1])


def outdated(records: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return why configurations are not those of the current code, by configuration hash."""
    first = {record["config_hash"]: record for record in reversed(records)}
    return {name: why for name, record in first.items() if (why := _why_outdated(record))}


def _why_outdated(record: Mapping[str, Any]) -> str:
    config, then = record["config"], record.get("revisions") or {}
    where = f"{config['dataset']}, {config['method']}"
    try:
        today = RunConfig.from_record(config)
        now = today.revisions()
    except UserError as error:
        return f"{where}: {error}"
    changed = [name for name in ("dataset", "method", "protocol") if then.get(name, 1) != now.get(name, 1)]
    if changed:
        told = [
            f"the {name} has revision {then.get(name, 1)}, the code {now.get(name, 1)}" for name in changed
        ]
        return f"{where}: {'; '.join(told)}"
    graph = _fingerprint(config["dataset"])
    if graph is not None and record.get("data") != graph:
        return f"{where}: the graph has changed"
    if today.hash() != record["config_hash"]:
        return f"{where}: the code reads these settings as another configuration ({today.hash()})"
    return ""


@lru_cache
def _fingerprint(dataset: str) -> str | None:
    """Return the fingerprint of an embedded graph; None for one that would have to be downloaded."""
    if dataset not in datasets.EMBEDDED:
        return None
    return datasets.fingerprint(datasets.load(dataset, Path()))


def _whole(gathered: Gathered) -> Iterator[tuple[Path, str, OpenRecord]]:
    """Yield the records of test streams without leaks; the samples of a search hold classes out."""
    for path, study, record in gathered.records:
        held_out = record["config"]["val_classes"] or (record["validation"] or {}).get("last") is not None
        if not record["leaks"] and not held_out:
            yield path, study, record


def _kinds(gathered: Gathered, stored: Sequence[OpenRecord], hashes: set[str]) -> dict[str, list[str]]:
    """Return the kinds of each configuration: tuned in a study with a search, defaults if nothing was set."""
    found: dict[str, set[str]] = {name: set() for name in hashes}
    searched = {study.folder for study in gathered.studies if (study.folder / SEARCHED).exists()}
    for path, study, record in gathered.records:
        name = record["config_hash"]
        if name in found and (path.parents[2] in searched or study in gathered.searches):
            found[name].add(TUNED)
        if name in found and not record["given"]:
            found[name].add(DEFAULTS)
    for record in stored:
        if record["config_hash"] in found:
            found[record["config_hash"]] |= set(record["kinds"])
    return {name: sorted(kinds, reverse=True) for name, kinds in found.items()}


def _without_kind(records: Sequence[OpenRecord], kinds: Mapping[str, list[str]]) -> list[str]:
    lost = {r["config_hash"]: r for r in records if not kinds[r["config_hash"]]}
    return [
        f"left out, neither tuned nor the defaults: {r['config']['dataset']}, {r['config']['method']} "
        f"({', '.join(r['given'])} set)"
        for r in lost.values()
    ]


def _description(study: Path) -> str:
    """Return how a search chose its configurations, or an empty string for a study without a search."""
    chosen = study / SEARCHED
    content = yaml.safe_load(chosen.read_text(encoding="utf-8")) if chosen.is_file() else {}
    return str((content or {}).get("description", ""))


def _place(record: OpenRecord) -> tuple[Any, ...]:
    config = record["config"]
    return config["dataset"], config["method"], record["config_hash"], record["seed"]


def _check_one_each(records: Sequence[OpenRecord], kinds: Mapping[str, list[str]]) -> None:
    """Raise an error if a method has two tuned configurations on a graph."""
    seen: dict[tuple[str, str, str], str] = {}
    for record in records:
        for kind in kinds[record["config_hash"]]:
            config = record["config"]
            other = seen.setdefault((config["dataset"], config["method"], kind), record["config_hash"])
            if other != record["config_hash"]:
                raise UserError(
                    f"{config['dataset']}, {config['method']}: two configurations are {kind}, {other} and "
                    f"{record['config_hash']}; give the studies of one search."
                )


def _check_tasks(records: Sequence[OpenRecord]) -> None:
    """Raise an error if runs of one graph have different tasks or different class orders for one seed."""
    for dataset, own in tasks(records):
        for key in scopes_in(own).both:
            values = {json.dumps(record["config"][key]) for record in own if key in record["config"]}
            if len(values) > 1:
                raise UserError(
                    f"{dataset}: {key} is {' and '.join(sorted(values))}; references need one task per graph."
                )
        graphs = {record["data"] for record in own}
        if len(graphs) > 1:
            raise UserError(f"{dataset}: the runs are of {len(graphs)} different graphs.")
        orders: dict[int, list[int]] = {}
        for record in own:
            if orders.setdefault(record["seed"], record["classes_met"]) != record["classes_met"]:
                raise UserError(f"{dataset}, seed {record['seed']}: runs have different orders of classes.")


def _columns(
    records: Sequence[OpenRecord], kinds: Mapping[str, list[str]]
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the header and the columns of the records."""
    configurations: dict[str, dict[str, Any]] = {}
    numbers: dict[str, int] = {}
    environments: dict[str, int] = {}
    phases = sorted({phase for record in records for phase in record["seconds"]})
    rows: dict[str, list[Any]] = {name: [] for name in WIDTHS}
    for record in records:
        about = {key: record[key] for key in OF_CONFIGURATION} | {"kinds": kinds[record["config_hash"]]}
        about["scopes"] = record.get("scopes", BEFORE)
        configurations.setdefault(record["config_hash"], about)
        environment = {key: record.get("environment", {}).get(key) for key in IN_ENVIRONMENT}
        number = environments.setdefault(json.dumps(environment), len(environments))
        rows["configuration"].append(numbers.setdefault(record["config_hash"], len(numbers)))
        rows["seed"].append(record["seed"])
        rows["environment"].append(number)
        rows["sessions"].append(len(record["accuracy"]))
    arrays = {name: np.array(rows[name], dtype) for name, dtype in WIDTHS.items()}
    seconds = [[record["seconds"].get(phase) for phase in phases] for record in records]
    arrays["seconds"] = np.array(seconds, np.float32)
    arrays["backward_transfer"] = np.array([r.get("backward_transfer") for r in records], np.float32)
    for name in CURVES:
        curves = [_curve(record, name) for record in records]
        arrays[name] = np.array([value for curve in curves for value in curve], np.float32)
    header = {
        "configurations": list(configurations.values()),
        "environments": [json.loads(text) for text in environments],
        "phases": phases,
        "classes_met": {
            dataset: {str(record["seed"]): record["classes_met"] for record in own}
            for dataset, own in tasks(records)
        },
    }
    return header, arrays


def _curve(record: OpenRecord, name: str) -> list[float | None]:
    """Return one value per session; forgetting begins with session 1."""
    values = [None, *record[name]] if name == "forgetting" else record.get(name)
    return values or [None] * len(record["accuracy"])


def _answers(record: OpenRecord, source: References | StudyFolder) -> Answers | None:
    """Return the answers of a run at the last session; None if its file or folder has none."""
    key = _key(record)
    if isinstance(source, References):
        stored = source.answers(record["config"]["dataset"], key)
        return None if stored is None else (stored["query"], stored["true"], stored["predicted"])
    path = source.predictions_of(key)
    if not path.exists():
        return None
    found = read_predictions(path)
    return found.queries[-1], found.true[-1], found.predicted[-1]


def _predictions(
    records: Sequence[OpenRecord], answers: Callable[[OpenRecord], Answers | None]
) -> tuple[dict[str, list[str]], dict[str, np.ndarray], int]:
    """Return configurations and arrays by graph and seed, and how many runs have no predictions.

    A graph has one array of labels, and a seed has one bit per node: whether it is a query. Predictions are
    an array (configurations, queries), with queries sorted by true class, so that it compresses well.
    """
    hashes: dict[str, list[str]] = {}
    columns: dict[str, list[np.ndarray]] = {}
    asked: dict[str, np.ndarray] = {}
    labels: dict[str, dict[int, int]] = {}
    missing = 0
    for record in records:
        found = answers(record)
        if found is None:
            missing += 1
            continue
        query, true, given = found
        config_hash, dataset = record["config_hash"], record["config"]["dataset"]
        name, order = f"{dataset} {record['seed']}", np.lexsort((query, true))
        if not np.array_equal(asked.setdefault(name, np.sort(query)), np.sort(query)):
            raise UserError(
                f"{dataset}, {record['config']['method']}, seed {record['seed']}: the queries of "
                f"{config_hash} differ from those of other methods."
            )
        labels.setdefault(dataset, {}).update(zip(query.tolist(), true.tolist(), strict=True))
        hashes.setdefault(name, []).append(config_hash)
        columns.setdefault(name, []).append(given[order])
    arrays = {f"labels {name}": _by_node(known) for name, known in labels.items()}
    for name, query in asked.items():
        arrays[f"asked {name}"] = np.packbits(np.isin(np.arange(query.max() + 1), query))
        arrays[f"predicted {name}"] = _narrow(np.stack(columns[name]))
    return hashes, arrays, missing


def _by_node(known: Mapping[int, int]) -> np.ndarray:
    """Return the label of each node, and -1 for nodes that are never queries."""
    labels = np.full(max(known) + 1, -1)
    labels[list(known)] = list(known.values())
    return _narrow(labels)


def _narrow(array: np.ndarray) -> np.ndarray:
    """Return `array` in the smallest signed type that holds it."""
    small = [kind for kind in (np.int8, np.int16, np.int32) if array.max() <= np.iinfo(kind).max]
    return array.astype(small[0])


def _archive(header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> bytes:
    """Return an `.npz` file with fixed times, so that equal arrays give equal bytes."""
    text = json.dumps(header, separators=(",", ":"))
    whole = {"header": np.frombuffer(text.encode(), np.uint8), **arrays}
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, array in whole.items():
            one = io.BytesIO()
            np.lib.format.write_array(one, np.ascontiguousarray(array), allow_pickle=False)
            entry = zipfile.ZipInfo(f"{name}.npy")  # its time is 1980-01-01
            entry.compress_type, entry.external_attr = zipfile.ZIP_LZMA, 0o644 << 16
            archive.writestr(entry, one.getvalue())
    return content.getvalue()


if __name__ == "__main__":
    sys.exit(main())
