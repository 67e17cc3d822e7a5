"""How far one method is significantly better than the best other, for every N and K."""

from __future__ import annotations

import pytest

from analysis.comparisons import Analysis
from analysis.data.reading import read
from analysis.data.results import Results
from analysis.figures.settings import draw_margins
from analysis.report import Report
from analysis.tables.margins import margin_tables, margins
from tests.analysis.conftest import Write
from tests.analysis.held import check

SEEDS = range(10)
WAVE = (0.004, -0.003, 0.001)


def curves(last: float, own: int = 0) -> dict[int, list[float]]:
    """Seeds with something in common, and something of a method's own."""
    return {seed: [0.9, 0.8, last + seed / 100 + WAVE[(seed + own) % 3]] for seed in SEEDS}


@pytest.fixture(scope="module")
def grid(write_once: Write) -> Results:
    """Ours leads clearly at K = 5; at K = 1 GPN is clearly ahead; at 3-way 1-shot iCaRL is level."""
    lasts = {
        (2, 1): {"posterior-means": 0.50, "gpn": 0.55, "icarl": 0.45},
        (2, 5): {"posterior-means": 0.60, "gpn": 0.55, "icarl": 0.50},
        (3, 1): {"posterior-means": 0.50, "gpn": 0.40, "icarl": 0.5005},
        (3, 5): {"posterior-means": 0.60, "gpn": 0.55, "icarl": 0.57},
    }  # in the first cell the highest is the reference, too, which all are compared with
    for (n_way, k_shot), methods in lasts.items():
        shape = {"n_way": n_way, "k_shot": k_shot, "sessions": 2}
        for own, (method, last) in enumerate(methods.items()):
            write_once(curves(last, own), method=method, **shape)
        folder = write_once(curves(0.9), method="joint", **shape)
    return read([folder])


def test_each_method_is_compared_with_itself_over_k(grid: Results) -> None:
    report = Report(grid)
    (table,) = (table for table in report.tables if table.name.startswith("shots"))
    shown = {(row[0].text, row[1].value): [cell.text for cell in row[2:]] for row in table.rows}
    assert len(shown) == len(report.comparisons.shots.comparisons) == 8
    (own,) = (label for label, n_way in shown if label.startswith("Posterior means") and n_way == 2)
    assert shown[own, 2] == ["5 minus 1", "+10.0 [+10.0, +10.0]", "significantly better"]
    assert shown["GPN", 2] == ["5 minus 1", "+0.0 [+0.0, +0.0]", "equivalent"]
    check(grid.folders[0])


def test_margins_are_over_the_best_other_that_is_no_oracle_and_tested_against_all(grid: Results) -> None:
    (found,) = margins(Analysis(grid))
    cells = {(cell.n_way, cell.k_shot): cell for cell in found.cells}
    assert {shape: cell.rival for shape, cell in cells.items()} == {
        (2, 1): "GPN",
        (2, 5): "GPN",
        (3, 1): "iCaRL",
        (3, 5): "iCaRL",
    }
    verdicts = {shape: cell.verdict for shape, cell in cells.items()}
    assert verdicts == {
        (2, 1): "significantly worse",
        (2, 5): "significantly better",
        (3, 1): "",
        (3, 5): "significantly better",
    }
    lead = cells[2, 5].lead
    assert lead.mean == pytest.approx(0.05, abs=0.001)
    assert lead.p < 1e-6  # every seed is on one side


def test_behind_any_one_is_behind_though_the_best_by_mean_is_not_the_one(write: Write) -> None:
    noisy = {seed: [0.9, 0.8, 0.53 + 0.2 * (-1) ** seed] for seed in SEEDS}  # best on average, and unsure
    for k_shot in (1, 5):
        for n_way in (2, 3):
            shape = {"n_way": n_way, "k_shot": k_shot, "sessions": 2}
            write(curves(0.45), method="posterior-means", **shape)
            write(curves(0.47, 1), method="gpn", **shape)
            folder = write(noisy, method="icarl", **shape)
    (found,) = margins(Analysis(read([folder])))
    assert [cell.rival for cell in found.cells] == ["iCaRL"] * 4
    assert [cell.worse_than for cell in found.cells] == [["GPN"]] * 4
    assert {cell.verdict for cell in found.cells} == {"significantly worse"}
    assert not found.cells[0].lead.significant


def test_a_cell_that_no_map_has_is_asked_who_leads_there(write: Write) -> None:
    # Ours is in one cell alone, so that there is no map; N, K and methods vary for all that.
    for n_way, k_shot in ((2, 1), (3, 5)):
        for own, method in enumerate(("gpn", "icarl", "cec")):
            folder = write(curves(0.5 + own / 10, own), method=method, n_way=n_way, k_shot=k_shot, sessions=2)
    write(curves(0.4), method="posterior-means", n_way=3, k_shot=5, sessions=2)
    results = read([folder])
    assert not margins(Analysis(results))
    tested = {frozenset(pair[1:]) for pair in Analysis(results).comparisons.configurations}
    assert frozenset(("GPN", "iCaRL")) in tested  # the reference is CEC


def test_the_table_and_the_heat_map_say_the_same(grid: Results) -> None:
    (table,) = margin_tables(Analysis(grid))
    rows = [[cell.text + cell.mark for cell in row] for row in table.rows]
    assert table.columns[2] == "Posterior means (transductive)"
    assert [row[-1] for row in rows] == [
        "significantly worse than GPN",
        "significantly better than all",
        "not better than all",
        "significantly better than all",
    ]
    assert any("queries among them, move its class means" in note for note in table.notes)
    (drawing,) = draw_margins(Analysis(grid))
    texts = [text.get_text() for text in drawing.figure.axes[0].texts]
    assert [text.split("\n")[0][-1] for text in texts] == ["▼", "▲", rows[2][5].split()[0][-1], "▲"]
    for text, row in zip(texts, rows, strict=True):
        mean, limits, rival = text.split("\n")
        assert f"{mean.split()[0]} {limits}" == row[5].rstrip("*") and rival == row[3]


def test_without_both_n_and_k_or_another_method_there_are_none(write: Write) -> None:
    for k_shot in (1, 5):
        folder = write(curves(0.5), method="gpn", n_way=2, k_shot=k_shot, sessions=2)
        write(curves(0.5), method="icarl", n_way=2, k_shot=k_shot, sessions=2)
        write(curves(0.5), method="gpn", n_way=3, k_shot=k_shot, sessions=2, study="alone")
        alone = write(curves(0.5), method="gpn", n_way=2, k_shot=k_shot, sessions=2, study="alone")
    assert not list(margins(Analysis(read([folder])))) and not list(margins(Analysis(read([alone]))))


def test_maps_share_the_report_s_budget(grid: Results) -> None:
    told = Analysis(grid).comparisons
    assert len(told.margins.comparisons) == 8
    assert told.tested == sum(len(each.comparisons) for each in told.families)
