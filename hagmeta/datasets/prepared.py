"""Prepare datasets that are slow to load: write plain arrays once, and memory-map them later.

Memory-mapped arrays load instantly, are read from disk only as needed, and are shared by all processes of a
machine. The name of a folder contains a hash of its source. You may delete these folders at any time.
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

from hagmeta.common.files.files import folder_written_whole
from hagmeta.datasets.base import Dataset
from hagmeta.datasets.clean import one_line
from hagmeta.datasets.formats import npz

FORMAT = 2  # increase it when the same source gives different arrays
CONTENTS = "contents.json"


def load(name: str, made_from: Sequence[str], folder: Path, read: Callable[[], Dataset]) -> Dataset:
    """Return the prepared dataset. The first process prepares it with ``read``; others wait.

    Args:
        name: The name of the dataset.
        made_from: What identifies the source, such as hashes of files.
        folder: The folder of prepared datasets.
        read: A function that loads the dataset from its source.
    """
    place = folder / _folder_name(name, made_from)
    dataset = _open(place, name)
    if dataset is not None:
        return dataset
    with ExitStack() as lock:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lock.enter_context(FileLock(folder / f".{place.name}.lock"))
        except (OSError, NotImplementedError) as error:  # a read-only disk, or one without locks
            _say(f"{name}: cannot write prepared arrays to {folder} ({one_line(error)}); loading the source.")
            return read()
        dataset = _open(place, name)
        if dataset is not None:
            return dataset
        damaged = f"{place} is damaged. " if place.exists() else ""
        _say(f"{damaged}Preparing {name} in {place}; later runs load it from there.")
        dataset = read()
        try:
            _write(dataset, made_from, place)
        except OSError as error:
            free = f"{shutil.disk_usage(folder).free / 1e6:,.0f} MB free"  # numpy does not report a full disk
            _say(
                f"{name}: cannot write prepared arrays to {folder} ({one_line(error)}; {free}); "
                "continuing without them."
            )
            return dataset
    return _open(place, name) or dataset


def file_identity(path: Path) -> str:
    """Return a text that identifies a file without reading it: path, size and modification time."""
    status = path.stat()
    return f"{path.resolve()} {status.st_size} {status.st_mtime_ns}"


def _folder_name(name: str, made_from: Sequence[str]) -> str:
    """Return the name of the dataset or its file, followed by a hash of ``made_from``."""
    called = re.sub(r"\W+", "-", re.split("[:/]", name)[-1])[:40]
    return f"{called}-{hashlib.sha256(json.dumps([FORMAT, *made_from]).encode()).hexdigest()[:16]}"


def _say(line: str) -> None:
    print(line, file=sys.stderr)


def _open(place: Path, name: str) -> Dataset | None:
    """Memory-map the arrays in ``place``; return None if they are missing or incomplete."""
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
            node_ids=contents.get("node_ids") and tuple(contents["node_ids"]),
            feature_names=contents.get("feature_names") and tuple(contents["feature_names"]),
            kind=contents["kind"],
            class_order=arrays.get("class_order"),
            supports=arrays.get("supports"),
        )
        # Fill the cached properties, so that nothing is built or hashed again.
        vars(dataset).update(
            adjacency=_csr(arrays, "adjacency", (nodes, nodes)), fingerprint=contents["fingerprint"]
        )
        return dataset
    except Exception:  # damaged bytes make json and numpy raise many kinds of errors
        return None


def _map(path: Path, size: int) -> np.ndarray:
    if path.stat().st_size != size:
        raise ValueError(f"{path} has the wrong size")
    # Copy on write: torch accepts such arrays without a copy, and the file never changes.
    return np.asarray(np.load(path, mmap_mode="c"))


def _csr(arrays: dict[str, np.ndarray], key: str, shape: tuple[int, int]) -> scipy.sparse.csr_matrix:
    parts = tuple(arrays[f"{key}_{part}"] for part in ("data", "indices", "indptr"))
    matrix = scipy.sparse.csr_matrix(parts, shape=shape, copy=False)
    matrix.has_canonical_format = True  # true when written; a check would read the whole file
    return matrix


def _write(dataset: Dataset, made_from: Sequence[str], place: Path) -> None:
    """Write the arrays atomically, replacing a damaged folder. The caller holds the lock."""
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
            "kind": dataset.kind,
            "class_names": dataset.class_names,
            **{key: getattr(dataset, key) for key in npz.NAMES if getattr(dataset, key) is not None},
            "bytes": {key: (partial / f"{key}.npy").stat().st_size for key in arrays},
        }
        (partial / CONTENTS).write_text(json.dumps(contents, indent=1) + "\n")


def _arrays(dataset: Dataset) -> dict[str, np.ndarray]:
    arrays = {"edges": dataset.edges, "labels": dataset.labels, **dataset.fixed}
    matrices = {"adjacency": dataset.adjacency}
    if isinstance(dataset.features, np.ndarray):
        arrays["features"] = dataset.features
    else:
        matrices["features"] = dataset.features
    for key, matrix in matrices.items():
        matrix.sum_duplicates()  # also sorts the indices
        arrays |= {f"{key}_{part}": getattr(matrix, part) for part in ("data", "indices", "indptr")}
    return arrays
