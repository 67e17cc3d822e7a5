"""Keep results in a bucket: a study works in a local folder, and its files are copied to the bucket."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

from pyarrow import fs

from hagmeta.common.errors import UserError
from hagmeta.common.files.home import home
from hagmeta.common.patience import within

# The logs of Ray stay local.
FOLDERS = ("runs", "failed", "launches", "searches", "embeddings", "predictions", "report")
# Copied again at the end of each launch.
CHANGING = ("report/", "comparison/", "searches/", "optuna.log", "best")
PATIENCE = 30.0  # seconds until the first answer of a bucket

T = TypeVar("T")


class Mirror:
    """Copies a study between a local folder and a bucket (``s3://``, ``gs://`` and others that Arrow reads).

    There is no lock: two machines must not launch the same study into the same bucket at once.
    """

    def __init__(self, uri: str, study: str) -> None:
        self.uri = uri
        if "@" in urlsplit(uri).netloc:
            raise UserError(
                "--results contains credentials, which would be saved in files; set them in the environment "
                "(AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY) or in a profile."
            )
        self.folder = home() / "remote" / hashlib.sha256(uri.encode()).hexdigest()[:12] / study
        try:
            self._bucket, path = _soon(lambda: fs.FileSystem.from_uri(uri))
        except (OSError, ValueError) as error:
            raise UserError(f"--results {uri}: {_first_line(error)}.") from None
        if not path:
            raise UserError(f"--results {uri} names no bucket; expected a path such as {uri}BUCKET/FOLDER.")
        self._path = f"{path.rstrip('/')}/{study}"
        self._remote = fs.SubTreeFileSystem(self._path, self._bucket)
        self._local = fs.SubTreeFileSystem(str(self.folder), fs.LocalFileSystem())

    def fetch(self, *, make: bool = True) -> None:
        """Copy files that only the bucket has to this machine; if `make`, create the folder in the bucket."""
        try:
            _soon(lambda: self._bucket.get_file_info(self._path))
            if make:
                self._bucket.create_dir(
                    self._path, recursive=True
                )  # a missing permission fails now, not after hours
            for name in _names(self._remote) - _names(self._local):
                _copy(name, self._remote, self._local)
        except OSError as error:
            raise UserError(f"cannot reach --results {self.uri}: {_first_line(error)}.") from None

    def send(self, path: Path) -> None:
        """Copy one file to the bucket; if that fails, ``send_all`` copies it later."""
        with contextlib.suppress(OSError):
            _copy(path.relative_to(self.folder).as_posix(), self._local, self._remote)

    def send_all(self) -> None:
        """Copy all files that are missing in the bucket or have changed."""
        try:
            there = _names(self._remote)
            for name in sorted(_names(self._local)):
                if name not in there or name.startswith(CHANGING):
                    _copy(name, self._local, self._remote)
        except OSError as error:
            raise UserError(
                f"cannot write to --results {self.uri}: {_first_line(error)}. All results are in "
                f"{self.folder}; repeat the command to copy them."
            ) from None


def _soon(ask: Callable[[], T]) -> T:
    """Return the result of `ask`, or give up after PATIENCE."""
    return within(PATIENCE, ask, "; check the network and the bucket's name")


def _names(files: fs.SubTreeFileSystem) -> set[str]:
    """Return the files that both sides should have."""
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
