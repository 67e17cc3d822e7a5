"""Files and folders that are there whole or not at all, whatever happens meanwhile."""

from __future__ import annotations

import glob
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


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


def _partial(path: Path) -> Path:
    """Beside ``path``, and nobody else's: not another thread's, nor a machine's that shares the disk."""
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
