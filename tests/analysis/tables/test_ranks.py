from __future__ import annotations

from typing import Any

import pytest

from analysis.comparisons import Analysis
from analysis.data.reading import read
from analysis.tables.designs import rank_tables
from tests.analysis.conftest import Write

LAST = {"hag-meta": 0.5, "proto-gcn": 0.6, "cec": 0.4}  # with rehearsal all
NONE = {"hag-meta": 0.5, "proto-gcn": 0.3, "cec": 0.4}


def curves(last: float) -> dict[int, list[float]]:
    return {seed: [0.9, 0.8, last + seed / 1000] for seed in range(6)}


def test_ranks_under_each_value_and_what_changes(write: Write) -> None:
    for method in LAST:
        write(curves(LAST[method]), method=method)
        folder = write(curves(NONE[method]), method=method, rehearsal="none")
        write(
            curves(0.7), method=method, visibility="whole", rehearsal="none"
        )  # two settings at once: left out
    (ranking,) = [each for each in Analysis(read([folder])).rankings if each.setting == "rehearsal"]
    assert ranking.values == ["all", "none"]
    assert ranking.ranks("all") == {"proto-gcn": 1, "hag-meta": 2, "cec": 3}
    assert ranking.ranks("none") == {"hag-meta": 1, "cec": 2, "proto-gcn": 3}
    assert ranking.changes("none")["proto-gcn"].mean() == pytest.approx(-0.3)
    assert ranking.agreement("none") == pytest.approx(-1 / 3)
    table = next(table for table in rank_tables(Analysis(read([folder]))) if "rehearsal" in table.title)
    assert table.columns == [
        "method",
        "rehearsal all",
        "rank",
        "rehearsal none",
        "rank",
        "none minus all",
        "verdict",
    ]
    assert table.notes[:1] == [
        "With rehearsal none instead of all, 3 of 3 methods change their rank (Kendall's tau -0.33). "
        "They are HAG-Meta 2 → 1, CEC 3 → 2, Proto-GCN 1 → 3."
    ]


def test_a_default_that_depends_on_the_method_is_told_by_its_value(write: Write) -> None:
    for method in LAST:
        folder = write(curves(LAST[method]), method=method, pretrain_on="base")
        write(curves(0.6), method=method, pretrain_on="known")
    (ranking,) = Analysis(read([folder])).rankings
    assert ranking.setting == "pretrain_on" and ranking.values == ["base", "known"]


@pytest.mark.parametrize("changes", [{"hidden": 64}, {"method": "gpn"}])
def test_nothing_to_rank(write: Write, changes: dict[str, Any]) -> None:
    write(curves(0.5))
    assert not list(Analysis(read([write(curves(0.6), **changes)])).rankings)
