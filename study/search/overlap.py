"""How much of what the fresh seeds ask about the search has known by its labels, under its own seeds.

Every seed splits the same graph anew. So a test node of a fresh seed may have been a train or a val node
when settings were chosen. No parameter learns from that; the choice of settings may.
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
    """Shares, on average over the fresh seeds."""

    nodes: float  # of their test nodes: train or val nodes of a known class under some seed of the search
    classes: float  # of the classes that arrive: base or novel-train under some seed of the search

    def __str__(self) -> str:
        return (
            f"of the fresh seeds' test nodes {100 * self.nodes:.0f} % were train or validation nodes of "
            f"known classes under a seed of the search, and of their novel-test classes "
            f"{100 * self.classes:.0f} % were base or novel-train there: settings, not parameters, were "
            "chosen with those labels"
        )


def overlap(dataset: Dataset, config: RunConfig, search: Sequence[int], fresh: Sequence[int]) -> Overlap:
    """Of a configuration's split under the search's seeds with that under fresh ones."""
    config = resolve(replace(config, val_classes=0))  # classes held out are novel-train, and scored on
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
