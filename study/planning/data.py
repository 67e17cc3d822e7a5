"""Load datasets in a process, and keep the last one because most trials share it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from hagmeta import datasets
from hagmeta.common.files.home import home
from hagmeta.datasets.base import Dataset

Identity = tuple[object, ...]

_lent: dict[str, Dataset] = {}  # graphs in memory and files of another machine, by name (see `lend`)
_kept: dict[Identity, Dataset] = {}  # only the last one, to save memory


def load(name: str) -> Dataset:
    """Load a dataset, unless it was loaded last and its files have not changed."""
    if name in _lent:
        return _lent[name]
    key = identity(name)
    if key not in _kept:
        _kept.clear()
        _kept[key] = datasets.load(name, home() / "data")
    return _kept[key]


def lend(graphs: Mapping[str, Dataset]) -> None:
    """Make `graphs` available to `load`, by name, in a process that cannot read them from files."""
    _lent.update(graphs)
    for graph in graphs.values():
        datasets.name_of(graph)  # a graph in memory can then be described by its name


@contextmanager
def lending(graphs: Mapping[str, Dataset]) -> Iterator[None]:
    """Make `graphs` available to `load` inside the context."""
    before = dict(_lent)
    lend(graphs)
    try:
        yield
    finally:
        _lent.clear()
        _lent.update(before)


def in_memory(names: Iterable[str]) -> dict[str, Dataset]:
    """Return those of the named datasets that were lent to this process."""
    return {name: _lent[name] for name in dict.fromkeys(names) if name in _lent}


def own_files(names: Iterable[str]) -> dict[str, Dataset]:
    """Load those of the named datasets that are local files."""
    return {name: load(name) for name in dict.fromkeys(names) if datasets.files_at_hand(name)}


def identity(name: str) -> Identity:
    """Return a key that changes with the files of a dataset; downloaded files never change."""
    files = datasets.files_at_hand(name)
    return (name, *((str(path.resolve()), *_version(path)) for path in files))


def _version(path: Path) -> tuple[int, ...]:
    try:
        status = path.stat()
    except OSError:  # loading reports it
        return ()
    return status.st_ino, status.st_size, status.st_mtime_ns
