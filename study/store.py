"""Records on disk: one file a run, written whole, found again by configuration and seed."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from hagmeta.common.errors import UserError
from hagmeta.common.files import written_whole
from hagmeta.common.records import Record, RunKey, StudyFolder, read_record

MOST_LETTERS = 200  # of a path in an error


@dataclass
class Scan:
    """What a folder holds: finished runs, and files set aside because they are not what they should be."""

    done: set[RunKey] = field(default_factory=set)
    aside: list[str] = field(default_factory=list)


class Store(StudyFolder):
    """A study's folder to write to, by one launch at a time."""

    def __init__(
        self,
        folder: Path,
        written: Callable[[Path], object] = lambda path: None,
        graphs: Mapping[str, str] | None = None,
    ) -> None:
        """``written`` is told of every file; ``graphs`` has the fingerprints of datasets as they are now."""
        super().__init__(folder)
        self._written = written
        self.graphs = dict(graphs or {})

    def check_path(self) -> None:
        """Refuse a folder in which there can be no files."""
        longest = self.embeddings / ("x" * 100)
        try:
            os.stat(os.path.abspath(longest))
        except FileNotFoundError:  # it can be made
            pass
        except OSError as error:
            raise UserError(_not_written(self.folder, error)) from None

    @contextmanager
    def locked(self) -> Iterator[None]:
        """One launch at a time; the lock ends with its process, however that ends."""
        try:
            self.runs.mkdir(parents=True, exist_ok=True)
            lock = FileLock(self.folder / ".lock", timeout=0)
            lock.acquire()
        except Timeout:
            raise UserError(
                f"another launch is working on {self.folder}; wait for it, or give another --results folder."
            ) from None
        except OSError as error:
            raise UserError(_not_written(self.folder, error)) from None
        try:
            yield
        finally:
            lock.release()

    def scan(self, *, set_aside: bool = True) -> Scan:
        """Read every record; what cannot be trusted is moved to ``aside/`` and will be run again."""
        found = Scan()
        for path in self.record_files():
            try:
                record = self._read(path)
                found.done.add((record["config_hash"], record["seed"]))
            except ValueError as error:
                if not set_aside:
                    continue
                target = self._set_aside(path)
                found.aside.append(f"{path.relative_to(self.folder)}: {error}; now {target}")
        return found

    def records(self) -> list[Record]:
        return [read_record(path) for path in self.record_files()]

    def find(self, key: RunKey) -> Record | None:
        """A run's record, if it is there, whole, and of the graph that its dataset is now."""
        try:
            return self._read(self.runs / key[0] / f"{key[1]}.json")
        except ValueError:
            return None

    def _read(self, path: Path) -> Record:
        record = read_record(path)
        graph = self.graphs.get(record["config"].get("dataset", ""))
        # Records from before fingerprints were kept are taken at their word.
        if graph is not None and record.get("data", graph) != graph:
            raise ValueError(f"of another graph than {record['config']['dataset']} is now")
        return record

    def _set_aside(self, path: Path) -> Path:
        folder = self.folder / "aside"
        folder.mkdir(exist_ok=True)
        again = next(n for n in count() if not os.path.lexists(folder / _aside_name(path, n)))
        target = folder / _aside_name(path, again)
        os.replace(path, target)
        return target

    def write(self, record: Record) -> None:
        """Whole or not at all; a failure of the same run is no longer one."""
        name = Path(record["config_hash"]) / f"{record['seed']}.json"
        self._write(self.runs / name, json.dumps(record).encode())
        (self.failures / name).unlink(missing_ok=True)

    def write_failure(self, key: RunKey, config: dict[str, Any], error: str) -> Path:
        """The log of a run that failed, or of a try of it; returns its file."""
        content = {"config": config, "config_hash": key[0], "seed": key[1], "error": error}
        path = self.failures / key[0] / f"{key[1]}.json"
        self._write(path, json.dumps(content).encode())
        return path

    def write_launch(self, launch: dict[str, Any]) -> None:
        """What was asked for, so that what is missing can be named; the same launch again is one file."""
        wanted = json.dumps([sorted(launch["configs"]), launch["seeds"]])
        name = hashlib.sha256(wanted.encode()).hexdigest()[:16]
        self._write(self.launches / f"{name}.json", json.dumps(launch).encode())

    def write_embeddings(self, key: RunKey, session: int, content: bytes) -> None:
        self._write(self.embeddings_of(key, session), content)

    def write_predictions(self, key: RunKey, content: bytes) -> None:
        """Before the run's record, so that a record that is there has them."""
        self._write(self.predictions_of(key), content)

    def _write(self, path: Path, content: bytes) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with written_whole(path) as partial:
            partial.write_bytes(content)
        self._written(path)


def _not_written(folder: Path, error: OSError) -> str:
    return f"--results {str(folder)[:MOST_LETTERS]} cannot be written: {error.strerror or error}."


def _aside_name(path: Path, again: int) -> str:
    """Of a record's file; ``again`` tells those apart that a run was left with before."""
    return f"{path.parent.name}-{path.stem}{f'-{again}' if again else ''}.json"
