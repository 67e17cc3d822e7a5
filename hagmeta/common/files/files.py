"""Write files and folders atomically: either completely or not at all."""

from __future__ import annotations

import glob
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from hagmeta.common.errors import UserError


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write to. It replaces ``path`` if no error occurs.

    Several processes may write the same file at once; the last one to finish wins. A symbolic link stays, and
    the file that it leads to is replaced.
    """
    path = _followed(path)
    partial = _partial(path)
    try:
        yield partial
        _sync(partial)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def folder_written_whole(path: Path) -> Iterator[Path]:
    """Yield an empty temporary folder to fill. It replaces ``path`` if no error occurs.

    The caller must hold a lock. Leftovers of killed processes are removed.
    """
    for left_by_the_killed in path.parent.glob(f".{glob.escape(path.name)}.{'?' * 8}.partial"):
        shutil.rmtree(left_by_the_killed, ignore_errors=True)
    partial = _partial(path)
    try:
        partial.mkdir()
        yield partial
        for written in (*partial.rglob("*"), partial):
            _sync(written)
        shutil.rmtree(path, ignore_errors=True)
        partial.rename(path)
        _sync(path.parent)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def expanded(text: str) -> Path:
    """Return ``text`` as a path, with ``~`` replaced by the home folder."""
    try:
        return Path(text).expanduser()
    except (RuntimeError, ValueError) as error:  # ~ of an unknown user, or a NUL character
        raise UserError(f"{text}: not a valid path ({error}).") from None


def require_readable(path: Path) -> None:
    """Raise an OSError unless ``path`` is a regular file. Opening a FIFO would block forever."""
    try:
        mode = path.stat().st_mode
    except ValueError as error:  # a NUL in its name
        raise FileNotFoundError(str(error)) from None
    if stat.S_ISDIR(mode):
        raise IsADirectoryError("it is a folder")
    if not stat.S_ISREG(mode):
        raise OSError("it is not a regular file")


def check_writable(option: str, path: Path) -> None:
    """Raise an error if `written_whole` cannot write ``path``. Call this before the slow part."""
    with writing(option, path):
        with suppress(FileNotFoundError):
            require_readable(path)  # do not replace a device or FIFO by a file
        target = _followed(path)
        if not target.parent.is_dir():
            raise FileNotFoundError(f"there is no folder {target.parent}")
        partial = _partial(target)
        try:
            partial.touch()
        except ValueError as error:
            raise OSError(str(error)) from None
        partial.unlink()


@contextmanager
def writing(option: str, path: Path) -> Iterator[None]:
    """Turn an OSError into a UserError that names the option and the file."""
    try:
        yield
    except OSError as error:
        raise UserError(f"{option} {path} cannot be written: {reason(error)}.") from None


def reason(error: OSError) -> str:
    """Return the message of a system error without the path."""
    return error.strerror or " ".join(str(error).split())


def _followed(path: Path) -> Path:
    """Return the file that a symbolic link leads to, which may be missing, or ``path`` itself."""
    return Path(os.path.realpath(path)) if path.is_symlink() else path


def _partial(path: Path) -> Path:
    """Return a unique temporary path in the same folder, also across threads and machines."""
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
