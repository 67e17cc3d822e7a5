"""Figures of the result pages and of README come from archives."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import readme
import stored_results as stored
import summaries
import yaml
from generated import MARK, expanded

from analysis.references.archives import names

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted((ROOT / "docs/results").glob("*.md"))


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_no_figure_of_a_generated_page_is_typed(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert "±" not in text
    shown = re.sub(r"\$\$.*?\$\$|```.*?```", "", stored.VALUE.sub("", text), flags=re.DOTALL)
    shown = re.sub(r"`[^`]*`|\$[^$]*\$|arXiv [\d.]+", "", shown)
    typed = [line for line in shown.splitlines() if re.search(r"(?<!\d)\d{1,2}\.\d(?!\d)", line)]
    assert all(path.stem == "our_method" and "|" not in line for line in typed)  # constants of the method


@pytest.mark.parametrize(
    "table",
    [
        pytest.param(name, marks=pytest.mark.slow if name == "verdicts" else ())
        for name in sorted(stored.TABLES)
    ],
)
def test_every_table_names_archive_revision_and_commit(table: str) -> None:
    archive = {"main": "references-defaults", "controls": "planned-controls"}.get(table, "planned-tuned")
    *lines, last = stored.results(f"{archive} {table}").splitlines()
    assert f"`{archive}`; posterior means revision" in last and "; commit " in last
    assert len({line.count("|") for line in lines if line}) == 1


def test_marks_of_pages_name_archives_and_tables() -> None:
    known = {*names(), "references-defaults", "references-tuned"}
    found = [m for path in PAGES for m in MARK.finditer(path.read_text())]
    marks = [m["argument"].split() for m in found if m["name"] == "results"]
    assert {m["name"] for m in found} == {*summaries.GENERATORS, "results", "archives"}
    assert {table for _, table, *_ in marks} == set(stored.TABLES)
    assert all(set(re.split(r"[+]", name.partition("@")[0])) <= known for name, *_ in marks)


def test_a_part_of_an_archive_is_tested_alone() -> None:
    alone = stored.runs_of("planned-tuned@bible")
    assert alone.graphs == ["Bible"] and len(alone.everything) == len(alone.records) == 120
    assert set(stored.verdicts(alone).splitlines()[2].split(" | ")) >= {"| Bible", "none |"}


def test_a_condition_on_revisions_leaves_rivals() -> None:
    both = stored.runs_of("regimes-12+planned-controls", ["rehearsal=none", "graphs=bible", "revision=12"])
    assert both.rows["method"].nunique() == 5 and len(both.rows) == 50
    assert {r["revisions"]["method"] for r in both.records if r["config"]["method"] == stored.OURS} == {12}


def test_regimes_are_means_of_the_archives() -> None:
    runs = stored.runs_of("regimes-12", ["rehearsal=none", "graphs=kanji"])
    row = next(line for line in summaries.regimes("12 macro").splitlines() if line.startswith("| Kanji"))
    assert row.split(" | ")[2] == f"{runs.rows['macro'].mean():.1f}"
    change = next(
        line for line in summaries.revisions("11 12").splitlines() if "no rehearsal | macro" in line
    )
    assert " | 15 | " in change and "Wikispeedia" in change


def test_the_rule_decides_which_parts_stay() -> None:
    rows = [line.strip("| ").split(" | ") for line in summaries.ablation().splitlines()]
    verdicts = {row[1]: row[-1] for row in rows if len(row) == 7}
    assert verdicts["`refitted: false`"] == "yes" and verdicts["`tukey: 1`"] == "no"


def test_a_printed_cell_shows_all_that_was_kept() -> None:
    table = summaries.printed("attention")
    assert "| `nla_weights: oracle` | +1.5 [+1.0, +2.1]\\* |" in table
    assert "57.7 (+0.7 ± 0.7)" in summaries.printed("encoders")


def test_values_in_a_text_are_replaced() -> None:
    assert expanded("{value}`planned-tuned highest` of {value}`planned-tuned graphs`") == "9 of 11"


def test_the_planned_row_can_be_recomputed() -> None:
    row = stored.results("planned-tuned means").splitlines()[2]
    assert row.startswith("| **Posterior means** (ours) | 2.0 | **38.2** | **93.2** | **73.5** | **74.7** |")


def test_a_difference_is_paired_by_seed() -> None:
    runs = stored.runs_of("planned-tuned", ["graphs=bible"])
    rival, difference = stored.lead(runs, "Bible")
    scores = runs.scores("Bible")
    assert rival == scores.drop(columns=runs.ours).mean().idxmax()
    assert difference.to_list() == (scores[runs.ours] - scores[rival]).to_list()


def test_readme_is_filled_in() -> None:
    """If not: `python docs/_ext/readme.py`."""
    text = readme.README.read_text(encoding="utf-8")
    assert len(readme.VALUE.findall(text)) >= 8
    assert readme.filled(text) == text
    # A comment at the start of a line turns the line into HTML, so that its links are not rendered.
    assert re.findall(r"^\s*<!-- value: (.+?) -->", text, re.MULTILINE) == ["leaderboard"]


def test_readme_types_no_result() -> None:
    text = readme.VALUE.sub("", readme.README.read_text(encoding="utf-8"))
    prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    assert not re.search(r"±|(?<![\d.])\d{1,2}\.\d(?![\d.])", re.sub(r"Python [\d.]+ or [\d.]+", "", prose))


def test_the_leaderboard_has_the_first_methods_and_the_bounds() -> None:
    rows = [line.strip("| ").split(" | ") for line in readme.leaderboard().splitlines() if line[:1] == "|"][
        2:
    ]
    runs = stored.runs_of("references-tuned")
    ranks = runs.over_graphs.ranks.mean().sort_values()
    assert [row[0] for row in rows] == [*ranks.index[:10], "*Joint*", "*Frozen*"]
    assert rows[0][2] == f"{runs.rows.groupby(['label', 'graph'])['macro'].mean()[ranks.index[0]].mean():.1f}"


@pytest.mark.slow
def test_the_python_of_readme_prints_what_it_shows(capsys: pytest.CaptureFixture[str]) -> None:
    text = readme.README.read_text(encoding="utf-8")
    (code,), (shown,) = (re.findall(rf"```{kind}\n(.*?)```", text, re.DOTALL) for kind in ("python", "text"))
    assert len(code.splitlines()) == 9
    exec(code, {})
    # Digits differ by machine.
    shape = [re.sub(r"\d", "0", each) for each in (capsys.readouterr().out, shown)]
    assert shape[0].startswith(shape[1])


def test_readme_cites_this_version_and_the_paper() -> None:
    told = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    text = readme.README.read_text(encoding="utf-8")
    assert {told["title"], told["version"], told["references"][0]["doi"]} <= set(
        re.findall(r"{([^{}]+)}", text)
    )
