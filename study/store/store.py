"""Store records on disk: one file per run, written atomically, found by configuration and seed."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from hagmeta.common.errors import UserError
from hagmeta.common.files.files import written_whole
from hagmeta.common.records.records import OfOtherVersion, Record, RunKey, StudyFolder, read_record

MOST_LATEST = 200  # records
MOST_LETTERS = 200  # of a path in an error


@dataclass
class Scan:
    """Ended runs of a folder, and messages on files that were moved aside because they are unusable."""

    done: set[RunKey] = field(default_factory=set)
    diverged: set[RunKey] = field(default_factory=set)
    aside: list[str] = field(default_factory=list)


class Store(StudyFolder):
    """The folder of a study, written by one launch at a time."""

    def __init__(
        self,
        folder: Path,
        written: Callable[[Path], object] = lambda path: None,
        graphs: Mapping[str, str] | None = None,
    ) -> None:
        """Open a folder.

        Args:
            folder: The folder of the study.
            written: Called with the path of each file after it is written.
            graphs: The current fingerprints of datasets, by name.
        """
        super().__init__(folder)
        self.status = folder / "status.json"  # of the launch that runs, for other terminals
        self._written = written
        self.graphs = dict(graphs or {})

    def check_path(self) -> None:
        """Refuse a folder that cannot hold the files of a study, such as one with too long a path."""
        longest = self.embeddings / ("x" * 100)
        try:
            os.stat(os.path.abspath(longest))
        except FileNotFoundError:  # it can be created
            pass
        except OSError as error:
            raise UserError(_not_written(self.folder, error)) from None

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock of the folder; it is also released when the process dies."""
        try:
            self.runs.mkdir(parents=True, exist_ok=True)
            lock = FileLock(self.folder / ".lock", timeout=0)
            lock.acquire()
        except Timeout:
            raise UserError(
                f"another launch is using {self.folder}; wait for it to end, or use another --results folder."
            ) from None
        except OSError as error:
            raise UserError(_not_written(self.folder, error)) from None
        try:
            yield
        finally:
            lock.release()

    def is_in_use(self) -> bool:
        """Return whether a launch holds the lock of the folder."""
        try:
            with FileLock(self.folder / ".lock", timeout=0):
                return False
        except Timeout:
            return True
        except OSError:  # another user's folder: it has no launch of ours
            return False

    def nothing_since_launch(self) -> bool:
        """Return whether no run has finished or failed since the newest launch or search began."""
        began = [path.stat().st_mtime_ns for path in self.launches.glob("*.json")]
        ended = [path.stat().st_mtime_ns for part in (self.runs, self.failures) for path in part.glob("*/*")]
        return max(began, default=0) >= max(ended, default=0)

    def asked(self) -> list[dict[str, Any]]:
        """Return the records of launches, the newest first."""
        found = [json.loads(path.read_bytes()) for path in self.launches.glob("*.json")]
        return sorted(found, key=lambda launch: str(launch["time"]), reverse=True)

    def scan(self, *, set_aside: bool = True) -> Scan:
        """Read every record and return the finished runs, and those that diverged.

        Args:
            set_aside: Whether to move unusable records to ``aside/``, so that their runs start again.

        Raises:
            OfOtherVersion: Another version has written a record, and can read it.
        """
        found = Scan()
        for path in self.record_files():
            try:
                record = self._read(path)
                found.done.add((record["config_hash"], record["seed"]))
            except OfOtherVersion:
                raise
            except ValueError as error:
                if not set_aside:
                    continue
                target = self._set_aside(path)
                found.aside.append(f"{path.relative_to(self.folder)}: {error}; moved to {target}")
        logs = [path for path in self.failures.glob("*/*.json") if path.stem.isdigit()]
        keys = {(path.parent.name, int(path.stem)) for path in logs}
        found.diverged = {key for key in keys - found.done if self.why_diverged(key)}
        return found

    def records(self) -> list[Record]:
        return [read_record(path) for path in self.record_files()]

    def latest(self) -> Iterator[Record]:
        """Yield the latest records, which tell how long runs take."""
        files = sorted(self.record_files(), key=lambda path: path.stat().st_mtime, reverse=True)
        for path in files[:MOST_LATEST]:
            with suppress(ValueError):  # damaged: a scan moves it aside
                yield self._read(path)

    def find(self, key: RunKey) -> Record | None:
        """Return the record of a run, or None if it is missing, damaged, or of an older graph."""
        try:
            return self._read(self.runs / key[0] / f"{key[1]}.json")
        except ValueError:
            return None

    def why_diverged(self, key: RunKey) -> str:
        """Return why a run diverged; nothing if it did not, or if it was on an older graph.

        It would diverge again, so it does not run again.
        """
        content = self._failure(key)
        return str(content["error"]) if content.get("diverged") and self._is_current(content) else ""

    def why_failed(self, key: RunKey) -> str:
        """Return why the last attempt of a run failed, or nothing."""
        return str(self._failure(key).get("error", ""))

    def failure_file(self, key: RunKey) -> Path:
        """Return the file with the traceback of a failed run or, if it diverged, with the reason."""
        path = self.failures / key[0] / f"{key[1]}.json"
        text = path.with_suffix(".txt")
        return text if text.exists() else path

    def _failure(self, key: RunKey) -> dict[str, Any]:
        """Return what the store knows of a failed run; nothing if it did not fail or the file is damaged."""
        try:
            content = json.loads((self.failures / key[0] / f"{key[1]}.json").read_bytes())
            return content if {"error", "config"} <= content.keys() else {}
        except (OSError, ValueError, AttributeError):
            return {}

    def _read(self, path: Path) -> Record:
        record = read_record(path)
        if not self._is_current(record):
            raise ValueError(f"the graph {record['config']['dataset']} has changed since this run")
        return record

    def _is_current(self, content: Mapping[str, Any]) -> bool:
        """Return whether a file is of the current graph. The log of a failure may not say of which it is."""
        graph = self.graphs.get((content["config"] or {}).get("dataset", ""))
        return graph is None or content.get("data", graph) == graph

    def _set_aside(self, path: Path) -> Path:
        folder = self.folder / "aside"
        folder.mkdir(exist_ok=True)
        again = next(n for n in count() if not os.path.lexists(folder / _aside_name(path, n)))
        target = folder / _aside_name(path, again)
        os.replace(path, target)
        return target

    def write(self, record: Record) -> None:
        """Write a record atomically, and remove what says that an attempt of this run failed."""
        name = Path(record["config_hash"]) / f"{record['seed']}.json"
        self._write(self.runs / name, json.dumps(record).encode())
        for suffix in (".json", ".txt"):
            (self.failures / name).with_suffix(suffix).unlink(missing_ok=True)

    def write_failure(
        self,
        key: RunKey,
        config: Mapping[str, Any],
        reason: str,
        *,
        traceback: str = "",
        diverged: bool = False,
    ) -> Path:
        """Write why an attempt of a run failed, and return the file to read.

        Args:
            key: The run.
            config: Its settings.
            reason: The error in one line.
            traceback: Where it happened, in a text file of its own.
            diverged: Whether the run diverged, and would do so again.
        """
        content = {"config": config, "config_hash": key[0], "seed": key[1], "error": reason}
        content |= {"diverged": diverged}
        if graph := self.graphs.get(config.get("dataset", "")):
            content["data"] = graph
        path = self.failures / key[0] / f"{key[1]}.json"
        self._write(path, json.dumps(content).encode())
        if not traceback:
            return path
        title = f"{config['method']} on {config['dataset']}, seed {key[1]}, configuration {key[0]}"
        self._write(path.with_suffix(".txt"), f"{title}\n\n{traceback.strip()}\n".encode())
        return path.with_suffix(".txt")

    def write_launch(self, launch: dict[str, Any]) -> None:
        """Write what a launch asked for, so that missing runs can be named; equal launches share a file."""
        # Folders that are merged may have the same runs, described in other words.
        described = [launch["description"]] if launch.get("description") else []
        wanted = json.dumps([sorted(launch["configs"]), launch["seeds"], *described])
        name = hashlib.sha256(wanted.encode()).hexdigest()[:16]
        self._write(self.launches / f"{name}.json", json.dumps(launch).encode())

    def write_search(self, search: dict[str, Any]) -> None:
        """Write the samples of a search, for reports."""
        self._write(self.searches / f"{search['name']}.json", json.dumps(search).encode())

    def write_embeddings(self, key: RunKey, session: int, content: bytes) -> None:
        self._write(self.embeddings_of(key, session), content)

    def write_predictions(self, key: RunKey, content: bytes) -> None:
        """Write the predictions of a run, before its record: then every record has predictions."""
        self._write(self.predictions_of(key), content)

    def _write(self, path: Path, content: bytes) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with written_whole(path) as partial:
            partial.write_bytes(content)
        self._written(path)


def _not_written(folder: Path, error: OSError) -> str:
    return f"--results {str(folder)[:MOST_LETTERS]} cannot be written: {error.strerror or error}."


def _aside_name(path: Path, again: int) -> str:
    """Return the name of a record in ``aside/``; `again` numbers several records of one run."""
    return f"{path.parent.name}-{path.stem}{f'-{again}' if again else ''}.json"
