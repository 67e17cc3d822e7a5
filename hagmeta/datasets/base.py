"""What every source of data yields."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse


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
class NodeDataset:
    """An attributed graph whose nodes carry one class each.

    The graph is undirected and simple: ``edges`` holds every pair once, smaller node first, without
    self-loops. Labels are consecutive; ``class_names[label]`` is what the source called the class.
    """

    name: str
    edges: np.ndarray  # (edges, 2) int64
    labels: np.ndarray  # (nodes,) int64, 0 ... classes - 1
    features: scipy.sparse.csr_matrix | np.ndarray  # (nodes, features) float32
    class_names: tuple[str, ...]

    @property
    def num_nodes(self) -> int:
        return len(self.labels)

    @property
    def num_features(self) -> int:
        return int(self.features.shape[1])

    @property
    def num_classes(self) -> int:
        return len(self.class_names)

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
