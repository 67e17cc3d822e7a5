"""Files and folders that are there whole or not at all, whatever happens meanwhile."""

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
    """A place to write a file to; it takes the place of ``path`` once all went well.

    Any number may write one file at once: the last to finish stays.
    """
    partial = _partial(path)
    try:
        yield partial
        _sync(partial)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def folder_written_whole(path: Path) -> Iterator[Path]:
    """An empty folder to fill; it takes the place of ``path`` once all went well.

    One at a time: the caller holds a lock. What killed ones have left behind is cleared away.
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
    """A path as a user writes it, with ``~`` for a home folder."""
    try:
        return Path(text).expanduser()
    except (RuntimeError, ValueError) as error:  # ~ of a user that there is not, or with a NUL
        raise UserError(f"{text}: this is no usable path ({error}).") from None


def require_readable(path: Path) -> None:
    """Raise an OSError unless a file is there to be read; to open a FIFO would wait without end."""
    try:
        mode = path.stat().st_mode
    except ValueError as error:  # a NUL in its name
        raise FileNotFoundError(str(error)) from None
    if stat.S_ISDIR(mode):
        raise IsADirectoryError("it is a folder")
    if not stat.S_ISREG(mode):
        raise OSError("it is not a regular file")


def check_writable(option: str, path: Path) -> None:
    """Find out before the work, not after it, whether `written_whole` can write a file."""
    with writing(option, path):
        with suppress(FileNotFoundError):
            require_readable(path)  # a device or FIFO would be replaced by a file
        if not path.parent.is_dir():
            raise FileNotFoundError(f"there is no folder {path.parent}")
        partial = _partial(path)
        try:
            partial.touch()
        except ValueError as error:
            raise OSError(str(error)) from None
        partial.unlink()


@contextmanager
def writing(option: str, path: Path) -> Iterator[None]:
    """Say in one line that the file of an option cannot be written."""
    try:
        yield
    except OSError as error:
        raise UserError(f"{option} {path} cannot be written: {reason(error)}.") from None


def reason(error: OSError) -> str:
    """What an error of the system says, without the path."""
    return error.strerror or " ".join(str(error).split())


def _partial(path: Path) -> Path:
    """Beside ``path``, and nobody else's: not another thread's, nor a machine's that shares the disk."""
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
