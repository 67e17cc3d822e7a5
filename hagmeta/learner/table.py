"""Bring a graph into the rows and columns that a learner knows, by node ids and feature names."""

from __future__ import annotations

import itertools
import operator
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse
import torch

from hagmeta.api.calls import as_dataset
from hagmeta.common.errors import UserError, shown
from hagmeta.datasets.base import UNLABELLED, Dataset
from hagmeta.datasets.features import Features, Kind
from hagmeta.datasets.labels import is_unicode

NodeId = Any  # a string, an integer, or another hashable value
FEW_SHARED = 0.5  # warn if a graph has a smaller share of the nodes that the learner knows
MOST_NAMED = 5  # names in a message
SPARE = 2  # at most so many rows per node


class FewSharedNodesWarning(UserWarning):
    """A graph shares few node ids with the graph that the learner learnt from."""


class UnknownFeaturesWarning(UserWarning):
    """A graph has features that the learner was not fitted on. It ignores them."""


@dataclass(frozen=True)
class Table:
    """A graph whose rows are the slots of its nodes. Rows of other nodes are empty and not visible."""

    dataset: Dataset
    rows: dict[NodeId, int]  # the slot of each node

    @property
    def present(self) -> np.ndarray:
        """Return a mask of the rows that hold a node."""
        mask = np.zeros(self.dataset.num_nodes, dtype=bool)
        mask[list(self.rows.values())] = True
        return mask


@dataclass(frozen=True)
class Columns:
    """The features that the learner was fitted on."""

    count: int
    names: tuple[str, ...] | None
    sparse: bool
    kind: Kind  # see `Dataset.kind`

    @classmethod
    def of(cls, dataset: Dataset) -> Columns:
        sparse = not isinstance(dataset.features, np.ndarray)
        return cls(dataset.num_features, dataset.feature_names, sparse, dataset.kind)


def as_graph(data: Any) -> Dataset:
    """Return `data` as a `Dataset`.

    PyG and networkx graphs need no labels here. ``n_id`` of a PyG ``Data`` are node ids.
    """
    if hasattr(data, "is_directed") and hasattr(data, "adjacency"):  # networkx
        labelled = any("label" in held for _, held in data.nodes(data=True))
        dataset = Dataset.from_networkx(data, name="data", label="label" if labelled else None)
        return _with_ids(dataset, dataset.node_ids, "data")
    if not hasattr(data, "edge_index"):
        dataset = as_dataset(data)
        ids = dataset.node_ids
        return dataset if ids is None else _with_ids(dataset, ids, f"{dataset.name}.node_ids")
    ids = getattr(data, "n_id", None)
    if getattr(data, "y", None) is None:
        data = copy(data)
        data.y = torch.zeros(data.num_nodes, dtype=torch.int64)  # not read
    dataset = as_dataset(data)
    return dataset if ids is None else _with_ids(dataset, ids, "data.n_id")


def _with_ids(dataset: Dataset, given: Any, source: str) -> Dataset:
    """Return `dataset` with the node ids `given`, or raise an error that names their `source`."""
    ids = listed_ids(given, source)
    if len(ids) != dataset.num_nodes:
        raise UserError(
            f"{source} has {len(ids)} entries; expected {dataset.num_nodes}, one per node of the graph."
        )
    if len(set(ids)) != len(ids):
        twice = next(node for node, times in Counter(ids).items() if times > 1)
        raise UserError(f"{source} holds {shown(twice)} twice; expected unique ids.")
    if not is_unicode("".join(node for node in ids if isinstance(node, str))):
        wrong = next(node for node in ids if isinstance(node, str) and not is_unicode(node))
        raise UserError(f"{source} holds {shown(wrong)}; expected Unicode text.")
    same = type(given) is tuple and all(map(operator.is_, given, ids))
    return dataset if same and given is dataset.node_ids else replace(dataset, node_ids=tuple(ids))


def listed_ids(given: Any, source: str) -> list[NodeId]:
    """Return node ids as a list, given any collection, array or tensor. `source` is its name in messages."""
    values = given.tolist() if hasattr(given, "tolist") else given
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise UserError(f"{source} is {shown(given)}; expected a list of node ids.")
    nodes = list(values)
    return nodes if set(map(type, nodes)) <= {str, int} else [plain(node) for node in nodes]


def as_value(given: Any) -> Any:
    """Return a number of numpy or torch as a Python value, and anything else as it is."""
    return given.item() if getattr(given, "ndim", None) == 0 and hasattr(given, "item") else given


def plain(node: Any) -> NodeId:
    """Return a node id as a Python value."""
    value = as_value(node)
    try:
        hash(value)
    except TypeError:
        value = None
    if value is None or isinstance(value, bool):  # a mask is no list of ids
        raise UserError(f"a node id is {shown(node)}; expected a string or a whole number.")
    return value


def ids_of(dataset: Dataset) -> list[NodeId]:
    """Return the node ids of `dataset`. Without ids, the positions of the nodes are their ids."""
    return list(range(dataset.num_nodes) if dataset.node_ids is None else dataset.node_ids)


def check_nodes(dataset: Dataset, nodes: Iterable[NodeId], argument: str) -> None:
    """Raise an error if a node is not in the graph. `argument` is the name of the nodes in messages."""
    there = set(ids_of(dataset))
    for node in nodes:
        if node not in there:
            kind = "an id from node_ids" if dataset.node_ids else f"a number from 0 to {len(there) - 1}"
            raise UserError(
                f"{argument} holds node {shown(node)}, which is not in {dataset.name}; expected {kind}."
            )


