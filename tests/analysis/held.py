"""Compare the values of the findings of a report with the cells of its tables."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from analysis.data.reading import read
from analysis.data.results import Panel
from analysis.designs.factorials import MOMENTS
from analysis.page.facts import facts, notices
from analysis.report import Report
from analysis.statistics.inference import FEWEST_SEEDS, Difference
from analysis.tables.table import Cell, Table
from analysis.words import points

MOST_WORDS = 40  # in a sentence, with the names of configurations
EMPTY = re.compile(r"\bnan\b|\binf\b|None|: [.;,]|; ?[;.]|, ?[,.;]|\(\)|\[\]|  ")
Values = Mapping[str, Any]


class Page(Report):
    """A report whose tables can be asked by name and title."""

    def table(self, start: str, end: str = "") -> Table:
        (found,) = (each for each in self.tables if each.name.startswith(start) and each.title.endswith(end))
        return found

    def panel(self, title: str) -> Panel:
        (found,) = (panel for panel in self.panels if panel.title == title)
        return found


def check(folder: Path) -> Counter[str]:
    """Raise an AssertionError if a finding or a table is wrong; return the number of findings by kind."""
    page = Page(read([folder]))
    assert not page.results.damaged
    _no_holes(page)
    for panel in page.panels:
        _ranked(page, panel)
    for finding in page.findings:
        CHECKS[finding.kind](page, finding.values)
    return Counter(finding.kind for finding in page.findings)


def _no_holes(page: Page) -> None:
    sentences = [finding.text for finding in page.findings]
    texts = [*sentences, *(fact.value for fact in facts(page))]
    texts += [line for notice in notices(page) for line in notice.lines]
    for table in page.tables:
        texts += [table.title, table.caption, *table.notes, *table.columns]
        texts += [cell.text for row in table.rows for cell in row if cell.text]
    for text in texts:
        assert text and not EMPTY.search(text), text
    for text in sentences:
        for sentence in re.split(r"(?<=\.) (?=[A-Z0-9])|^On .*?: ", text):
            assert len((sentence or "").split()) <= MOST_WORDS, sentence


def _ends(panel: Panel, label: str) -> pd.Series:
    return panel.runs[panel.runs["label"] == label].set_index("seed")["last"]


def _ranked(page: Page, panel: Panel) -> None:
    """Rows are in the order of their ranks, and bold are the first ones, down to a significant difference."""
    table = page.table("summary", panel.title)
    counts = sorted((len(_ends(panel, label)) for label in panel.labels), reverse=True)
    if "rank" not in table.columns:
        return
    ranks = {name: int(cell.text) for name, cell in _column(table, "rank").items() if cell.text}
    assert list(ranks.values()) == sorted(ranks.values()) and not set(ranks) & panel.oracles
    scores = {label: _ends(panel, label) for label in ranks}
    if len({tuple(sorted(each.index)) for each in scores.values()}) == 1:  # all have all seeds
        means = pd.Series({label: each.mean() for label, each in scores.items()}).round(10)
        assert means.rank(ascending=False, method="min").astype(int).to_dict() == ranks
    assert bool(table.badge) == (counts[1] < FEWEST_SEEDS), counts
    bold = {row[0].text for row in table.rows if any(cell.best for cell in row)}
    if bold:
        best = table.rows[0][0].text
        tests = {label: page.comparisons.pair(panel, best, label) for label in panel.rivals if label != best}
        assert not table.badge and all(test and test.tested for test in tests.values())
        ordered = [row[0].text for row in table.rows[1:] if row[0].text in tests]
        worse = [label for label in ordered if tests[label].verdict == "significantly better"]
        assert bold == {best, *(ordered[: ordered.index(worse[0])] if worse else ordered)}


def _column(table: Table, name: str) -> dict[str, Cell]:
    """Return the cells of a column by the text of the first one in their row."""
    place = table.columns.index(name)
    return {row[0].text: row[place] for row in table.rows}


def _same(found: Difference, shown: Cell, verdict: Cell) -> None:
    """The cells show the mean, the interval and the verdict of a difference."""
    if shown.text.startswith("same as "):
        return
    assert shown.text.startswith(points(found)) and verdict.value == found.verdict, (found, shown, verdict)


def _few_seeds(page: Page, values: Values) -> None:
    counts = [sorted(panel.runs["label"].value_counts(), reverse=True)[:2][-1] for panel in page.panels]
    assert values["seeds"] == max(counts) < FEWEST_SEEDS


def _best(page: Page, values: Values) -> None:
    panel = page.panel(values["title"])
    table, tests = page.table("summary", panel.title), values["tests"]
    ranks = _column(table, "rank")
    assert set(values["best"]) == {label for label, cell in ranks.items() if cell.text == "1"}
    assert {*tests, values["best"][0]} == set(panel.rivals)
    gaps = _column(table, "gap to best")
    for label, test in tests.items():
        both = pd.concat([_ends(panel, values["best"][0]), _ends(panel, label)], axis=1).dropna()
        assert test.seeds == len(both)
        if len(both) == len(_ends(panel, label)) == len(_ends(panel, values["best"][0])):
            assert np.isclose(test.mean, -gaps[label].value), (label, test, gaps[label])


def _verdicts(page: Page, values: Values) -> None:
    table = page.table("effects", values["title"])
    place = table.columns.index(MOMENTS["last"])
    rows = {row[0].text: row for row in table.rows}
    for name, found in values["tests"].items():
        _same(found, rows[name][place], rows[name][place + 1])


def _effect(page: Page, values: Values) -> None:
    table = page.table("effects", values["title"])
    row = next(row for row in table.rows if row[0].text == values["name"])
    for moment, when in MOMENTS.items():
        place = table.columns.index(when.removeprefix("the "))
        _same(values[moment], row[place], row[place + 1])


def _interactions(page: Page, values: Values) -> None:
    table = page.table("effects", values["title"])
    place = table.columns.index("last session")
    rows = {row[0].text: row for row in table.rows}
    for name in values["names"]:
        same = rows[name][place].text.removeprefix("same as ")
        assert rows[same if same in rows else name][place + 1].value in (
            "significantly better",
            "significantly worse",
        )


def _across(page: Page, values: Values) -> None:
    start = "across-methods" if "reference" in values else f"across-effects-{values['moment']}"
    name = "" if "reference" in values else "-".join(["", *values["name"].split()]).rstrip("-")
    (table,) = (each for each in page.tables if each.name == start + name)
    shown = {row[0].text: row[-1].text for row in table.rows}
    assert values["verdicts"].items() <= shown.items()
    if "reference" in values:  # what this table says is what each dataset's own table says
        own = {panel.dataset: page.table("summary", panel.title) for panel in page.by_dataset.values()}
        for label, told in values["verdicts"].items():
            words = {name: _column(each, "verdict")[label].value for name, each in own.items()}
            for word in ("significantly better", "significantly worse", "equivalent"):
                there = [name for name, each in words.items() if each == word]
                expected = f"{word} on {'all' if len(there) == len(words) else ', '.join(there)}"
                assert (expected in told.split("; ")) == bool(there), (label, words, told)


def _ranks(page: Page, values: Values) -> None:
    table = page.table("over-datasets")
    verdicts = {row[0].text: row[2].text for row in table.rows}
    assert table.rows[0][0].text in values["best"] and np.isclose(table.rows[0][1].value, values["rank"])
    assert set(values["apart"]) == {
        label for label, verdict in verdicts.items() if verdict == "significantly worse"
    }


def _control(page: Page, values: Values) -> None:
    table = page.table("against-control")
    assert table.columns[1] == f"minus {values['control']}"
    assert values["verdicts"] == {row[0].text: row[-1].text for row in table.rows}


def _margins(page: Page, values: Values) -> None:
    table = page.table("margins", f"Margins of {values['method']}: {values['where']}")
    leads = sorted(row[5].value for row in table.rows if row[5].value is not None)
    assert np.allclose(leads, values["leads"])
    words = {"significantly better": "significantly better than all", "": "not better than all"}
    shown = Counter(
        "significantly worse" if row[-1].text.startswith("significantly worse") else row[-1].text
        for row in table.rows
    )
    if leads:
        assert shown == {words.get(verdict, verdict): n for verdict, n in values["verdicts"].items()}


def _protocols(page: Page, values: Values) -> None:
    for moment, when in MOMENTS.items():
        place = values["configuration"], f"{values['where']}, {when}"
        row = next(row for row in page.table("protocols").rows if (row[0].text, row[1].text) == place)
        _same(values[moment], row[4], row[5])


def _shots(page: Page, values: Values) -> None:
    rows = [
        row
        for row in page.table("settings", f"N-way K-shot: {values['where']}").rows
        if row[0].text == values["configuration"] and row[1].value == values["n_way"]
    ]
    (gain,) = (
        row
        for row in page.table("shots", f"What more labels gain: {values['where']}").rows
        if row[0].text == values["configuration"] and row[1].value == values["n_way"]
    )
    assert gain[2].text == f"{values['many']} minus {values['few']}"
    _same(values["last"], *gain[3:])
    ends = {int(row[2].value): row[5].value for row in rows}
    assert (min(ends), max(ends)) == (values["few"], values["many"])
    seeds = {row[3].value for row in rows}
    if seeds == {values["last"].seeds}:  # paired over all seeds
        assert np.isclose(values["last"].mean, ends[values["many"]] - ends[values["few"]])


def _tuning(page: Page, values: Values) -> None:
    rows = {row[0].text: row for row in page.table("tuning").rows if row[1].text == values["title"]}
    for name, test in values["tests"].items():
        _same(test, *rows[name][4:])


def _one_at_a_time(page: Page, values: Values) -> None:
    table = page.table("sensitivity", values["title"])
    shown = {f"{row[0].text} {row[1].text}": row for row in table.rows if row[3].text != "reference"}
    assert shown.keys() == values["tests"].keys()
    for name, test in values["tests"].items():
        _same(test, *shown[name][3:5])
    sizes = {name: abs(row[3].value) for name, row in shown.items() if row[3].mark}
    assert (values["most"] in sizes and np.isclose(sizes[values["most"]], max(sizes.values()))) == bool(sizes)


def _bound(page: Page, values: Values) -> None:
    panel = page.panel(values["title"])
    tests = page.comparisons.against(panel, values["oracle"])
    assert any(test.verdict == "significantly better" for test in tests.values())


def _level(page: Page, values: Values) -> None:
    panel = page.panel(values["title"])
    runs = panel.runs[panel.runs["label"] == values["configuration"]]
    assert np.allclose([values["first"], values["last"]], [runs["first"].mean(), runs["last"].mean()])


def _more(page: Page, values: Values) -> None:
    assert values["left"] > 1


CHECKS: dict[str, Callable[[Page, Values], None]] = {
    **{"few seeds": _few_seeds, "more": _more, "best": _best, "bound": _bound, "level": _level},
    **{"effect": _effect, "interactions": _interactions, "one at a time": _one_at_a_time},
    **{"across methods": _across, "across effects": _across, "ranks": _ranks, "control": _control},
    **{"tuning": _tuning, "verdicts": _verdicts},
    **{"margins": _margins, "shots": _shots, "protocols": _protocols},
}
