"""Datasets that are slow to load, prepared once: plain arrays in a folder, which every later load maps.

Mapped arrays take no time to load, are read from disk as far as they are used, and are shared by all
processes of a machine. A folder is named after what it was made from, and may be deleted at any time.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from filelock import FileLock

from hagmeta.common.files import folder_written_whole
from hagmeta.datasets.base import Dataset
from hagmeta.datasets.clean import one_line

FORMAT = 1  # raise it when the same source would give other arrays
CONTENTS = "contents.json"


def load(name: str, made_from: Sequence[str], folder: Path, read: Callable[[], Dataset]) -> Dataset:
    """The dataset that ``read`` reads, out of ``folder``. The first process prepares it, others wait."""
    place = folder / _folder_name(name, made_from)
    dataset = _open(place, name)
    if dataset is not None:
        return dataset
    with ExitStack() as lock:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lock.enter_context(FileLock(folder / f".{place.name}.lock"))
        except (OSError, NotImplementedError) as error:  # read-only, or without locks
            _say(f"{name} cannot be prepared in {folder} ({one_line(error)}); loading it as it is.")
            return read()
        dataset = _open(place, name)
        if dataset is not None:
            return dataset
        damaged = f"{place} is damaged. " if place.exists() else ""
        _say(f"{damaged}Preparing {name} for this and all later runs in {place}")
        dataset = read()
        try:
            _write(dataset, made_from, place)
        except OSError as error:
            free = (
                f"{shutil.disk_usage(folder).free / 1e6:,.0f} MB free"  # numpy does not say that it is full
            )
            _say(f"{name} could not be written to {folder} ({one_line(error)}; {free}); going on without.")
            return dataset
    return _open(place, name) or dataset


def file_identity(path: Path) -> str:
    """Names the content of a file, as far as it can be told without reading it."""
    status = path.stat()
    return f"{path.resolve()} {status.st_size} {status.st_mtime_ns}"


def _folder_name(name: str, made_from: Sequence[str]) -> str:
    """Begins as the dataset or its file is called; the rest stands for all that it was made from."""
    called = re.sub(r"\W+", "-", re.split("[:/]", name)[-1])[:40]
    return f"{called}-{hashlib.sha256(json.dumps([FORMAT, *made_from]).encode()).hexdigest()[:16]}"


def _say(line: str) -> None:
    print(line, file=sys.stderr)


def _open(place: Path, name: str) -> Dataset | None:
    """Map what is there; None if that is nothing, or not all that was written."""
    try:
        contents = json.loads((place / CONTENTS).read_text())
        arrays = {key: _map(place / f"{key}.npy", size) for key, size in contents["bytes"].items()}
        nodes, features = len(arrays["labels"]), contents["features"]
        dataset = Dataset(
            name,
            arrays["edges"],
            arrays["labels"],
            arrays["features"] if "features" in arrays else _csr(arrays, "features", (nodes, features)),
            tuple(contents["class_names"]),
        )
        # They take the place of the cached properties: nothing is built or hashed again.
        vars(dataset).update(
            adjacency=_csr(arrays, "adjacency", (nodes, nodes)), fingerprint=contents["fingerprint"]
        )
        return dataset
    except Exception:  # damaged bytes make json and numpy raise nearly anything
        return None


def _map(path: Path, size: int) -> np.ndarray:
    if path.stat().st_size != size:
        raise ValueError(f"{path} is not as it was written")
    # Copy on write, not read-only: torch takes such an array as it is, and the file can never change.
    return np.asarray(np.load(path, mmap_mode="c"))


def _csr(arrays: dict[str, np.ndarray], key: str, shape: tuple[int, int]) -> scipy.sparse.csr_matrix:
    parts = tuple(arrays[f"{key}_{part}"] for part in ("data", "indices", "indptr"))
    matrix = scipy.sparse.csr_matrix(parts, shape=shape, copy=False)
    matrix.has_canonical_format = True  # as it was written; asking would read all of it
    return matrix


def _write(dataset: Dataset, made_from: Sequence[str], place: Path) -> None:
    """Whole or not at all, in place of a damaged one; the caller holds the lock."""
    with folder_written_whole(place) as partial:
        arrays = _arrays(dataset)
        for key, array in arrays.items():
            with (partial / f"{key}.npy").open("wb") as file:
                np.save(file, array)
        contents: dict[str, Any] = {
            "format": FORMAT,
            "made_from": list(made_from),
            "fingerprint": dataset.fingerprint,
            "features": dataset.num_features,
            "class_names": dataset.class_names,
            "bytes": {key: (partial / f"{key}.npy").stat().st_size for key in arrays},
        }
        (partial / CONTENTS).write_text(json.dumps(contents, indent=1) + "\n")


def _arrays(dataset: Dataset) -> dict[str, np.ndarray]:
    arrays = {"edges": dataset.edges, "labels": dataset.labels}
    matrices = {"adjacency": dataset.adjacency}
    if isinstance(dataset.features, np.ndarray):
        arrays["features"] = dataset.features
    else:
        matrices["features"] = dataset.features
    for key, matrix in matrices.items():
        matrix.sum_duplicates()  # sorts, too
        arrays |= {f"{key}_{part}": getattr(matrix, part) for part in ("data", "indices", "indptr")}
    return arrays
