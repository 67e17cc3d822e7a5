"""Make graphs from objects in memory. The classmethods of ``Dataset`` call these functions."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Hashable, Sequence
from numbers import Real
from typing import Any

import numpy as np
import scipy.sparse

from hagmeta.common.errors import UserError, shown
from hagmeta.common.files import expanded
from hagmeta.datasets.clean import (
    CALLED,
    UNLABELLED,
    GraphArrays,
    Keys,
    clean_graph,
    in_order,
    is_no_label,
    one_line,
    place,
    sorted_unique,
)
from hagmeta.datasets.convert import Columns, convert

NOT_IN_NAMES = ":@/\\"  # special in ``Dataset.identity`` and in paths
OF_PYG = Keys("data.edge_index.T", "data.y", "data.x")
TO_CALLER = 4  # stack frames from ``warnings.warn`` to the user's call


class DirectedEdgesWarning(UserWarning):
    """Some edges were given in one direction only. They count in both directions."""


def from_pyg(data: Any, name: str, class_names: Sequence[str] | None) -> GraphArrays:
    """See ``Dataset.from_pyg``."""
    source = "Dataset.from_pyg"
    _check_name(name, source)
    data = _only_graph(data, source)
    x, y, edge_index, adj_t = (getattr(data, key, None) for key in ("x", "y", "edge_index", "adj_t"))
    edges = adj_t if edge_index is None else edge_index
    for key, value in {"x": x, "y": y, "edge_index": edges}.items():
        if value is None:
            raise UserError(f"{source}: data.{key} is missing; expected x, y, and edge_index or adj_t.")
    if edge_index is None:
        keys = OF_PYG._replace(edges="data.adj_t")
        pairs = np.stack(scipy.sparse.coo_array(_matrix(adj_t, source, keys.edges)).coords, axis=1)
    else:
        keys, pairs = OF_PYG, _plain(edge_index, source, "data.edge_index").T
        if pairs.ndim != 2 or pairs.shape[1] != 2:
            raise UserError(f"{source}: 'data.edge_index' has shape {pairs.T.shape}; expected (2, edges).")
    labels = _plain(y, source, keys.labels)
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    made = _made(source, pairs, labels, _matrix(x, source, keys.features), class_names, keys)
    _warn_if_one_way(name, pairs)
    return made


def from_networkx(graph: Any, name: str, label: str | None, features: str | Sequence[str]) -> GraphArrays:
    """See ``Dataset.from_networkx``."""
    source = "Dataset.from_networkx"
    _check_name(name, source)
    if not (hasattr(graph, "nodes") and hasattr(graph, "is_directed")):
        raise UserError(f"{source}: graph is of type {type(graph).__name__}; expected a networkx graph.")
    number = {node: position for position, node in enumerate(graph)}
    pairs = np.array([(number[a], number[b]) for a, b in graph.edges()], dtype=np.int64).reshape(-1, 2)
    attributes = dict(graph.nodes(data=True))
    if label is not None and attributes and not any(label in held for held in attributes.values()):
        found = sorted({str(key) for held in attributes.values() for key in held})
        raise UserError(
            f"{source}: no node has the attribute label={label!r}; found: {', '.join(found) or 'none'}."
        )
    rows = [_vector(source, node, held, features) for node, held in attributes.items()]
    for node, row in zip(attributes, rows, strict=True):
        if len(row) != len(rows[0]):
            raise UserError(
                f"{source}: node {shown(node)} has {len(row)} features and node {shown(next(iter(number)))} "
                f"has {len(rows[0])}; expected the same number for all nodes."
            )
    if label is None:
        made = _unlabelled(source, pairs, np.array(rows))
    else:
        labels = [held.get(label) for held in attributes.values()]
        made = _made(source, pairs, labels, np.array(rows), None, Keys(labels=label))
    if graph.is_directed():
        _warn_if_one_way(name, pairs)
    names = None if isinstance(features, str) else tuple(features)
    return made._replace(node_ids=tuple(number), feature_names=names)


def from_arrays(
    edges: Any,
    labels: Any,
    features: Any,
    name: str,
    class_names: Sequence[str] | None,
    node_ids: Sequence[Any] | None,
    feature_names: Sequence[str] | None,
) -> GraphArrays:
    """See ``Dataset.from_arrays``."""
    source = "Dataset.from_arrays"
    _check_name(name, source)
    pairs, matrix = _plain(edges, source, CALLED.edges), _matrix(features, source, CALLED.features)
    if labels is None:
        made = _unlabelled(source, pairs, matrix)
    else:
        made = _made(source, pairs, labels, matrix, class_names, CALLED)
    ids = _each_once(source, "node_ids", node_ids, len(made.labels), "nodes")
    columns = _each_once(source, "feature_names", feature_names, made.features.shape[1], "features")
    _warn_if_one_way(name, pairs, unless_all=True)  # an edge list usually has each edge once
    return made._replace(node_ids=ids, feature_names=columns and tuple(map(str, columns)))


def from_csv(
    nodes: str | os.PathLike[str], edges: str | os.PathLike[str], name: str, columns: Columns
) -> GraphArrays:
    """See ``Dataset.from_csv``."""
    _check_name(name, "Dataset.from_csv")
    converted = convert(expanded(os.fspath(edges)), expanded(os.fspath(nodes)), columns)
    for note in converted.notes:
        print(note, file=sys.stderr)
    return converted.graph


def _check_name(name: Any, source: str) -> None:
    """Raise an error if ``name`` cannot be part of ``Dataset.identity``."""
    usable = isinstance(name, str) and name.strip() == name != "" and name.isprintable()
    if not usable or any(letter in name for letter in NOT_IN_NAMES):
        raise UserError(
            f"{source}: name is {shown(name)}; "
            f"expected a string without {' '.join(NOT_IN_NAMES)}, such as 'mine'."
        )


def _only_graph(data: Any, source: str) -> Any:
    """Return the only graph of a PyG dataset, or ``data`` itself if it is a graph."""
    from torch_geometric.data import Dataset as PygDataset

    if isinstance(data, PygDataset):
        if len(data) != 1:
            raise UserError(f"{source}: data has {len(data)} graphs; expected one graph, such as data[0].")
        return data[0]
    if not hasattr(data, "edge_index") and not hasattr(data, "adj_t"):
        raise UserError(
            f"{source}: data is of type {type(data).__name__} and has no edge_index; "
            f"expected a torch_geometric.data.Data."
        )
    return data


def _plain(values: Any, source: str, key: str) -> np.ndarray:
    """Return ``values`` as a numpy array. Tensors may be on any device."""
    try:
        return np.asarray(values.detach().cpu() if hasattr(values, "detach") else values)
    except (TypeError, ValueError) as error:  # rows of different lengths, or an unknown type
        raise UserError(f"{source}: {key!r} is not an array of numbers ({one_line(error)}).") from None


def _matrix(values: Any, source: str, key: str) -> Any:
    """Return ``values`` as a dense numpy array, or as a scipy matrix if they are sparse."""
    if scipy.sparse.issparse(values):
        return values
    if hasattr(values, "to_torch_sparse_coo_tensor"):  # torch_sparse.SparseTensor
        values = values.to_torch_sparse_coo_tensor()
    if str(getattr(values, "layout", "torch.strided")) == "torch.strided":
        return _plain(values, source, key)
    sparse = values.detach().cpu().to_sparse_coo().coalesce()
    return scipy.sparse.coo_array((sparse.values().numpy(), sparse.indices().numpy()), shape=sparse.shape)


def _made(
    source: str,
    edges: np.ndarray,
    labels: Any,
    features: Any,
    class_names: Sequence[str] | None,
    keys: Keys,
) -> GraphArrays:
    """Check a graph whose labels may be strings or numbers, and return its arrays."""
    numbers, texts = _labels(source, keys.labels, labels)
    if texts is not None and class_names is not None:
        raise UserError(
            f"{source}: {keys.labels!r} holds strings, which are already class names; "
            f"remove class_names, or use integer labels."
        )
    names = texts if texts is not None else class_names
    return clean_graph(edges, numbers, features, names, source=source, keys=keys)


def _unlabelled(source: str, edges: np.ndarray, features: Any) -> GraphArrays:
    """Check a graph without labels, and return its arrays."""
    labels = np.full(features.shape[0] if features.ndim else 0, UNLABELLED)
    return clean_graph(edges, labels, features, source=source, may_be_unlabelled=True)


def _labels(source: str, key: str, labels: Any) -> tuple[Any, list[str] | None]:
    """Return labels as numbers, with UNLABELLED for none; and the class names if labels are strings."""
    if isinstance(labels, list | tuple):  # numpy would turn a NaN among strings into the string 'nan'
        labels = np.array(labels, dtype=object)
    values = _plain(labels, source, key)
    if values.dtype.kind == "f":
        return np.where(np.isnan(values), UNLABELLED, values), None
    if values.dtype.kind not in "OU" or values.ndim != 1:
        return values, None
    given = [None if _is_missing(value) else value for value in values.tolist()]
    for row, value in enumerate(given):
        if not isinstance(value, str | Real | None):
            raise UserError(
                f"{source}: {key!r} holds {shown(value)} in {place(row)}; "
                f"expected strings or whole numbers from 0, and None, NaN or -1 for no label."
            )
    texts = in_order(value for value in given if isinstance(value, str))
    if not texts:
        return [UNLABELLED if value is None else value for value in given], None
    for row, value in enumerate(given):
        if value is not None and not isinstance(value, str):
            raise UserError(
                f"{source}: {key!r} holds the number {value} in {place(row)}, and strings such as "
                f"{shown(texts[0])}; expected only numbers or only strings."
            )
    position = {text: number for number, text in enumerate(texts)}
    return [UNLABELLED if value is None else position[value] for value in given], texts


def _is_missing(value: Any) -> bool:
    if value is None or isinstance(value, str):
        return value is None or is_no_label(value)
    try:
        return bool(value != value) or bool(value == UNLABELLED)
    except (TypeError, ValueError):  # pandas.NA and arrays have no truth value
        return type(value).__name__ == "NAType"


def _vector(source: str, node: Any, attributes: dict[str, Any], features: str | Sequence[str]) -> np.ndarray:
    """Return the features (features,) of a networkx node."""
    for key in [features] if isinstance(features, str) else features:
        if key not in attributes:
            found = ", ".join(map(str, attributes)) or "none"
            raise UserError(
                f"{source}: node {shown(node)} has no attribute {key!r}, which is given as features; "
                f"found: {found}."
            )
    given = attributes[features] if isinstance(features, str) else [attributes[key] for key in features]
    try:
        vector = _plain(given, source, "features").astype(np.float64)
    except (TypeError, ValueError):
        vector = np.array(np.nan)
    if vector.ndim > 1 or not np.isfinite(vector).all():
        raise UserError(
            f"{source}: {features!r} of node {shown(node)} is {' '.join(shown(given).split())}; "
            f"expected finite numbers, as a vector or a list of attributes."
        )
    return vector.ravel()


def _each_once(
    source: str, key: str, given: Sequence[Any] | None, number: int, of: str
) -> tuple[Any, ...] | None:
    """Check that names of nodes or features are unique and complete, and return them."""
    if given is None:
        return None
    names = tuple(given.tolist() if hasattr(given, "tolist") else given)
    if len(names) != number:
        raise UserError(
            f"{source}: {key!r} has {len(names)} entries; expected {number}, since there are {number} {of}."
        )
    seen: set[Any] = set()
    for name in names:
        if not isinstance(name, Hashable):
            raise UserError(f"{source}: {key!r} holds {shown(name)}; expected strings or whole numbers.")
        if name in seen:
            raise UserError(f"{source}: {key!r} holds {shown(name)} twice; expected unique names.")
        seen.add(name)
    return names


def _warn_if_one_way(name: str, pairs: np.ndarray, *, unless_all: bool = False) -> None:
    """Warn if edges are given in one direction only. With ``unless_all``, accept it if all edges are."""
    source, target = pairs.astype(np.int64)[pairs[:, 0] != pairs[:, 1]].T
    nodes = int(pairs.max()) + 1
    given = sorted_unique(source * nodes + target)
    alone = int(np.sum(~np.isin(given, target * nodes + source)))
    if alone and not (unless_all and alone == len(given)):
        warnings.warn(
            f"{name}: {alone:,} of {len(given):,} edges are given in one direction only; "
            "all edges count in both directions.",
            DirectedEdgesWarning,
            stacklevel=TO_CALLER,
        )
