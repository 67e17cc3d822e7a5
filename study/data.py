"""The dataset that a process works on: kept from one trial to the next, as most of them share it."""

from __future__ import annotations

from pathlib import Path

from hagmeta import datasets
from hagmeta.common.home import home
from hagmeta.datasets.base import NodeDataset

Identity = tuple[object, ...]

_kept: dict[Identity, NodeDataset] = {}  # the last one alone: others may need the memory


def load(name: str) -> NodeDataset:
    """Load a dataset, unless it is the one loaded last and its files are the same."""
    key = identity(name)
    if key not in _kept:
        _kept.clear()
        _kept[key] = datasets.load(name, home() / "data")
    return _kept[key]


def identity(name: str) -> Identity:
    """Changes when the files of a dataset do; those that are downloaded never do."""
    files = datasets.files_at_hand(name)
    return (name, *((str(path.resolve()), *_version(path)) for path in files))


def _version(path: Path) -> tuple[int, ...]:
    try:
        status = path.stat()
    except OSError:  # for loading to complain of
        return ()
    return status.st_ino, status.st_size, status.st_mtime_ns
