"""Where inputs come from: a cache that runs share, or a fit to an earlier graph."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import NamedTuple

import numpy as np

from hagmeta.common.errors import UserError
from hagmeta.common.files.files import written_whole
from hagmeta.sparse.graph import Graph
from hagmeta.sparse.inputs import Fit, Inputs

# Raise this, and CACHE_VERSION of pretrain.py, when the inputs computed from the same features change.
INPUTS_VERSION = 1


class Cache(NamedTuple):
    """A folder in which runs share slow results, and the fingerprint of the dataset.

    These results depend only on data, settings and seed.
    """

    folder: Path
    fingerprint: str


class Fits(NamedTuple):
    """Inputs that are fitted once, on the first graph of a learner, and used on later graphs."""

    nodes: int  # in the first graph; some widths depend on it
    by_kind: dict[str, Fit]  # filled on first use


def make_inputs(kind: str, graph: Graph, visible: np.ndarray, source: Cache | Fits | None) -> Inputs:
    """Return the inputs of a seed, computed from the nodes that are `visible` (nodes,) at the start.

    An SVD takes about a second, so it is stored in a cache.
    """
    if isinstance(source, Fits):
        if kind not in source.by_kind:
            source.by_kind[kind] = graph.fit_inputs(kind, visible)
        return graph.apply_inputs(source.by_kind[kind])
    if source is None or kind != "svd":
        return graph.inputs(kind, visible)
    digest = hashlib.sha256(f"inputs {INPUTS_VERSION} {kind} {source.fingerprint}".encode())
    digest.update(np.ascontiguousarray(visible).tobytes())
    path = source.folder / f"{digest.hexdigest()[:24]}.npz"
    if not path.exists():
        source.folder.mkdir(parents=True, exist_ok=True)
        with written_whole(path) as partial, partial.open("wb") as file:
            np.savez(file, **graph.inputs(kind, visible)._asdict())
    return _read(path)


def _read(path: Path) -> Inputs:
    try:
        with np.load(path) as file:
            return Inputs(**file)
    except Exception as error:  # a damaged file can raise anything
        raise UserError(f"cannot read the cached inputs {path}; delete the file and run again.") from error
