"""The one way in for graphs: check edges, labels and features of any type, and return plain arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from hagmeta.common.errors import UserError
from hagmeta.datasets.clean import NOT_GIVEN, UNLABELLED, as_array, place, sorted_unique, whole_numbers
from hagmeta.datasets.features import Features, Kind, as_matrix, clean_features
from hagmeta.datasets.labels import clean_labels


class Keys(NamedTuple):
    """The names of the three arrays of a graph in error messages."""

    edges: str = "edges"
    labels: str = "labels"
    features: str = "features"


CALLED = Keys()


class GraphArrays(NamedTuple):
    """The arrays of a graph, as described in ``Dataset``."""

    edges: np.ndarray
    labels: np.ndarray
    features: Features
    class_names: tuple[str, ...]
    node_ids: tuple[Any, ...] | None = None
    feature_names: tuple[str, ...] | None = None
    kind: Kind = NOT_GIVEN


def clean_graph(
    edges: Any,
    labels: Any,
    features: Any,
    class_names: Sequence[str] | None = None,
    *,
    counts: Literal[False] | None = None,
    source: str,
    keys: Keys = CALLED,
    may_be_unlabelled: bool = False,
) -> GraphArrays:
    """Check the arrays of a graph and bring them into the form of `Dataset`.

    Directed and repeated edges are merged, and self-loops are dropped.

    Args:
        edges: The edges (edges, 2), as node numbers from 0.
        labels: Any labels that `clean_labels` reads, or None if no node has one.
        features: Any features that `clean_features` reads.
        class_names: ``class_names[label]`` is the name of a class. By default, the labels are the names.
        counts: See `clean_features`.
        source: The file or function that the arrays came from. Error messages begin with it.
        keys: The names of the arrays in error messages.
        may_be_unlabelled: Whether a graph without any label is valid.

    Returns:
        The clean arrays.

    Raises:
        UserError: An array has an invalid shape, type or value.
    """
    if labels is None:
        features = as_matrix(features, source, keys.features)
        labels, may_be_unlabelled = np.full(features.shape[:1] or 0, UNLABELLED), True
    numbers, names = clean_labels(labels, class_names, source=source, key=keys.labels)
    matrix, kind = clean_features(features, len(numbers), counts=counts, source=source, key=keys.features)
    pairs = whole_numbers(as_array(edges, source, keys.edges), source=source, key=keys.edges, dimensions=2)
    pairs = _clean_edges(pairs, num_nodes=len(numbers), source=source, key=keys.edges)
    if not names and not may_be_unlabelled:
        raise UserError(f"{source}: {keys.labels!r} holds no labels; expected at least one class.")
    return GraphArrays(pairs, numbers, matrix, names, kind=kind)


def _clean_edges(edges: np.ndarray, *, num_nodes: int, source: str, key: str) -> np.ndarray:
    """Return each pair once, smaller node first, sorted, without self-loops."""
    if edges.shape[1] != 2:
        raise UserError(f"{source}: {key!r} has shape {edges.shape}; expected (edges, 2).")
    if len(edges) and edges.max() >= num_nodes:
        row, column = np.argwhere(edges >= num_nodes)[0]
        raise UserError(
            f"{source}: {key!r} holds node {edges[row, column]} in {place(row, column)}; "
            f"expected 0 to {num_nodes - 1}, since there are {num_nodes} nodes."
        )
    lower, upper = edges.min(axis=1), edges.max(axis=1)
    pairs = sorted_unique((lower * num_nodes + upper)[lower != upper])
    if len(pairs) == 0:
        raise UserError(f"{source}: {key!r} has no edge between two different nodes; expected at least one.")
    return np.stack([pairs // num_nodes, pairs % num_nodes], axis=1)
