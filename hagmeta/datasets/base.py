"""What every source of data yields."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse


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
