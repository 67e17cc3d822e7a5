"""Statistics of a dataset: counts, class sizes, degrees, homophily and linear models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from hagmeta.datasets.base import UNLABELLED, Dataset, DatasetInfo
from hagmeta.datasets.descriptions.probes import Probe, probe

QUANTILES = {"min": 0.0, "25%": 0.25, "median": 0.5, "75%": 0.75, "90%": 0.9, "99%": 0.99, "max": 1.0}
LISTED = 20  # with more classes, only the largest and the smallest are listed
ENDS = 8  # largest classes to list, and smallest

Row: TypeAlias = tuple[str, int]  # name and number of nodes


@dataclass(frozen=True)
class Fold:
    """The classes of medium size, summarised in one row."""

    classes: int
    least: int
    most: int
    nodes: int


@dataclass(frozen=True)
class Summary:
    """The statistics of one dataset."""

    name: str
    about: str
    nodes: int
    edges: int
    features: int
    features_described: str
    classes: list[Row]  # the largest first
    unlabelled: int
    homophily: float  # among edges between labelled nodes, the share within a class
    homophily_by_chance: float  # the expected value if edge ends were shuffled
    isolated: int
    degree_quantiles: dict[str, int]
    without_features: int
    probes: list[Probe]

    @property
    def chance(self) -> float:
        """Return the macro accuracy of random guesses."""
        return 1 / len(self.classes)

    def listed_classes(self) -> list[Row | Fold]:
        """Return all classes if there are few; otherwise the largest, a summary row and the smallest."""
        if len(self.classes) <= LISTED:
            return list(self.classes)
        between = [size for _, size in self.classes[ENDS:-ENDS]]
        fold = Fold(len(between), between[-1], between[0], sum(between))
        return [*self.classes[:ENDS], fold, *self.classes[-ENDS:]]


def summary_of(dataset: Dataset, info: DatasetInfo) -> Summary:
    """Compute the statistics of ``dataset``. The linear models take most of the time."""
    sizes = dataset.class_sizes
    degree = np.bincount(dataset.edges.ravel(), minlength=dataset.num_nodes)
    homophily, by_chance = _homophily(dataset)
    quantiles = np.quantile(degree, list(QUANTILES.values()), method="lower")
    features = dataset.features
    filled = (features != 0).sum(axis=1) if isinstance(features, np.ndarray) else features.getnnz(axis=1)
    return Summary(
        name=dataset.name,
        about=info.description,
        nodes=dataset.num_nodes,
        edges=len(dataset.edges),
        features=dataset.num_features,
        features_described=dataset.features_described,
        classes=[(dataset.class_names[c], int(sizes[c])) for c in np.argsort(-sizes, kind="stable")],
        unlabelled=dataset.num_nodes - int(sizes.sum()),
        homophily=homophily,
        homophily_by_chance=by_chance,
        isolated=int(np.sum(degree == 0)),
        degree_quantiles=dict(zip(QUANTILES, map(int, quantiles), strict=True)),
        without_features=int(np.sum(filled == 0)),
        probes=probe(dataset),
    )


def _homophily(dataset: Dataset) -> tuple[float, float]:
    """Return edge homophily and its expected value; both are 0 if no edge joins two labelled nodes."""
    joined = dataset.labels[dataset.edges]  # (edges, 2) classes
    joined = joined[(joined != UNLABELLED).all(axis=1)]
    if len(joined) == 0:
        return 0.0, 0.0
    ends = np.bincount(joined.ravel())
    return float(np.mean(joined[:, 0] == joined[:, 1])), float(np.sum((ends / ends.sum()) ** 2))
