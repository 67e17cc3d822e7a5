"""Records of a study as files: their names, their folders, and how to read them safely."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, Required, TypedDict, cast

from hagmeta.common.errors import UserError
from hagmeta.common.files.files import reason, require_readable
from hagmeta.common.records.record_schema import FORMAT, problem_of
from hagmeta.common.settings.left_out import LAST_WITH_OLD_NAMES, OLD_NAMES, hashed_as

RunKey = tuple[str, int]  # configuration hash, seed
MOST_BYTES = 20_000_000  # per record; hundreds of sessions and classes need less than a tenth


class Record(TypedDict, total=False):
    """The record of one run: one configuration and one seed. ``record-1.schema.json`` describes each key.

    The names of additional metrics and diagnostics are not known in advance; use `opened` to read them.
    """

    config: Required[dict[str, Any]]
    config_hash: Required[str]
    seed: Required[int]
    accuracy: Required[list[float]]
    matrix: Required[list[list[float | None]]]
    pd: Required[float]
    rpd: Required[float | None]
    validation: Required[dict[str, float | None]]
    seconds: Required[dict[str, float]]
    trained_parameters: int
    data: Required[str]
    given: Required[list[str]]
    unhashed: Required[list[str]]
    scopes: Required[
        dict[str, str]
    ]  # settings of the task and of the labels; see `hagmeta.common.settings.scopes`
    revisions: Required[dict[str, int]]
    traits: Required[dict[str, Any]]  # traits of the method; see `hagmeta.common.traits`
    leaks: Required[bool]
    oracle: Required[bool]
    base_accuracy: Required[list[float]]
    novel_accuracy: Required[list[float | None]]
    new_accuracy: Required[list[float | None]]
    harmonic: Required[list[float | None]]
    macro_accuracy: Required[list[float]]
    macro_f1: Required[list[float]]
    macro_base_accuracy: Required[list[float]]
    macro_novel_accuracy: Required[list[float | None]]
    macro_harmonic: Required[list[float | None]]
    classes_met: Required[list[int]]
    environment: Required[dict[str, Any]]
    format: int
    metrics: dict[str, dict[str, Any]]  # declarations of additional metrics
    average_accuracy: float
    forgetting: list[float | None]
    backward_transfer: float | None
    class_accuracy: list[list[float | None]]


OpenRecord = dict[str, Any]  # a record with any keys


def opened(record: Record) -> OpenRecord:
    """Return the same record with a type that allows any key."""
    return cast(OpenRecord, record)


class OfOtherVersion(UserError):
    """A record that another version can read: it is not damaged."""


class StudyFolder:
    """The paths in the folder of a study. You can merge two folders by copying one into the other.

    Records are ``FOLDER/runs/<configuration hash>/<seed>.json``.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.runs = folder / "runs"
        self.failures = folder / "failed"
        self.launches = folder / "launches"
        self.searches = folder / "searches"  # the samples of each, for reports
        self.embeddings = folder / "embeddings"
        self.predictions = folder / "predictions"
        self.checkpoints = folder / "checkpoints"  # of interrupted trials

    def record_files(self) -> Iterator[Path]:
        """Yield the record files of all finished runs, sorted."""
        yield from sorted(self.runs.glob("*/*.json"))

    def run_keys(self) -> Iterator[RunKey]:
        """Yield the configuration and seed of each finished run, from the names of the files."""
        for path in self.record_files():
            if path.stem.isdigit():
                yield path.parent.name, int(path.stem)

    def embeddings_of(self, key: RunKey, session: int) -> Path:
        """Return the file with the embeddings of a run in ``session``."""
        return self.embeddings / key[0] / f"{key[1]}-{session}.npz"

    def predictions_of(self, key: RunKey) -> Path:
        """Return the file with the predictions of a run."""
        return self.predictions / key[0] / f"{key[1]}.npz"


def config_hash(
    config: Mapping[str, Any],
    unhashed: Collection[str] = (),
    revisions: Mapping[str, int] | None = None,
) -> str:
    """Return the hash that identifies a configuration.

    Args:
        config: The settings, as in a record.
        unhashed: Settings to leave out. New settings stay out while they have the value that was implied
            before they existed, so that old hashes stay valid.
        revisions: Revision numbers of parts that changed, such as the preparation of a dataset.
    """
    hashed = {hashed_as(name): value for name, value in config.items() if name not in unhashed}
    if revisions:
        hashed["revisions"] = dict(revisions)
    text = json.dumps(hashed, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def read_record(path: Path) -> Record:
    """Read and check a record.

    Raises:
        ValueError: The file is not a valid record, or it is in the wrong folder.
        OfOtherVersion: The record has a newer format, or settings that were renamed since.
    """
    content = _parsed(path)
    if not isinstance(content, dict):
        raise ValueError("not a record")
    form = content.get("format", FORMAT)
    if type(form) is int and form > FORMAT:
        raise OfOtherVersion(
            f"{path}: its format {form} is newer than {FORMAT}, which this version reads; update hagmeta."
        )
    problem = problem_of(content)
    if problem:
        raise ValueError(problem)
    record = cast(Record, content)
    if old := sorted(OLD_NAMES & record["config"].keys()):
        raise OfOtherVersion(
            f"{path}: written by an earlier version, whose setting {old[0]} has another name today or is "
            f"gone; read this folder with commit {LAST_WITH_OLD_NAMES}."
        )
    if record["config_hash"] != path.parent.name or _hash_of(record) != path.parent.name:
        raise ValueError("the record is of another configuration than its folder name")
    if str(record["seed"]) != path.stem:
        raise ValueError("the record is of another seed than its file name")
    return record


def _parsed(path: Path) -> Any:
    """Parse strict JSON: no NaN, and no extreme nesting."""
    try:
        require_readable(path)
        if path.stat().st_size > MOST_BYTES:
            raise ValueError(f"larger than {MOST_BYTES:,} bytes")
        content = path.read_bytes()
    except OSError as error:  # a folder, a broken link, or missing permissions
        raise ValueError(f"not readable: {reason(error)}") from None
    try:
        return json.loads(content, parse_constant=_no_number)
    except (ValueError, RecursionError):
        raise ValueError("not valid JSON") from None


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is not a number")


def _hash_of(record: Record) -> str:
    return config_hash(record["config"], record["unhashed"], record["revisions"])
