"""The cache in which runs share slow results that depend only on data, settings and seed."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import NamedTuple

import numpy as np

from hagmeta.common.errors import UserError
from hagmeta.common.files.files import written_whole
from hagmeta.sparse.graph import Graph
from hagmeta.sparse.inputs import Inputs

# Raise this, and CACHE_VERSION of pretrain.py, when the inputs computed from the same features change.
INPUTS_VERSION = 1


class Cache(NamedTuple):
    """A cache folder, and the fingerprint of the dataset."""

    folder: Path
    fingerprint: str


def shared_inputs(kind: str, graph: Graph, visible: np.ndarray, cache: Cache | None) -> Inputs:
    """Return the inputs of a seed, computed from the nodes that are `visible` (nodes,) at the start.

    An SVD takes about a second, so it is stored in `cache`.
    """
    if cache is None or kind != "svd":
        return graph.inputs(kind, visible)
    digest = hashlib.sha256(f"inputs {INPUTS_VERSION} {kind} {cache.fingerprint}".encode())
    digest.update(np.ascontiguousarray(visible).tobytes())
    path = cache.folder / f"{digest.hexdigest()[:24]}.npz"
    if not path.exists():
        cache.folder.mkdir(parents=True, exist_ok=True)
        with written_whole(path) as partial, partial.open("wb") as file:
            np.savez(file, **graph.inputs(kind, visible)._asdict())
    return _read(path)


def _read(path: Path) -> Inputs:
    try:
        with np.load(path) as file:
            return Inputs(**file)
    except Exception as error:  # a damaged file can raise anything
        raise UserError(f"cannot read the cached inputs {path}; delete the file and run again.") from error
