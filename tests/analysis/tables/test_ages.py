from __future__ import annotations

from collections import Counter

import pytest

from analysis.comparisons import Analysis
from analysis.data.reading import read
from analysis.tables.diagnostics import NEW, OLD, ages_table
from analysis.tables.panels import make_tables
from tests.analysis.conftest import Write


def test_old_and_new_nodes_are_averaged_over_sessions_and_paired_by_seed(write: Write) -> None:
    for seed, new in ((0, [None, 0.5, 0.3]), (1, [None, 0.4, None])):
        old = [None, 0.6, 0.8 if new[2] else None]
        write({seed: [0.8, 0.7, 0.6]}, method="frozen", protocol="growing", record={OLD: old, NEW: new})
    folder = write({0: [0.8, 0.7, 0.6]}, method="frozen", protocol="strict")
    grows, strict = sorted(read([folder]).panels, key=lambda panel: panel.runs["protocol"].iloc[0])
    assert ages_table(strict, strict.labels) is None
    table = ages_table(grows, grows.labels)
    assert table is not None
    ((_, before, now, apart),) = table.rows
    # Seed 0: 0.7 and 0.4 over two sessions. Seed 1: 0.6 and 0.4 in the first.
    assert [before.value, now.value, apart.value] == pytest.approx([0.65, 0.4, -0.25])
    assert apart.text.startswith("-25.0 [")
    tables = {each.name: each for each in make_tables(Analysis(read([folder])))}
    assert [name for name in tables if name.startswith("ages")] == [table.name]


def test_a_growing_graph_is_no_side_of_strict_and_released(write: Write) -> None:
    # The figure of the two pairs runs by seed: one that did not run on a growing graph must stay.
    for protocol, seeds in (("strict", (0, 1)), ("released", (0, 1)), ("growing", (1, 2))):
        folder = write({seed: [0.8, 0.7] for seed in seeds}, method="frozen", protocol=protocol)
    (setting,) = Analysis(read([folder])).protocols
    assert Counter(setting.runs["protocol"]) == {"strict": 2, "released": 2}