def slots_of(ids: Sequence[NodeId], known: Mapping[NodeId, int]) -> dict[NodeId, int]:
    """Return a slot for each node. Random draws go by slots, so a node keeps its slot.

    Whole numbers are their own slots, unless this would leave most rows empty. Other ids get the next free
    slots in their order.

    Args:
        ids: The node ids of a graph.
        known: The slots of nodes that the learner has met.
    """
    slots = {node: known[node] for node in ids if node in known}
    taken = set(known.values())
    for node in ids:
        own = isinstance(node, int) and 0 <= node < SPARE * len(ids) and node not in taken
        if own and node not in slots:
            slots[node] = node
            taken.add(node)
    free = itertools.count(max(taken, default=-1) + 1)
    return {node: slots[node] if node in slots else next(free) for node in ids}


def kept_slots(slots: Mapping[NodeId, int], known: Mapping[NodeId, int]) -> dict[NodeId, int]:
    """Return the slots to keep after learning: also those of nodes that left, if at least half are in use."""
    every = {**known, **slots}
    if max(every.values()) < SPARE * len(slots):
        return every
    return slots_of(sorted(slots, key=slots.__getitem__), {})


def make_table(dataset: Dataset, known: Mapping[NodeId, int], columns: Columns) -> Table:
    """Return the table of `dataset`.

    Args:
        dataset: The graph of the call.
        known: The slots of nodes that the learner has met.
        columns: The features that the learner was fitted on.
    """
    rows = slots_of(ids_of(dataset), known)
    places = np.array(list(rows.values()))
    features = _aligned(dataset, columns)
    count = int(places.max()) + 1
    changed = replace(
        dataset,
        edges=np.sort(places[dataset.edges], axis=1),
        labels=np.full(count, UNLABELLED),
        features=_placed(features, places, count),
        class_names=(),
        node_ids=None,
        feature_names=None,
        kind=columns.kind,  # later graphs are read as the first one was
        class_order=None,
        supports=None,
    )
    return Table(changed, rows)


def _placed(features: Features, places: np.ndarray, count: int) -> Features:
    """Return features (count, features) with the given rows at `places`, and zeros elsewhere."""
    if isinstance(features, np.ndarray):
        placed = np.zeros((count, features.shape[1]), dtype=features.dtype)
        placed[places] = features
        return placed
    source = np.full(count, -1)
    source[places] = np.arange(len(places))
    padded = scipy.sparse.vstack([features, scipy.sparse.csr_matrix((1, features.shape[1]))], format="csr")
    return padded[source].astype(features.dtype)


def warn_of_other_nodes(dataset: Dataset, known: Sequence[NodeId]) -> None:
    """Warn if `dataset` has few of the `known` nodes."""
    there = set(ids_of(dataset))
    shared = sum(node in there for node in known)
    if shared < FEW_SHARED * len(known):
        warnings.warn(
            f"{dataset.name} has {shared:,} of the {len(known):,} nodes of the graph that the "
            "learner learnt from; check that node ids mean the same nodes.",
            FewSharedNodesWarning,
            stacklevel=5,
        )


def warn_of_unknown_features(dataset: Dataset, columns: Columns, reported: set[str]) -> set[str]:
    """Warn of features that the learner was not fitted on, unless they are `reported`, and return them."""
    if columns.names is None or dataset.feature_names is None:
        return set()
    known = {*columns.names, *reported}
    fresh = [name for name in dataset.feature_names if name not in known]
    if fresh:
        warnings.warn(
            f"{dataset.name} has {len(fresh):,} features that the learner was not fitted on, such as "
            f"{shown(fresh[0])}; they are ignored.",
            UnknownFeaturesWarning,
            stacklevel=5,
        )
    return set(fresh)


def _aligned(dataset: Dataset, columns: Columns) -> Features:
    """Return the features of `dataset` in the columns that the learner was fitted on."""
    features = dataset.features
    if columns.names is not None and dataset.feature_names is not None:
        features = _by_name(dataset, dataset.feature_names, columns, columns.names)
    elif dataset.num_features != columns.count:
        raise UserError(
            f"{dataset.name} has {dataset.num_features} features, but the learner was fitted on "
            f"{columns.count}. Give the same columns, or name them with feature_names in both graphs."
        )
    if columns.sparse and isinstance(features, np.ndarray):
        features = scipy.sparse.csr_matrix(features)
    elif not columns.sparse and not isinstance(features, np.ndarray):
        features = features.toarray()
    if columns.kind == "counts" and features.min() < 0:
        raise UserError(
            f"{dataset.name} has negative features, but the learner was fitted on counts; expected counts."
        )
    return features


def _by_name(dataset: Dataset, given: Sequence[str], columns: Columns, wanted: Sequence[str]) -> Features:
    if tuple(given) == tuple(wanted):
        return dataset.features
    place = {name: number for number, name in enumerate(given)}
    missing = [name for name in wanted if name not in place]
    if missing and columns.kind != "counts":
        raise UserError(
            f"{dataset.name} lacks {_named(missing)}, which the learner was fitted on; give all columns."
        )
    pairs = [(place[name], number) for number, name in enumerate(wanted) if name in place]
    if not pairs:
        raise UserError(f"{dataset.name} has none of the features that the learner was fitted on.")
    source, target = np.array(pairs).T
    ones = np.ones(len(source), dtype=np.float32)
    chosen = scipy.sparse.csr_matrix((ones, (source, target)), shape=(len(given), len(wanted)))
    moved: Features = dataset.features @ chosen
    if not isinstance(moved, np.ndarray):
        moved.sort_indices()
    return moved


def _named(names: Sequence[str]) -> str:
    """Return a short list of feature names for a message."""
    listed = ", ".join(shown(name) for name in names[:MOST_NAMED])
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return f"the feature{'s' if len(names) > 1 else ''} {listed}{more}"
