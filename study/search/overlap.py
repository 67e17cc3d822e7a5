"""Measure how many test labels of the fresh seeds the search has already used under its seeds.

Every seed splits the same graph differently. So a test node of a fresh seed may have been a train or
validation node when settings were chosen. No parameter learns from that label, but the choice of settings
may depend on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from hagmeta.config.run_config import RunConfig, resolve
from hagmeta.datasets.base import Dataset
from hagmeta.scenarios.scenario import TEST
from hagmeta.scenarios.splits import make_split
from hagmeta.scenarios.streams import make_scenario


class Overlap(NamedTuple):
    """Shares, averaged over the fresh seeds."""

    nodes: float  # of their test nodes: train or val nodes of a scored class under some seed of the search
    classes: float  # of the classes that arrive: scored under some seed of the search
    arriving: bool = False  # whether the search also scored classes that are novel-test under its seeds

    def __str__(self) -> str:
        of, met = ("classes", "met") if self.arriving else ("known classes", "base or novel-train classes")
        return (
            f"{100 * self.nodes:.0f} % of the test nodes of the fresh seeds were train or validation nodes "
            f"of {of} under a seed of the search. {100 * self.classes:.0f} % of their novel-test "
            f"classes were {met} there. Those labels may have influenced the choice of "
            "settings, but no parameter"
        )


def overlap(dataset: Dataset, config: RunConfig, search: Sequence[int], fresh: Sequence[int]) -> Overlap:
    """Return the overlap of the splits under `search` seeds with those under `fresh` seeds.

    Args:
        dataset: The graph.
        config: The configuration of the search, whose splits are compared.
        search: Seeds of the search.
        fresh: Seeds of the confirmation.
    """
    arriving = config.scored_on == "validation"
    # Held-out classes are novel-train classes, and the search scores them.
    config = resolve(config.replace(val_classes=0, scored_on="test"))
    seen = np.zeros(dataset.num_nodes, dtype=bool)
    met = np.zeros(dataset.num_classes, dtype=bool)
    for seed in search:
        split = make_split(dataset, config, seed)
        arrives = make_scenario(dataset, config, seed).test.arriving.ravel() if arriving else ()
        scored = np.concatenate([split.base, split.novel_train, arrives]).astype(int)
        met[scored] = True
        seen |= (split.role != TEST) & np.isin(dataset.labels, scored)
    tests = [make_scenario(dataset, config, seed).test for seed in fresh]
    nodes = [seen[stream.queries[-1]].mean() for stream in tests]
    classes = [met[stream.arriving.ravel()].mean() for stream in tests]
    return Overlap(float(np.mean(nodes)), float(np.mean(classes)), arriving)
