"""Store the results of a published study in one file, from the folders of its launches.

    python -m study.store.archive NAME STUDY [STUDY ...] --title TEXT --code DATE --command TEXT

The file has the configurations, seeds and metrics by session of all test runs without leaks, and the
predictions of the last session. The same folders give the same bytes. An archive is never overwritten:
results of a later revision get an archive of their own.
"""

from __future__ import annotations

import io
import json
import sys
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from analysis.data.reading import Gathered, gather
from analysis.references.archives import CURVES, FOLDER, FORMAT, OF_CONFIGURATION, SUFFIX
from analysis.references.references import KINDS, tasks
from hagmeta.common.command import Parser, plain_console, show_error
from hagmeta.common.errors import UserError
from hagmeta.common.files.files import writing, written_whole
from hagmeta.common.records.records import OpenRecord, StudyFolder
from hagmeta.common.settings.scopes import scopes_in
from hagmeta.common.version import __version__
from hagmeta.scenarios.predictions import read_predictions

Answers = tuple[np.ndarray, np.ndarray, np.ndarray]  # queries, true and predicted classes
Source = tuple[OpenRecord, Callable[[], Answers | None]]

IN_ENVIRONMENT = ("device", "seeds_in_pack", "peak_gpu_bytes", "peak_memory_bytes", "torch", "commit")
WIDTHS = {"configuration": np.uint16, "seed": np.uint32, "environment": np.uint16, "sessions": np.uint8}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    parser = Parser(
        prog="python -m study.store.archive",
        description="Store the results of a published study in one file.",
    )
    add = parser.add_argument
    add("name", metavar="NAME", help="name of the archive, with a revision")
    add("studies", nargs="+", type=Path, metavar="STUDY", help="folder of a study")
    add("--title", required=True, help="what was run, in a sentence")
    add("--code", required=True, metavar="DATE", help="date of the newest commit that the runs used")
    add("--command", action="append", required=True, help="command that ran it; can be repeated")
    add("--commit", help="commit of records that have none, because their code had no Git history")
    add("--search", default="", help="how configurations were chosen, in a sentence")
    add("--kind", action="append", choices=KINDS, default=[], help="use the results as references")
    add("--no-predictions", action="append", default=[], metavar="DATASET", help="or all; can be repeated")
    add("--out", type=Path, default=FOLDER, metavar="DIR", help="folder of archives")
    try:
        options = parser.options(arguments)
        path = options.out / f"{options.name}{SUFFIX}"
        sources = list(_sources(gather(options.studies), options.no_predictions, options.commit))
        about = {
            **{"title": options.title, "code": options.code, "commands": options.command},
            **{"search": options.search, "kinds": options.kind},
        }
        notes = write_archive(path, about, sources)
    except UserError as error:
        show_error(error)
        return 2
    console = plain_console()
    for note in notes:
        console.print(note, soft_wrap=True)
    console.print(f"{path}: {len(sources)} runs, {path.stat().st_size:,} bytes", soft_wrap=True)
    return 0


def write_archive(path: Path, about: Mapping[str, Any], sources: Sequence[Source]) -> list[str]:
    """Write records with their predictions, and return messages about what the archive lacks.

    Raises:
        UserError: The file exists, there are no runs, or references of one graph have different tasks.
    """
    if path.exists():
        raise UserError(f"{path} exists, and an archive is never overwritten; choose another name.")
    if not sources:
        raise UserError(f"{path}: no test runs without leaks to store.")
    sources = sorted(sources, key=lambda source: _place(source[0]))
    records = [record for record, _ in sources]
    if about["kinds"]:
        check_tasks(records)
    header, arrays = _columns(records)
    header["predicted"], predicted, missing = _predictions(sources)
    content = _file({**header, **about, "format": FORMAT, "hagmeta": __version__}, {**arrays, **predicted})
    with writing("--out", path), written_whole(path) as unfinished:
        unfinished.write_bytes(content)
    return [f"no predictions of the last session: {missing} of {len(sources)} runs"] * (missing > 0)


def _sources(gathered: Gathered, without: Sequence[str], commit: str | None) -> Iterator[Source]:
    """Yield test runs without leaks; the samples of a search are scored on validation nodes or classes."""
    for path, _, record in gathered.records:
        held_out = record["config"]["val_classes"] or (record["validation"] or {}).get("last") is not None
        if record["leaks"] or held_out:
            continue
        environment = {**record["environment"], "commit": record["environment"]["commit"] or commit}
        if environment["commit"] is None:
            raise UserError(f"{path}: its code is unknown; give its --commit.")
        file = StudyFolder(path.parents[2]).predictions_of((record["config_hash"], record["seed"]))
        if not {record["config"]["dataset"], "all"}.isdisjoint(without) or not file.exists():
            yield record | {"environment": environment}, _nothing
        else:
            yield record | {"environment": environment}, partial(_last_session, file)


def _nothing() -> None:
    return None


def _last_session(path: Path) -> Answers:
    found = read_predictions(path)
    return found.queries[-1], found.true[-1], found.predicted[-1]


def _place(record: OpenRecord) -> tuple[Any, ...]:
    config = record["config"]
    return config["dataset"], config["method"], record["config_hash"], record["seed"]


def check_tasks(records: Sequence[OpenRecord]) -> None:
    """Raise an error if runs of one graph have different tasks."""
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


def _orders(dataset: str, records: Sequence[OpenRecord]) -> dict[str, list[int]]:
    """Return the order in which classes arrive, by seed."""
    found: dict[str, list[int]] = {}
    for record in records:
        if found.setdefault(str(record["seed"]), record["classes_met"]) != record["classes_met"]:
            raise UserError(f"{dataset}, seed {record['seed']}: runs have different orders of classes.")
    return found


def _columns(records: Sequence[OpenRecord]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the header and the columns of the records."""
    configurations: dict[str, dict[str, Any]] = {}
    numbers: dict[str, int] = {}
    environments: dict[str, int] = {}
    phases = sorted({phase for record in records for phase in record["seconds"]})
    rows: dict[str, list[Any]] = {name: [] for name in WIDTHS}
    for record in records:
        about = {key: record[key] for key in OF_CONFIGURATION}
        configurations.setdefault(record["config_hash"], about)
        environment = {key: record["environment"].get(key) for key in IN_ENVIRONMENT}
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
        "classes_met": {dataset: _orders(dataset, own) for dataset, own in tasks(records)},
    }
    return header, arrays


def _curve(record: OpenRecord, name: str) -> list[float | None]:
    """Return one value per session; forgetting begins with session 1."""
    values = [None, *record[name]] if name == "forgetting" else record.get(name)
    return values or [None] * len(record["accuracy"])


def _predictions(sources: Sequence[Source]) -> tuple[dict[str, list[str]], dict[str, np.ndarray], int]:
    """Return configurations and arrays by graph and seed, and how many runs have no predictions.

    A graph has one array of labels, and a seed has one bit per node: whether it is a query. Predictions are
    an array (configurations, queries), with queries sorted by true class, so that it compresses well.
    """
    hashes: dict[str, list[str]] = {}
    columns: dict[str, list[np.ndarray]] = {}
    asked: dict[str, np.ndarray] = {}
    labels: dict[str, dict[int, int]] = {}
    missing = 0
    for record, answers in sources:
        found = answers()
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


def _file(header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> bytes:
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
