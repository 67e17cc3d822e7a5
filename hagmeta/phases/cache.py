"""Where what takes long to make, and is fixed by data, settings and seed, is shared by runs."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import NamedTuple

import numpy as np

from hagmeta.common.errors import UserError
from hagmeta.common.files import written_whole
from hagmeta.sparse.graph import Graph
from hagmeta.sparse.inputs import Inputs

INPUTS_VERSION = 1  # raise it, and CACHE_VERSION of pretrain.py, when the same features would give others


class Cache(NamedTuple):
    """A folder, and what names the data that its contents were made from."""

    folder: Path
    fingerprint: str


def shared_inputs(kind: str, graph: Graph, visible: np.ndarray, cache: Cache | None) -> Inputs:
    """A seed's inputs, from what it sees (nodes,) at the start; an SVD takes about a second and is kept."""
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
    except Exception as error:  # whatever the bytes provoke
        raise UserError(f"cannot read the cached inputs {path}; delete the file and run again.") from error
