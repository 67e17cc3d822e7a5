"""The dataset that a process works on: kept from one trial to the next, as most of them share it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from hagmeta import datasets
from hagmeta.common.home import home
from hagmeta.datasets.base import Dataset

Identity = tuple[object, ...]

_lent: dict[str, Dataset] = {}  # graphs in memory, and files of another machine, by name: see `lend`
_kept: dict[Identity, Dataset] = {}  # the last one alone: others may need the memory


def load(name: str) -> Dataset:
    """Load a dataset, unless it is the one loaded last and its files are the same."""
    if name in _lent:
        return _lent[name]
    key = identity(name)
    if key not in _kept:
        _kept.clear()
        _kept[key] = datasets.load(name, home() / "data")
    return _kept[key]


def lend(graphs: Mapping[str, Dataset]) -> None:
    """Let `load` find graphs that this process cannot read from files."""
    _lent.update(graphs)
    for graph in graphs.values():
        datasets.name_of(graph)  # a graph in memory can then be described by its name


@contextmanager
def lending(graphs: Mapping[str, Dataset]) -> Iterator[None]:
    """Lend graphs for as long as the context lasts."""
    before = dict(_lent)
    lend(graphs)
    try:
        yield
    finally:
        _lent.clear()
        _lent.update(before)


def in_memory(names: Iterable[str]) -> dict[str, Dataset]:
    """Of some datasets, those that were lent to this process."""
    return {name: _lent[name] for name in dict.fromkeys(names) if name in _lent}


def own_files(names: Iterable[str]) -> dict[str, Dataset]:
    """Of some datasets those that are files at hand, loaded."""
    return {name: load(name) for name in dict.fromkeys(names) if datasets.files_at_hand(name)}


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
