"""What every source of data yields."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from hagmeta.common.identity import DIGITS
from hagmeta.datasets.clean import UNLABELLED, Features, clean_graph

__all__ = ["UNLABELLED", "Dataset", "DatasetInfo", "make_dataset"]


@dataclass(frozen=True)
class DatasetInfo:
    """What is known of a dataset before it is loaded; None where only loading will tell."""

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
    on_disk: bool = True  # or made on the spot: loading it needs no network
    revision: int = 1  # raise it when the same name would load another graph


@dataclass(frozen=True)
class Dataset:
    """A graph with features, whose nodes have one class each or none.

    The graph is undirected and simple: ``edges`` holds every pair once, smaller node first, without
    self-loops. Labels are consecutive; ``class_names[label]`` is what the source called the class. A node
    whose label is ``UNLABELLED`` is context: it is visible from the start, and never learnt from or asked.

    Make one from data in memory with ``from_pyg``, ``from_networkx``, ``from_arrays`` or ``from_csv``.
    """

    name: str
    edges: np.ndarray  # (edges, 2) int64
    labels: np.ndarray  # (nodes,) int64, 0 ... classes - 1, or UNLABELLED
    features: Features  # (nodes, features) float32
    class_names: tuple[str, ...]
    node_ids: tuple[Any, ...] | None = None  # what the source calls the nodes
    feature_names: tuple[str, ...] | None = None
    # The name that loads it. Not an argument: a changed copy is another graph, and has none.
    origin: str | None = field(default=None, init=False)

    @property
    def identity(self) -> str:
        """Name the graph in configurations and records: its origin, or its name and what is in it."""
        return self.origin if self.origin is not None else f"{self.name}@{self.fingerprint[:DIGITS]}"

    @property
    def num_nodes(self) -> int:
        return len(self.labels)

    @property
    def num_features(self) -> int:
        return int(self.features.shape[1])

    @property
    def num_classes(self) -> int:
        return len(self.class_names)

    @property
    def class_sizes(self) -> np.ndarray:
        """Count the nodes (classes,) of every class."""
        return np.bincount(self.labels[self.labels != UNLABELLED], minlength=self.num_classes)

    @cached_property
    def has_counts(self) -> bool:
        """Whether features are like counts of words, sparse and not negative: what tf-idf and svd need.

        A search asks this before it samples ``inputs``; a run that is given others than raw is refused.
        """
        return not isinstance(self.features, np.ndarray) and bool((self.features.data >= 0).all())

    @cached_property
    def adjacency(self) -> scipy.sparse.csr_matrix:
        """(nodes, nodes) float32: 1 for every edge, in both directions, and for every node itself."""
        lower, upper = self.edges.T.astype(np.int32)
        loops = np.arange(self.num_nodes, dtype=np.int32)
        rows = np.concatenate([lower, upper, loops])
        columns = np.concatenate([upper, lower, loops])
        ones = np.ones(len(rows), dtype=np.float32)
        return scipy.sparse.csr_matrix((ones, (rows, columns)), shape=(self.num_nodes, self.num_nodes))

    @cached_property
    def fingerprint(self) -> str:
        """The SHA-256 of the content: equal for equal edges, labels and features, whatever the name."""
        features = self.features
        arrays = [self.edges, self.labels]
        if isinstance(features, np.ndarray):
            arrays.append(features)
        else:
            # scipy picks the width of its index arrays as it pleases.
            arrays += [features.indptr.astype(np.int64), features.indices.astype(np.int64), features.data]
        digest = hashlib.sha256(repr(features.shape).encode())
        for array in arrays:
            digest.update(f"{array.dtype.str}{array.shape}".encode())
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()

    @classmethod
    def from_pyg(cls, data: Any, *, name: str, class_names: Sequence[str] | None = None) -> Dataset:
        """Make a dataset from a PyTorch Geometric ``Data``, or from a PyG dataset of one graph.

        Args:
            data: a graph with ``x``, ``y`` and ``edge_index`` or ``adj_t``. NaN and -1 in ``y`` mean that a
                node has no label.
            name: what to call it.
            class_names: ``class_names[label]`` names a class; without it the names are the labels.

        Returns:
            The graph. Edges in one direction get their reverse, and a warning says so.

        Example:
            >>> import torch
            >>> from torch_geometric.data import Data
            >>> edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
            >>> data = Data(x=torch.eye(3), y=torch.tensor([5, 7, -1]), edge_index=edge_index)
            >>> Dataset.from_pyg(data, name="mine").class_names
            ('5', '7')
        """
        from hagmeta.datasets import in_memory

        return cls(name, *in_memory.from_pyg(data, name, class_names))

    @classmethod
    def from_networkx(
        cls, graph: Any, *, name: str, label: str = "label", features: str | Sequence[str] = "x"
    ) -> Dataset:
        """Make a dataset from a networkx graph of any kind.

        Args:
            graph: its nodes become ``node_ids``; parallel edges are merged.
            name: what to call it.
            label: the node attribute that holds the class. Nodes without it, or with None, NaN or -1, have
                no label.
            features: the node attribute that holds a vector, or a list of attributes that hold a number each.

        Returns:
            The graph. Edges in one direction get their reverse, and a warning says so.

        Example:
            >>> import networkx
            >>> graph = networkx.karate_club_graph()
            >>> networkx.set_node_attributes(graph, dict(graph.degree), "degree")
            >>> Dataset.from_networkx(graph, name="karate", label="club", features=["degree"]).class_names
            ('Mr. Hi', 'Officer')
        """
        from hagmeta.datasets import in_memory

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
    ) -> Dataset:
        """Make a dataset from arrays, lists or tensors.

        Args:
            edges: (edges, 2) numbers of nodes, counted from 0.
            labels: (nodes,) texts or whole numbers. None, NaN, -1 and the empty text mean no label.
            features: (nodes, features) numbers: an array, or a scipy or torch sparse matrix.
            name: what to call it.
            class_names: ``class_names[label]`` names a class, for labels that are numbers.
            node_ids: what to call the nodes, each once.
            feature_names: what to call the features.

        Returns:
            The graph. Each edge may be given once or in both directions. Where some are given in both
            and some in one, a warning says that all count in both.

        Example:
            >>> edges, features = [[0, 1], [1, 2]], [[1.0, 0.5], [0.0, 1.0], [2.0, 1.0]]
            >>> dataset = Dataset.from_arrays(edges, ["sun", "moon", None], features, name="mine")
            >>> dataset.labels, dataset.class_names
            (array([ 1,  0, -1]), ('moon', 'sun'))
            >>> dataset.identity
            'mine@25ef2dd101f1'
        """
        from hagmeta.datasets import in_memory

        return cls(
            name,
            *in_memory.from_arrays(edges, labels, features, name, class_names, node_ids, feature_names),
        )

    @classmethod
    def from_csv(
        cls,
        nodes: str | os.PathLike[str],
        edges: str | os.PathLike[str],
        *,
        name: str | None = None,
        id: str = "id",
        label: str = "label",
        text: str | None = None,
        numeric: Sequence[str] = (),
    ) -> Dataset:
        """Make a dataset from a table of nodes and an edge list, as `hagmeta datasets convert` does.

        Args:
            nodes: a file with a line per node, after a line of column names.
            edges: a file with two ids per line.
            name: what to call it; without it, the table's file name.
            id: the column of the nodes' ids, which become ``node_ids``.
            label: the column of classes. Nodes where it is empty or -1 have no label.
            text: the column whose words are the features.
            numeric: the columns that are the features. Without either, all but id and label.

        Returns:
            The graph. What was read and what was left out is printed to the standard error stream.

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
        from hagmeta.datasets import in_memory
        from hagmeta.datasets.convert import Columns

        name = Path(nodes).stem if name is None else name
        return cls(name, *in_memory.from_csv(nodes, edges, name, Columns(id, label, text, tuple(numeric))))


def make_dataset(
    name: str,
    edges: Any,
    labels: Any,
    features: Any,
    class_names: Sequence[str] | None = None,
    *,
    source: str,
) -> Dataset:
    """Make a dataset from arrays as a source gives them; see :func:`hagmeta.datasets.clean.clean_graph`."""
    return Dataset(name, *clean_graph(edges, labels, features, class_names, source=source))
