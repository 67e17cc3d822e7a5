"""The ``.npz`` format of graphs: plain arrays that any program can write.

======================  ===========  ===========================================================
key                     shape        content
======================  ===========  ===========================================================
``edges``               (edges, 2)   node numbers from 0; direction and duplicates do not matter
``labels``              (nodes,)     class numbers from 0, or -1 for no label; or class names
``features``            (nodes, F)   the features; or use the sparse arrays below instead
``feature_indptr``      (nodes + 1)  row starts, as in ``scipy.sparse.csr_matrix``
``feature_indices``     (nonzeros,)  column numbers
``feature_values``      (nonzeros,)  optional values; by default, all are 1
``num_features``        ()           the number of columns
``class_names``         (classes,)   optional strings; ``class_names[label]`` is a class name
``class_order``         (at most     optional class numbers or names in order of arrival, for
                        classes,)    ``split: fixed``
``supports``            (rows, K)    optional node numbers; the nodes of a row are the supports
                                     of one class
``node_ids``            (nodes,)     optional unique strings or integers; see `hagmeta.Learner`
``feature_names``       (F,)         optional unique strings
``counts``              ()           optional, false: use all columns of ``features`` unchanged
======================  ===========  ===========================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import scipy.sparse

from hagmeta.common.errors import UserError
from hagmeta.common.files.files import written_whole
from hagmeta.datasets.base import Dataset, make_dataset
from hagmeta.datasets.clean import one_line, place, require_data_file, whole_numbers
from hagmeta.datasets.features import entry_place
from hagmeta.datasets.order import ORDER, SUPPORTS, clean_order, clean_supports

NAMES = ("node_ids", "feature_names")
NODE_ORDER = "node_order"


def load(path: Path, name: str) -> Dataset:
    """Read the graph in the file ``path`` and call it ``name``."""
    arrays = read_arrays(path)
    source = str(path)
    _require(arrays, ("edges", "labels"), source)
    graph = make_dataset(
        name,
        arrays["edges"],
        arrays["labels"],
        _features(arrays, len(np.atleast_1d(arrays["labels"])), source),
        _class_names(arrays, source),
        counts=_counts(arrays, source),
        source=source,
    )
    return _with_names(_with_order(graph, arrays, source), arrays, source)


def save(path: Path, dataset: Dataset) -> None:
    """Write ``dataset`` to ``path``. The write is atomic, and equal graphs give equal files."""
    arrays: dict[str, Any] = {"edges": _smallest(dataset.edges), "labels": _smallest(dataset.labels)}
    features = dataset.features
    if isinstance(features, np.ndarray):
        arrays["features"] = features
    else:
        arrays["feature_indptr"] = _smallest(features.indptr)
        arrays["feature_indices"] = _smallest(features.indices)
        arrays["num_features"] = np.asarray(features.shape[1], dtype=np.int64)
        if not np.all(features.data == 1):
            arrays["feature_values"] = features.data
    if dataset.kind == "unchanged":
        arrays["counts"] = np.asarray(False)
    arrays["class_names"] = np.asarray(dataset.class_names, dtype=np.str_)
    arrays |= {key: _smallest(array) for key, array in dataset.fixed.items()}
    for key in NAMES:
        if getattr(dataset, key) is not None:
            arrays[key] = _plain_array(getattr(dataset, key))

    path.parent.mkdir(parents=True, exist_ok=True)
    with written_whole(path) as partial, partial.open("wb") as file:
        np.savez_compressed(file, **arrays)


def save_order(path: Path, order: np.ndarray) -> None:
    """Write the order of nodes to ``path``, separately from the graph."""
    with written_whole(path) as partial, partial.open("wb") as file:
        np.savez_compressed(file, node_order=_smallest(order))


def load_order(path: Path, nodes: int) -> np.ndarray:
    """Read the order of the nodes of a graph from ``path``: the position of each node, from 0."""
    arrays = read_arrays(path)
    _require(arrays, (NODE_ORDER,), str(path))
    order = whole_numbers(arrays[NODE_ORDER], source=str(path), key=NODE_ORDER, dimensions=1)
    if not np.array_equal(np.sort(order), np.arange(nodes)):
        raise UserError(f"{path}: {NODE_ORDER!r} is no order of {nodes} nodes; expected each position once.")
    return order


def _smallest(array: np.ndarray) -> np.ndarray:
    least, most = int(array.min(initial=0)), int(array.max(initial=0))
    return array.astype(np.promote_types(np.min_scalar_type(least), np.min_scalar_type(most)))


def read_arrays(path: Path, problem: str = "not a readable .npz file") -> dict[str, np.ndarray]:
    """Return all arrays of an archive; raise `UserError` with the `problem` if it cannot be read."""
    require_data_file(path)
    try:
        archive = np.load(path, allow_pickle=False)
        if isinstance(archive, np.ndarray):
            raise TypeError("it is a single array, not an archive of arrays")
        with archive:
            # A damaged comment length can hide the entries after it. No writer adds comments.
            if any(entry.comment for entry in archive.zip.infolist()):
                raise ValueError("its table of contents is damaged")
            # Read all arrays, also unknown ones: a damaged name only shows when its content is read.
            return {key: archive[key] for key in archive.files}
    except Exception as error:  # damaged bytes make zipfile, zlib and numpy raise many kinds of errors
        raise UserError(f"{path}: {problem} ({one_line(error)}).") from error


def _require(arrays: dict[str, np.ndarray], keys: tuple[str, ...], source: str) -> None:
    for key in keys:
        if key not in arrays:
            found = ", ".join(sorted(arrays)) or "none"
            raise UserError(f"{source}: the array {key!r} is missing; found: {found}.")


def _features(
    arrays: dict[str, np.ndarray], num_nodes: int, source: str
) -> scipy.sparse.csr_matrix | np.ndarray:
    if "features" in arrays:
        return arrays["features"]
    _require(arrays, ("feature_indptr", "feature_indices", "num_features"), source)
    starts = whole_numbers(arrays["feature_indptr"], source=source, key="feature_indptr", dimensions=1)
    columns = whole_numbers(arrays["feature_indices"], source=source, key="feature_indices", dimensions=1)
    width = int(whole_numbers(arrays["num_features"], source=source, key="num_features", dimensions=0))
    values = arrays.get("feature_values", np.ones(len(columns), dtype=np.float32))

    wrong = _wrong_starts(starts, num_nodes, len(columns))
    if wrong:
        raise UserError(
            f"{source}: 'feature_indptr' {wrong}; expected {num_nodes + 1} entries (nodes + 1) that rise "
            f"from 0 to {len(columns)}, the length of 'feature_indices'."
        )
    if values.shape != columns.shape:
        raise UserError(f"{source}: 'feature_values' has shape {values.shape}; expected {columns.shape}.")
    bad = columns >= width
    if bad.any():
        entry = int(np.argmax(bad))
        row, column = entry_place(starts, columns, entry)
        raise UserError(
            f"{source}: 'feature_indices' holds {columns[entry]} at {entry} ({place(row, column)}); "
            f"expected 0 to {width - 1}, since 'num_features' is {width}."
        )
    return scipy.sparse.csr_matrix((values, columns, starts), shape=(num_nodes, width))


def _wrong_starts(starts: np.ndarray, num_nodes: int, nonzeros: int) -> str:
    """Return what is wrong with the row starts, or an empty string."""
    if len(starts) != num_nodes + 1:
        return f"has {len(starts)} entries"
    falls = np.flatnonzero(np.diff(starts) < 0)
    if len(falls):
        row = int(falls[0]) + 1
        return f"falls from {starts[row - 1]} to {starts[row]} in row {row}"
    if starts[0] != 0:
        return f"holds {starts[0]} in row 0"
    return f"holds {starts[-1]} in row {num_nodes}" if starts[-1] != nonzeros else ""


def _with_order(dataset: Dataset, arrays: dict[str, np.ndarray], source: str) -> Dataset:
    """Return ``dataset``, whose classes have no gaps, with the arrays of a fixed split, if there are any."""
    order = supports = None
    names = dataset.class_names
    if ORDER in arrays:
        labels = arrays["labels"]  # numbers, which may have gaps, or names
        present = np.unique(labels[labels >= 0]) if labels.dtype.kind in "iuf" else np.arange(len(names))
        order = clean_order(arrays[ORDER], present=present, names=names, source=source)
    if SUPPORTS in arrays:
        supports = clean_supports(
            arrays[SUPPORTS], order=order, labels=dataset.labels, names=names, source=source
        )
    return dataset if order is None else replace(dataset, class_order=order, supports=supports)


def _plain_array(names: Sequence[Any]) -> np.ndarray:
    """Return unique names as an array of integers, if all are integers, or of strings."""
    whole = all(isinstance(name, int | np.integer) and not isinstance(name, bool) for name in names)
    return np.asarray(names, dtype=np.int64) if whole else np.asarray([str(name) for name in names])


def _with_names(dataset: Dataset, arrays: dict[str, np.ndarray], source: str) -> Dataset:
    """Return ``dataset`` with the names of nodes and features, if the file has them."""
    found: dict[str, Any] = {}
    for key, count in zip(NAMES, (dataset.num_nodes, dataset.num_features), strict=True):
        names = arrays.get(key)
        if names is None:
            continue
        if names.shape != (count,) or names.dtype.kind not in ("U" if key == "feature_names" else "Uiu"):
            raise UserError(
                f"{source}: {key!r} has type {names.dtype} and shape {names.shape}; expected {count} names."
            )
        values, times = np.unique(names, return_counts=True)
        if times.max(initial=1) > 1:
            raise UserError(
                f"{source}: {key!r} holds {values[times.argmax()].item()!r} twice; expected unique names."
            )
        found[key] = tuple(names.tolist())
    return replace(dataset, **found) if found else dataset


def _counts(arrays: dict[str, np.ndarray], source: str) -> Literal[False] | None:
    counts = arrays.get("counts")
    if counts is not None and (counts.shape != () or counts.dtype.kind != "b" or counts):
        raise UserError(f"{source}: 'counts' holds {counts}; expected false, or no such array.")
    return None if counts is None else False


def _class_names(arrays: dict[str, np.ndarray], source: str) -> list[str] | None:
    names = arrays.get("class_names")
    if names is None:
        return None
    if names.ndim != 1 or names.dtype.kind != "U":
        raise UserError(
            f"{source}: 'class_names' has type {names.dtype} and shape {names.shape}; "
            f"expected a list of strings."
        )
    return [str(name) for name in names]
