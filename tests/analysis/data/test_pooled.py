"""Compare the values of settings, averaged over all others."""

from __future__ import annotations

import itertools

import pytest

from analysis.data.pooled import pooled
from analysis.data.reading import read
from analysis.data.results import Results
from analysis.designs.design import RANKING, Design
from analysis.page.facts import notices
from analysis.report import Report
from hagmeta.common.errors import UserError
from tests.analysis.conftest import Write

SEEDS = range(8)
WAVE = (0.004, -0.003, 0.001, -0.002)


def accuracy(dropout: float, hidden: int, tla: bool, seed: int) -> float:
    """Return 40 + 4 without dropout + 2 with 64 units + 1 for TLA, in percent."""
    own = WAVE[(seed + hidden + int(10 * dropout)) % 4]
    return 0.4 + 0.04 * (dropout == 0) + 0.02 * (hidden == 64) + 0.01 * tla + 0.01 * seed + own


@pytest.fixture(scope="module")
def grid(write_once: Write) -> Results:
    for dropout, hidden, tla in itertools.product((0.5, 0.0), (16, 64), (True, False)):
        ends = {seed: (0.8, accuracy(dropout, hidden, tla, seed)) for seed in SEEDS}
        folder = write_once(ends, dropout=dropout, hidden=hidden, tla=tla)
        if tla:
            write_once({seed: (0.7, end - 0.1) for seed, (_, end) in ends.items()}, method="gpn",
                       dropout=dropout, hidden=hidden)  # fmt: skip
    return read([folder])


def test_values_are_averaged_over_all_other_settings(grid: Results) -> None:
    found = pooled(grid, ["dropout"])
    assert [panel.labels for panel in found.panels] == [["dropout 0", "dropout 0.5"]] * 2  # by method
    own = next(panel for panel in found.panels if set(panel.runs["method"]) == {"hag-meta"})
    for dropout, label in ((0.0, "dropout 0"), (0.5, "dropout 0.5")):
        for seed in SEEDS:
            cells = [accuracy(dropout, *cell, seed) for cell in itertools.product((16, 64), (True, False))]
            assert own.by_seed("last")[label][seed] == pytest.approx(sum(cells) / 4)
    assert own.by_seed("score", 1).equals(own.by_seed("last"))
    assert found.pooled.startswith("means over all combinations of ")
    report = Report(found, (Design(RANKING),))
    test = report.comparisons.pair(own, "dropout 0.5", "dropout 0")
    assert test is not None and test.verdict == "significantly worse"
    assert test.mean == pytest.approx(-0.04, abs=0.004)


def test_two_settings_have_every_combination(grid: Results) -> None:
    (own,) = pooled(grid.where({"method": ["hag-meta"]}), ["tla", "hidden"]).panels
    assert own.labels == [f"TLA {tla}, hidden {hidden}" for tla in ("off", "on") for hidden in (16, 64)]
    (both,) = pooled(grid, ["method"]).panels
    assert set(both.labels) == {"HAG-Meta", "GPN"}


def test_methods_without_the_setting_are_left_out(grid: Results) -> None:
    assert set(pooled(grid, ["tla"]).runs["method"]) == {"hag-meta"}


def test_unbalanced_combinations_are_left_out(write: Write) -> None:
    write({0: (0.8, 0.4)}, hidden=16)
    folder = write({0: (0.8, 0.4)}, hidden=64, dropout=0.1)
    with pytest.raises(UserError, match="no combination of dropout ran with all values"):
        pooled(read([folder]), ["hidden"])


def test_an_effect_of_a_design_has_one_verdict_also_if_pooled(write: Write) -> None:
    for (hidden, rate), lift in zip(itertools.product((16, 64), (0.1, 0.01)), (0, 0, 1, 1), strict=True):
        lifts = [0.4 + lift * (0.001 + 0.002 * (seed % 4)) + seed / 100 for seed in SEEDS]
        ends = {seed: (0.8, end) for seed, end in zip(SEEDS, lifts, strict=True)}
        folder = write(ends, hidden=hidden, learning_rate=rate)
    whole = Report(read([folder]))
    (factorial,) = whole.factorials(whole.panels[0])
    effects = whole.comparisons.effects_of(factorial, "last")
    (name,) = (name for name in effects if name.startswith("hidden ") and " x " not in name)
    report = Report(pooled(whole.results, ["hidden"]), (Design(RANKING),), whole=whole)
    one, other = report.panels[0].labels[::-1]
    found = report.comparisons.pair(report.panels[0], one, other)
    expected = effects[name] if name == f"{other} to {one.split()[-1]}" else effects[name].turned()
    assert found == expected and not report.comparisons.reference.comparisons
    (summary,) = [table for table in report.tables if table.name.startswith("summary")]
    assert "single-step maximum" in summary.caption and "false discovery" not in summary.caption
    assert notices(report)[0].title == "Another choice of comparisons: --by hidden"


def test_a_grid_has_effects_per_method_largest_first(grid: Results) -> None:
    report = Report(grid)
    effects = [finding.values for finding in report.findings if finding.kind == "effect"]
    assert [each["name"] for each in effects[:3]] == ["dropout 0.5 to 0", "hidden 16 to 64", "TLA"] or [
        each["name"] for each in effects[:3]
    ] == ["dropout 0 to 0.5", "hidden 64 to 16", "TLA"]
    sizes = [abs(each["last"].mean) for each in effects[:3]]
    assert sizes == pytest.approx([0.04, 0.02, 0.01], abs=0.004)
    assert {each["title"].rpartition("; ")[2] for each in effects} == {"HAG-Meta", "GPN"}
    assert not any(finding.kind == "one at a time" for finding in report.findings)
    tables = {table.name: table for table in report.tables}
    names = [
        row[0].text for row in next(t for n, t in tables.items() if "hag-meta" in n and "effects" in n).rows
    ]
    assert {"dropout x hidden", "dropout x TLA"} & set(names) and len(names) == 7


def test_many_values_have_the_range_and_the_steps(write: Write) -> None:
    for hidden, dropout in itertools.product((16, 64, 128), (0.5, 0.0)):
        folder = write(
            {s: (0.8, 0.4 + hidden / 1000 + s / 100) for s in SEEDS}, hidden=hidden, dropout=dropout
        )
    report = Report(read([folder]))
    (factorial,) = report.factorials(report.panels[0])
    last = report.comparisons.effects_of(factorial, "last")
    found = {
        name: each.mean for name, each in last.items() if name.startswith("hidden ") and " x " not in name
    }
    first, *steps = found.values()
    assert len(found) == 3 and first == pytest.approx(sum(steps)) and abs(first) == pytest.approx(0.112)
