"""The `Dataset` class, and `DatasetInfo`, which describes a dataset before it is loaded."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import scipy.sparse

from hagmeta.common.plugins.identity import DIGITS
from hagmeta.datasets.clean import NOT_GIVEN, UNLABELLED
from hagmeta.datasets.features import Features, Kind, described, kind_of
from hagmeta.datasets.formats.arrays import clean_graph

__all__ = ["UNLABELLED", "Dataset", "DatasetInfo", "make_dataset"]


@dataclass(frozen=True)
class DatasetInfo:
    """Facts about a dataset before it is loaded. None means that loading is needed to find out."""

    name: str
    description: str
    source: str
    nodes: int | None = None
    edges: int | None = None
    features: int | None = None
    classes: int | None = None
    class_split: tuple[int, int, int] | None = None  # base, novel-train, novel-test
    n_way: int | None = None
    k_shot: int | None = None
    on_disk: bool = True  # loading needs no network; also True for generated graphs
    revision: int = 1  # increase it when the same name loads a different graph


@dataclass(frozen=True, repr=False)
class Dataset:
    """An undirected graph with node features. Each node has one class or no label.

    To make a dataset from data in memory, use ``from_pyg``, ``from_networkx``, ``from_arrays`` or
    ``from_csv``. Nodes without a label are context: they are visible from the start, but a method never
    trains on them or predicts them.

    Attributes:
        name: The name of the graph.
        edges: An int64 array (edges, 2). Each pair appears once, smaller node first, without self-loops.
        labels: An int64 array (nodes,) with values 0 to classes - 1, or ``UNLABELLED`` (-1).
        features: A float32 array or ``scipy.sparse.csr_matrix`` (nodes, features). Counts are sparse, and so
            are other features if at most a quarter of their values is not 0.
        class_names: ``class_names[label]`` is the name of a class in the source.
        node_ids: The names of the nodes in the source, or None.
        feature_names: The names of the features, or None.
        class_order: An int64 array of classes in order of arrival for ``split: fixed``, or None.
        supports: An int64 array (classes, shots) of nodes for ``split: fixed``, or None. The nodes of a row
            belong to the same class.
        node_order: An int64 array (nodes,) with the position of each node in its source, or None. The
            protocol `growing` uses it. It is no part of the fingerprint: the graph is the same without it.
        kind: What the features are: ``counts``, ``values``, or ``unchanged`` (`counts=False`). By default, it
            is found out from the values. A modified copy keeps it.
        origin: The name that loads the graph, or None for a graph in memory.
    """

    name: str
    edges: np.ndarray
    labels: np.ndarray
    features: Features
    class_names: tuple[str, ...]
    node_ids: tuple[Any, ...] | None = None
    feature_names: tuple[str, ...] | None = None
    kind: Kind = NOT_GIVEN
    class_order: np.ndarray | None = None
    supports: np.ndarray | None = None
    node_order: np.ndarray | None = None
    # Not an argument: a modified copy is a different graph and must not keep the origin.
    origin: str | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        if self.kind is NOT_GIVEN or (self.kind == "counts" and isinstance(self.features, np.ndarray)):
            object.__setattr__(self, "kind", kind_of(self.features))

    def __repr__(self) -> str:
        return (
            f"{self.name}: {self.num_nodes:,} nodes, {len(self.edges):,} edges, "
            f"{self.features_described}, {self.num_classes} classes"
        )

    @property
    def features_described(self) -> str:
        """Return what the features are, such as "3,397 binary columns (1.0 % non-zero)"."""
        return described(self.features, self.kind)

    @property
    def identity(self) -> str:
        """Return the name of the graph in configurations and records.

        This is ``origin``, or ``name`` with a hash of the content and of the order of nodes, if there is one.
        """
        if self.origin is not None:
            return self.origin
        content = self.fingerprint
        if self.node_order is not None:
            order = np.ascontiguousarray(self.node_order, dtype=np.int64)
            content = hashlib.sha256(content.encode() + order.tobytes()).hexdigest()
        return f"{self.name}@{content[:DIGITS]}"

    @property
    def num_nodes(self) -> int:
        """Return the number of nodes."""
        return len(self.labels)

    @property
    def num_features(self) -> int:
        """Return the number of features."""
        return int(self.features.shape[1])

    @property
    def num_classes(self) -> int:
        """Return the number of classes."""
        return len(self.class_names)

    @property
    def class_sizes(self) -> np.ndarray:
        """Return the number of nodes of each class, as an array (classes,)."""
        return np.bincount(self.labels[self.labels != UNLABELLED], minlength=self.num_classes)

    @property
    def fixed(self) -> dict[str, np.ndarray]:
        """Return the arrays of a fixed split by name, without those that are None."""
        arrays = {"class_order": self.class_order, "supports": self.supports}
        return {key: array for key, array in arrays.items() if array is not None}

    @cached_property
    def adjacency(self) -> scipy.sparse.csr_matrix:
        """Return the float32 adjacency matrix (nodes, nodes): symmetric, with ones on the diagonal."""
        lower, upper = self.edges.T.astype(np.int32)
        loops = np.arange(self.num_nodes, dtype=np.int32)
        rows = np.concatenate([lower, upper, loops])
        columns = np.concatenate([upper, lower, loops])
        ones = np.ones(len(rows), dtype=np.float32)
        return scipy.sparse.csr_matrix((ones, (rows, columns)), shape=(self.num_nodes, self.num_nodes))

    @cached_property
    def fingerprint(self) -> str:
        """Return the SHA-256 of edges, labels, features and a fixed split. The name does not matter."""
        features = self.features
        arrays = [self.edges, self.labels]
        if isinstance(features, np.ndarray):
            arrays.append(features)
        else:
            # Fix the integer width: scipy chooses 32 or 64 bits for index arrays.
            arrays += [features.indptr.astype(np.int64), features.indices.astype(np.int64), features.data]
        digest = hashlib.sha256(repr(features.shape).encode())
        for key, array in self.fixed.items():
            digest.update(key.encode())
            arrays.append(array)
        if self.kind == "unchanged":
            digest.update(b"unchanged")
        for array in arrays:
            digest.update(f"{array.dtype.str}{array.shape}".encode())
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()

    @classmethod
    def from_pyg(
        cls,
        data: Any,
        *,
        name: str,
        class_names: Sequence[str] | None = None,
        counts: Literal[False] | None = None,
    ) -> Dataset:
        """Make a dataset from a PyTorch Geometric ``Data``, or from a PyG dataset of one graph.

        If some edges are given in one direction only, a warning tells you that they count in both.

        Args:
            data: A graph with ``x``, ``y`` and ``edge_index`` or ``adj_t``. NaN and -1 in ``y`` mean that a
                node has no label. ``x`` may be dense or sparse. Masks and ``edge_weight`` are not used.
            name: The name of the graph.
            class_names: ``class_names[label]`` is the name of a class. By default, the labels are the names.
            counts: By default, word counts are recognised by their values, and methods that need few columns
                reduce wide features by an SVD. Give False to use all columns unchanged.

        Returns:
            The dataset.

        Raises:
            UserError: An array is missing or invalid.

        Example:
            >>> import torch
            >>> from torch_geometric.data import Data
            >>> edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
            >>> data = Data(x=torch.eye(3), y=torch.tensor([5, 7, -1]), edge_index=edge_index)
            >>> Dataset.from_pyg(data, name="mine").class_names
            ('5', '7')
        """
        from hagmeta.datasets.formats import in_memory

        return cls(name, *in_memory.from_pyg(data, name, class_names, counts))

    @classmethod
    def from_networkx(
        cls, graph: Any, *, name: str, label: str | None = "label", features: str | Sequence[str] = "x"
    ) -> Dataset:
        """Make a dataset from a networkx graph of any kind.

        If some edges of a directed graph have no reverse, a warning tells you that they count in both
        directions.

        Args:
            graph: The networkx graph. Its nodes become ``node_ids``; parallel edges are merged.
            name: The name of the graph.
            label: The node attribute with the class. Nodes without it, or with None, NaN or -1, have no
                label. Give None if no node has a label.
            features: A node attribute with a vector, or a list of attributes with one number each.

        Returns:
            The dataset.

        Raises:
            UserError: An attribute is missing or invalid.

        Example:
            >>> import networkx
            >>> graph = networkx.karate_club_graph()
            >>> networkx.set_node_attributes(graph, dict(graph.degree), "degree")
            >>> Dataset.from_networkx(graph, name="karate", label="club", features=["degree"]).class_names
            ('Mr. Hi', 'Officer')
        """
        from hagmeta.datasets.formats import in_memory

        return cls(name, *in_memory.from_networkx(graph, name, label, features))

    @classmethod
    def from_arrays(
        cls,
        edges: Any,
        labels: Any,
        features: Any,
        *,
        name: str,
        class_names: Sequence[str] | None = None,
        node_ids: Sequence[Any] | None = None,
        feature_names: Sequence[str] | None = None,
        counts: Literal[False] | None = None,
    ) -> Dataset:
        """Make a dataset from arrays, lists or tensors.

        Edges may be given once or in both directions. If you mix the two, a warning tells you that all edges
        count in both directions.

        Args:
            edges: The edges (edges, 2), as node numbers from 0.
            labels: The labels (nodes,), as strings or integers. None, NaN, -1 and the empty string mean no
                label. Give None instead of a list if no node has a label.
            features: The features (nodes, features): an array, tensor or data frame, or a sparse matrix or
                tensor.
            name: The name of the graph.
            class_names: ``class_names[label]`` is the name of a class. Use it with integer labels.
            node_ids: A unique name for each node.
            feature_names: A unique name for each feature.
            counts: By default, word counts are recognised by their values. Give False to use all columns
                unchanged; see ``from_pyg``.

        Returns:
            The dataset.

        Raises:
            UserError: An array has an invalid shape, type or value.

        Example:
            >>> edges, features = [[0, 1], [1, 2]], [[1.0, 0.5], [0.0, 1.0], [2.0, 1.0]]
            >>> dataset = Dataset.from_arrays(edges, ["sun", "moon", None], features, name="mine")
            >>> dataset.labels, dataset.class_names
            (array([ 1,  0, -1]), ('moon', 'sun'))
            >>> dataset.identity
            'mine@25ef2dd101f1'
        """
        from hagmeta.datasets.formats import in_memory

        return cls(
            name,
            *in_memory.from_arrays(
                edges, labels, features, name, class_names, node_ids, feature_names, counts
            ),
        )

    @classmethod
    def from_csv(
        cls,
        nodes: str | os.PathLike[str],
        edges: str | os.PathLike[str],
        *,
        name: str | None = None,
        id: str = "id",
        label: str | None = "label",
        text: str | None = None,
        numeric: Sequence[str] = (),
    ) -> Dataset:
        """Make a dataset from a node table and an edge list, like `hagmeta datasets convert`.

        The call prints notes about the files to standard error, such as the number of repeated edges.

        Args:
            nodes: A CSV file with a header and one line per node.
            edges: A CSV file with two node ids per line.
            name: The name of the graph. The default is the file name of ``nodes`` without its suffix.
            id: The column with node ids. They become ``node_ids``.
            label: The column with classes. Empty cells and -1 mean no label. None means that there is no such
                column.
            text: The column whose words become features.
            numeric: The columns that become features. If ``text`` and ``numeric`` are not given, all columns
                except ``id`` and ``label`` become features.

        Returns:
            The dataset.

        Raises:
            UserError: A file is missing or invalid. The message gives file, line and column.

        Example:
            >>> import tempfile
            >>> from pathlib import Path
            >>> kept = tempfile.TemporaryDirectory()
            >>> folder = Path(kept.name)
            >>> _ = (folder / "nodes.csv").write_text("id,label,x\\na,sun,1.5\\nb,moon,2.5\\n")
            >>> _ = (folder / "edges.csv").write_text("a,b\\n")
            >>> Dataset.from_csv(folder / "nodes.csv", folder / "edges.csv").node_ids
            ('a', 'b')
        """
        from hagmeta.datasets.formats import in_memory
        from hagmeta.datasets.formats.convert import Columns

        name = Path(nodes).stem if name is None else name
        columns = Columns(id, label, text, tuple(numeric), needs_labels=label is not None)
        return cls(name, *in_memory.from_csv(nodes, edges, name, columns))


def make_dataset(
    name: str,
    edges: Any,
    labels: Any,
    features: Any,
    class_names: Sequence[str] | None = None,
    *,
    counts: Literal[False] | None = None,
    source: str,
) -> Dataset:
    """Make a dataset from raw arrays; :func:`hagmeta.datasets.formats.arrays.clean_graph` checks them."""
    return Dataset(name, *clean_graph(edges, labels, features, class_names, counts=counts, source=source))
