"""A study's records as files: what a run is called, where it lies, and whether what lies there is whole."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, Required, TypedDict, cast

from hagmeta.common.files import reason, require_readable
from hagmeta.common.record_schema import problem_of

RunKey = tuple[str, int]  # configuration hash, seed
MOST_BYTES = 20_000_000  # of a record; hundreds of sessions and classes stay below a tenth of it


class Record(TypedDict, total=False):
    """One run: one configuration, one seed. ``record-1.schema.json`` describes each key.

    Older records lack keys that are not required. Metrics of one's own and methods' diagnostics have names
    that are known only when the program runs: for those, `opened` gives an `OpenRecord`.
    """

    config: Required[dict[str, Any]]
    config_hash: Required[str]
    seed: Required[int]
    accuracy: Required[list[float]]
    matrix: Required[list[list[float | None]]]
    pd: Required[float]
    rpd: Required[float | None]
    validation: Required[dict[str, float | None] | None]
    seconds: Required[dict[str, float]]
    format: int
    data: str
    given: list[str]
    unhashed: list[str]
    births: dict[str, Any]
    revisions: dict[str, int]
    traits: dict[str, Any]  # of the configured method: see `hagmeta.common.traits`
    metrics: dict[str, dict[str, Any]]  # how each is called and shown
    leaks: bool
    oracle: bool
    base_accuracy: list[float]
    novel_accuracy: list[float | None]
    new_accuracy: list[float | None]
    harmonic: list[float | None]
    average_accuracy: float
    forgetting: list[float | None]
    backward_transfer: float | None
    macro_accuracy: list[float]
    macro_f1: list[float]
    macro_base_accuracy: list[float]
    macro_novel_accuracy: list[float | None]
    macro_harmonic: list[float | None]
    class_accuracy: list[list[float | None]]
    classes_met: list[int]
    environment: dict[str, Any]


OpenRecord = dict[str, Any]  # a record that is read by any name


def opened(record: Record) -> OpenRecord:
    """Return the same record, to be read by any name."""
    return cast(OpenRecord, record)


class StudyFolder:
    """``FOLDER/runs/<configuration hash>/<seed>.json`` and what lies beside it; folders merge by copying."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.runs = folder / "runs"
        self.failures = folder / "failed"
        self.launches = folder / "launches"
        self.embeddings = folder / "embeddings"
        self.predictions = folder / "predictions"
        self.checkpoints = folder / "checkpoints"  # of trials that were cut off

    def record_files(self) -> Iterator[Path]:
        """Every finished run's, in order."""
        yield from sorted(self.runs.glob("*/*.json"))

    def embeddings_of(self, key: RunKey, session: int) -> Path:
        return self.embeddings / key[0] / f"{key[1]}-{session}.npz"

    def predictions_of(self, key: RunKey) -> Path:
        """Runs of the first versions have none: a record is whole without."""
        return self.predictions / key[0] / f"{key[1]}.npz"


def config_hash(
    config: Mapping[str, Any],
    unhashed: Collection[str] = (),
    revisions: Mapping[str, int] | None = None,
) -> str:
    """Names a configuration, as a record holds it.

    Settings that are younger than a configuration's name stay out of it while they say what was so before
    them (``unhashed``). What has been revised, such as a dataset's preparation, is told by its number.
    """
    hashed = {name: value for name, value in config.items() if name not in unhashed}
    if revisions:
        hashed["revisions"] = dict(revisions)
    text = json.dumps(hashed, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def read_record(path: Path) -> Record:
    """A record that is whole and stands where it belongs, or a ValueError that says what is wrong."""
    content = _parsed(path)
    if not isinstance(content, dict):
        raise ValueError("not a record")
    problem = problem_of(content)
    if problem:
        raise ValueError(problem)
    record = cast(Record, content)
    if record["config_hash"] != path.parent.name or _hash_of(record) != path.parent.name:
        raise ValueError("of another configuration than its folder's")
    if str(record["seed"]) != path.stem:
        raise ValueError("of another seed than its name's")
    return record


def _parsed(path: Path) -> Any:
    """What a file holds, of plain JSON: no NaN, nothing nested without end."""
    try:
        require_readable(path)
        if path.stat().st_size > MOST_BYTES:
            raise ValueError(f"larger than {MOST_BYTES:,} bytes")
        content = path.read_bytes()
    except OSError as error:  # a folder, a link to nothing, no right to read it
        raise ValueError(f"not readable: {reason(error)}") from None
    try:
        return json.loads(content, parse_constant=_no_number)
    except (ValueError, RecursionError):
        raise ValueError("not whole") from None


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is no number")


def _hash_of(record: Record) -> str:
    # Records from before these keys have hashed every setting, of what was not revised yet.
    return config_hash(record["config"], record.get("unhashed", ()), record.get("revisions"))
