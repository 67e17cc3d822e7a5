"""Figures of the result pages and of README come from archives."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import stored_results as stored
from generated import MARK

from analysis.references.archives import names

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "docs/results" / f"{name}.md" for name in ("eleven_graphs", "regimes", "confirmation")]
README = ROOT / "README.md"
TYPED = re.compile(r"<!-- value: (?P<argument>[^>]+?) -->(?P<text>[^<]*)<!-- -->")


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_no_figure_of_a_generated_page_is_typed(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert "±" not in text
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert not [row for row in rows if re.search(r"(?<!\d)\d{1,2}\.\d(?!\d)", stored.VALUE.sub("", row))]


@pytest.mark.parametrize("table", sorted(stored.TABLES))
def test_every_table_names_archive_revision_and_commit(table: str) -> None:
    archive = "regimes-11" if table == "changes" else "planned-tuned"
    conditions = " rehearsal=none methods=posterior-means" if table == "changes" else ""
    *lines, last = stored.results(f"{archive} {table}{conditions}").splitlines()
    assert f"`{archive}`; posterior means revision" in last and "; commit " in last
    assert len({line.count("|") for line in lines if line}) == 1


def test_marks_of_pages_name_archives_and_tables() -> None:
    known = {*names(), "references-defaults", "references-tuned"}
    for path in PAGES:
        marks = [m["argument"].split() for m in MARK.finditer(path.read_text()) if m["name"] == "results"]
        assert marks and all(name in known and table in stored.TABLES for name, table, *_ in marks)


def test_the_planned_row_can_be_recomputed() -> None:
    row = stored.results("planned-tuned means").splitlines()[2]
    assert row.startswith("| **Posterior means** (ours) | 2.0 | **38.2** | **93.2** | **73.5** | **74.7** |")


def test_a_difference_is_paired_by_seed() -> None:
    runs = stored.runs_of("planned-tuned", ["graphs=bible"])
    rival, difference = stored.lead(runs, "Bible")
    scores = runs.scores("Bible")
    assert rival == scores.drop(columns=runs.ours).mean().idxmax()
    assert difference.to_list() == (scores[runs.ours] - scores[rival]).to_list()


def test_figures_of_readme_are_those_of_the_archives() -> None:
    found = list(TYPED.finditer(README.read_text(encoding="utf-8")))
    assert len(found) >= 8
    assert {m["argument"]: m["text"] for m in found} == {
        m["argument"]: stored.value(m["argument"]) for m in found
    }
