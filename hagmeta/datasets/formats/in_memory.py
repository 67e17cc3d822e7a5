"""Make graphs from objects in memory. The classmethods of ``Dataset`` call these functions."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Hashable, Sequence
from typing import Any, Literal

import numpy as np
import scipy.sparse

from hagmeta.common.errors import UserError, shown
from hagmeta.common.files.files import expanded
from hagmeta.datasets.clean import as_array, sorted_unique
from hagmeta.datasets.features import as_matrix
from hagmeta.datasets.formats.arrays import CALLED, GraphArrays, Keys, clean_graph
from hagmeta.datasets.formats.convert import Columns, convert

NOT_IN_NAMES = ":@/\\"  # special in ``Dataset.identity`` and in paths
OF_PYG = Keys("data.edge_index.T", "data.y", "data.x")
TO_CALLER = 3  # stack frames from a function of this module to the user's call


class DirectedEdgesWarning(UserWarning):
    """Some edges were given in one direction only. They count in both directions."""


def from_pyg(
    data: Any, name: str, class_names: Sequence[str] | None, counts: Literal[False] | None
) -> GraphArrays:
    """See ``Dataset.from_pyg``."""
    source = "Dataset.from_pyg"
    _check_name(name, source)
    data = _only_graph(data, source)
    x, y, edge_index, adj_t = (getattr(data, key, None) for key in ("x", "y", "edge_index", "adj_t"))
    edges = adj_t if edge_index is None else edge_index
    if x is None:
        raise UserError(
            f"{source}: data.x is missing; expected x, y, and edge_index or adj_t. Without features, set "
            "data.x = torch.eye(data.num_nodes), or degrees (torch_geometric.transforms.OneHotDegree)."
        )
    for key, value in {"y": y, "edge_index": edges}.items():
        if value is None:
            raise UserError(f"{source}: data.{key} is missing; expected x, y, and edge_index or adj_t.")
    if edge_index is None:
        keys = OF_PYG._replace(edges="data.adj_t")
        pairs = np.stack(scipy.sparse.coo_array(as_matrix(adj_t, source, keys.edges)).coords, axis=1)
    else:
        keys, pairs = OF_PYG, as_array(edge_index, source, "data.edge_index").T
        if pairs.ndim != 2 or pairs.shape[1] != 2:
            raise UserError(f"{source}: 'data.edge_index' has shape {pairs.T.shape}; expected (2, edges).")
    made = clean_graph(pairs, y, x, class_names, counts=counts, source=source, keys=keys)
    _warn_if_one_way(name, pairs)
    if getattr(data, "edge_weight", None) is not None:
        warnings.warn(
            f"{name}: data.edge_weight is not used; all edges have the same weight.", stacklevel=TO_CALLER
        )
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
    labels = None if label is None else [held.get(label) for held in attributes.values()]
    keys = CALLED if label is None else Keys(labels=label)
    made = clean_graph(pairs, labels, np.array(rows), source=source, keys=keys)
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
    counts: Literal[False] | None,
) -> GraphArrays:
    """See ``Dataset.from_arrays``."""
    source = "Dataset.from_arrays"
    _check_name(name, source)
    pairs = as_array(edges, source, CALLED.edges)
    made = clean_graph(pairs, labels, features, class_names, counts=counts, source=source)
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
    from torch_geometric.data import HeteroData

    if isinstance(data, PygDataset | list | tuple):
        if len(data) != 1:
            raise UserError(f"{source}: data has {len(data)} graphs; expected one graph, such as data[0].")
        data = data[0]
    if isinstance(data, HeteroData):
        raise UserError(
            f"{source}: data is a HeteroData with nodes of {len(data.node_types)} types; expected a "
            "torch_geometric.data.Data. Convert it with data.to_homogeneous()."
        )
    if not hasattr(data, "edge_index") and not hasattr(data, "adj_t"):
        raise UserError(
            f"{source}: data is of type {type(data).__name__} and has no edge_index; "
            f"expected a torch_geometric.data.Data."
        )
    return data


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
        vector = as_array(given, source, "features").astype(np.float64)
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
            stacklevel=TO_CALLER + 1,
        )
