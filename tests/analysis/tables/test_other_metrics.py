"""Metrics that records declare have columns and a table, without a line of code about them."""

from __future__ import annotations

from pathlib import Path

import pytest

from analysis.comparisons import Analysis
from analysis.data.reading import read
from analysis.page import explorer
from analysis.page.page import SECTIONS
from analysis.page.write import write_report
from analysis.tables.panels import make_tables
from analysis.tables.table import Table
from hagmeta.common.records.metrics import MetricDeclaration, to_record
from tests.analysis.conftest import Write

LIFT = MetricDeclaration("lift", "lift", by_session=True, shown=True)
COST = MetricDeclaration("cost", "cost of errors", by_session=False, higher_is_better=False, shown=True)


def curves(seeds: int) -> dict[int, list[float]]:
    return {seed: [0.8, 0.5 + seed / 100] for seed in range(seeds)}


def others(folder: Path) -> list[Table]:
    return [
        table for table in make_tables(Analysis(read([folder]))) if table.name.startswith("other-metrics")
    ]


def told(lift: list[float | None], cost: float | None, source: str = "0123456789ab") -> dict[str, object]:
    metrics = {each.name: to_record(each, f"{each.name}@{source}") for each in (LIFT, COST)}
    return {"lift": lift, "cost": cost, "metrics": metrics}


@pytest.fixture(scope="module")
def study(write_once: Write) -> Path:
    write_once(curves(6), record=told([None, 12.5], 3))
    write_once(curves(6), method="cec", record=told([2.0, 20.0], 7))
    write_once(curves(6), method="gpn")  # from before there were these metrics
    return write_once(curves(6), method="joint", record=told([99.0, 99.0], 0))


def test_declared_metrics_have_a_table_with_the_best_of_each_in_bold(study: Path) -> None:
    (table,) = others(study)
    assert table.columns == ["configuration", "seeds", "lift, last", "lift, average", "cost of errors"]
    rows = {row[0].text: [cell.text + "!" * cell.best for cell in row[2:]] for row in table.rows}
    assert rows == {
        "HAG-Meta": ["12.5 ± 0", "12.5 ± 0!", "3 ± 0!"],
        "CEC": ["20 ± 0!", "11 ± 0", "7 ± 0"],
        "GPN": ["", "", ""],
        "Joint (oracle)": ["99 ± 0", "99 ± 0", "0 ± 0"],
    }
    assert "Lower is better: cost of errors." in table.caption and table.section in SECTIONS
    assert not table.badge
    assert set(table.columns[2:]) <= set(table.numbers.columns)


def test_declared_metrics_have_the_same_texts_on_the_page_to_explore(study: Path) -> None:
    found = explorer.data(Analysis(read([study])))
    (panel,) = found["panels"]
    titles = [each["title"] for each in found["metrics"]]
    lift, cost = (panel["numbers"][titles.index(name)] for name in ("lift", "cost of errors"))
    place = [found["labels"][index] for index in panel["rows"]].index("CEC")
    assert lift["values"][place] == ["2", "0", "20", "0", "11", "0"]  # two sessions and their average
    assert cost["values"][place] == ["7", "0"]
    assert not found["metrics"][titles.index("cost of errors")]["higher"]


@pytest.mark.usefixtures("no_figures")
def test_declared_metrics_are_in_the_frame_and_the_files_of_a_report(study: Path, tmp_path: Path) -> None:
    results = read([study])
    own = results.sessions[results.sessions["label"] == "CEC"]
    assert set(own["metric lift lift@0123456789ab"]) == {2.0, 20.0}
    write_report([study], tmp_path / "report")
    (path,) = (tmp_path / "report" / "tables").glob("other-metrics-*.csv")
    assert "cost of errors" in path.read_text()
    assert "Other metrics: " in (tmp_path / "report" / "index.html").read_text()


def test_metrics_that_different_code_computed_are_told_apart(write: Write) -> None:
    write(curves(2), record=told([None, 12.5], 3))
    folder = write(curves(2), method="cec", record=told([2.0, 20.0], 7, source="fedcba987654"))
    (table,) = others(folder)
    assert {"cost of errors [012345]", "cost of errors [fedcba]"} <= set(table.columns)


def test_hidden_metrics_and_older_records_have_no_table(write: Write) -> None:
    hidden = {"metrics": {"cost": to_record(COST, "Cost@0123456789ab") | {"shown": False}}, "cost": 1.0}
    assert not others(write(curves(2), record=hidden))
    assert not others(write(curves(2), study="older"))
