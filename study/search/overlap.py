"""Measure how many test labels of the fresh seeds the search has already used under its seeds.

Every seed splits the same graph differently. So a test node of a fresh seed may have been a train or
validation node when settings were chosen. No parameter learns from that label, but the choice of settings
may depend on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from hagmeta.config import RunConfig, resolve
from hagmeta.datasets.base import Dataset
from hagmeta.protocol.scenario import TEST
from hagmeta.protocol.splits import make_split
from hagmeta.protocol.streams import make_scenario


class Overlap(NamedTuple):
    """Shares, averaged over the fresh seeds."""

    nodes: float  # of their test nodes: train or val nodes of a known class under some seed of the search
    classes: float  # of the classes that arrive: base or novel-train under some seed of the search

    def __str__(self) -> str:
        return (
            f"{100 * self.nodes:.0f} % of the test nodes of the fresh seeds were train or validation nodes "
            f"of known classes under a seed of the search. {100 * self.classes:.0f} % of their novel-test "
            "classes were base or novel-train classes there. Those labels may have influenced the choice of "
            "settings, but no parameter"
        )


def overlap(dataset: Dataset, config: RunConfig, search: Sequence[int], fresh: Sequence[int]) -> Overlap:
    """Return the overlap of the splits under `search` seeds with those under `fresh` seeds.

    Args:
        dataset: The graph.
        config: The configuration whose splits are compared.
        search: Seeds of the search.
        fresh: Seeds of the confirmation.
    """
    config = resolve(
        replace(config, val_classes=0)
    )  # held-out classes are novel-train classes, and the search scores them
    seen = np.zeros(dataset.num_nodes, dtype=bool)
    met = np.zeros(dataset.num_classes, dtype=bool)
    for seed in search:
        split = make_split(dataset, config, seed)
        known = np.concatenate([split.base, split.novel_train])
        met[known] = True
        seen |= (split.role != TEST) & np.isin(dataset.labels, known)
    tests = [make_scenario(dataset, config, seed).test for seed in fresh]
    nodes = [seen[stream.queries[-1]].mean() for stream in tests]
    classes = [met[stream.arriving.ravel()].mean() for stream in tests]
    return Overlap(float(np.mean(nodes)), float(np.mean(classes)))
