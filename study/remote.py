"""Results in a bucket: a study works in a local folder, and its files are copied out as they come."""

from __future__ import annotations

import contextlib
import hashlib
import queue
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar, cast
from urllib.parse import urlsplit

from pyarrow import fs

from hagmeta.common.errors import UserError
from hagmeta.common.home import home

FOLDERS = ("runs", "failed", "launches", "embeddings", "predictions", "report")  # Ray's own logs stay here
CHANGING = ("report/", "optuna.db", "best.yaml")  # copied again at the end of each launch
PATIENCE = 30.0  # seconds for a bucket's first answer

T = TypeVar("T")


class Mirror:
    """A study's folder in a bucket (``s3://``, ``gs://``: what Arrow reads) beside a local one.

    It knows no lock: two machines must not launch one study into one bucket at once.
    """

    def __init__(self, uri: str, study: str) -> None:
        self.uri = uri
        if "@" in urlsplit(uri).netloc:
            raise UserError(
                "--results holds credentials, which would be kept in files; give them by the environment "
                "(AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY) or a profile."
            )
        self.folder = home() / "remote" / hashlib.sha256(uri.encode()).hexdigest()[:12] / study
        try:
            self._bucket, path = _soon(lambda: fs.FileSystem.from_uri(uri))
        except (OSError, ValueError) as error:
            raise UserError(f"--results {uri}: {_first_line(error)}.") from None
        if not path:
            raise UserError(f"--results {uri} names no bucket; give one, such as {uri}BUCKET/FOLDER.")
        self._path = f"{path.rstrip('/')}/{study}"
        self._remote = fs.SubTreeFileSystem(self._path, self._bucket)
        self._local = fs.SubTreeFileSystem(str(self.folder), fs.LocalFileSystem())

    def fetch(self, *, make: bool = True) -> None:
        """Bring here what the bucket has and this machine has not; without ``make`` nothing is made there."""
        try:
            _soon(lambda: self._bucket.get_file_info(self._path))
            if make:
                self._bucket.create_dir(self._path, recursive=True)  # fails now, not after hours
            for name in _names(self._remote) - _names(self._local):
                _copy(name, self._remote, self._local)
        except OSError as error:
            raise UserError(f"--results {self.uri} cannot be reached: {_first_line(error)}.") from None

    def send(self, path: Path) -> None:
        """Copy one file out. Should that fail, ``send_all`` makes it good."""
        with contextlib.suppress(OSError):
            _copy(path.relative_to(self.folder).as_posix(), self._local, self._remote)

    def send_all(self) -> None:
        """Copy out what is missing there, and what has changed since."""
        try:
            there = _names(self._remote)
            for name in sorted(_names(self._local)):
                if name not in there or name.startswith(CHANGING):
                    _copy(name, self._local, self._remote)
        except OSError as error:
            raise UserError(
                f"--results {self.uri} could not be written: {_first_line(error)}. Everything is in "
                f"{self.folder}; the same command copies it."
            ) from None


def _soon(ask: Callable[[], T]) -> T:
    """What a bucket answers, within PATIENCE: without a network some clients go on trying for minutes."""
    outcome: queue.SimpleQueue[tuple[T | None, Exception | None]] = queue.SimpleQueue()

    def attempt() -> None:
        try:
            outcome.put((ask(), None))
        except Exception as error:  # for the caller
            outcome.put((None, error))

    threading.Thread(target=attempt, daemon=True).start()
    try:
        answer, error = outcome.get(timeout=PATIENCE)
    except queue.Empty:
        raise TimeoutError(
            f"no answer within {PATIENCE:.0f} seconds; check the network and the bucket's name"
        ) from None
    if error is not None:
        raise error
    return cast(T, answer)


def _names(files: fs.SubTreeFileSystem) -> set[str]:
    """The files that both sides should have."""
    found = files.get_file_info(fs.FileSelector("", recursive=True, allow_not_found=True))
    names = (info.path for info in found if info.type == fs.FileType.File)
    return {
        name
        for name in names
        if (name.startswith(CHANGING) or name.split("/")[0] in FOLDERS) and not name.endswith(".partial")
    }


def _copy(name: str, source: fs.SubTreeFileSystem, target: fs.SubTreeFileSystem) -> None:
    target.create_dir(name.rpartition("/")[0], recursive=True)
    fs.copy_files(name, name, source, target)


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0].rstrip(".")
