"""Hold every sentence of a report against its tables.

Each sentence must have one of the forms below; what it says is read off the text and compared with the cells
of the table that it is about, and with means that are computed here from the records alone.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

from analysis.across import across_tables
from analysis.claims import claims
from analysis.designs import shots
from analysis.findings import findings
from analysis.frame import Panel, Results, read
from analysis.inference import FEWEST_SEEDS
from analysis.margins import margin_tables
from analysis.over_datasets import over_datasets, rating_table
from analysis.ranks import rank_tables
from analysis.report import facts, notices
from analysis.table import Table
from analysis.tables import make_tables

NUMBER = r"[+-]?\d+\.\d"
POINTS = rf"({NUMBER}(?: \[{NUMBER}, {NUMBER}\])?)"
EMPTY = re.compile(r"\bnan\b|\binf\b|None|: [.;,]|; ?[;.]|, ?[,.;]|\(\)|\[\]|  ")
VERDICTS = {
    "adds": "ahead",
    "costs": "behind",
    "makes": "equivalent",
    "undecided": "undecided",
    "changes": "too few seeds",
}


class Page:
    """The words and tables of one report."""

    def __init__(self, folder: Path) -> None:
        self.results: Results = read([folder])
        assert not self.results.damaged
        found = [
            *across_tables(self.results),
            *make_tables(self.results),
            *margin_tables(self.results),
            *rank_tables(self.results),
        ]
        rated = rating_table(self.results)
        self.tables: list[Table] = [*found, *([rated] if rated else [])]
        self.sentences = findings(self.results)
        self.panels = self.results.panels()

    def table(self, start: str, end: str) -> Table:
        (found,) = (
            table for table in self.tables if table.name.startswith(start) and table.title.endswith(end)
        )
        return found

    def panel(self, place: str | None) -> Panel:
        (found,) = (panel for panel in self.panels if place is None or panel.title == place)
        return found


def check(folder: Path) -> Counter[str]:
    """Raise an AssertionError where a sentence or a table is wrong; returns how many sentences were held."""
    page = Page(folder)
    held: Counter[str] = Counter()
    _no_holes(page)
    for panel in page.panels:
        _ranked(page, panel)
    for table in page.tables:
        _bold(page, table)
    _agreement(page)
    for sentence in page.sentences:
        held[_form(page, sentence)] += 1
    return held


def _no_holes(page: Page) -> None:
    texts = [*page.sentences, *(fact.value for fact in facts(page.results))]
    texts += [line for notice in notices(page.results) for line in notice.lines]
    for table in page.tables:
        texts += [table.title, table.caption, *table.notes, *table.columns]
        texts += [cell.text for row in table.rows for cell in row if cell.text]
    for text in texts:
        assert text and not EMPTY.search(text), text


def _ends(panel: Panel, label: str) -> pd.Series:
    return panel.runs[panel.runs["label"] == label].set_index("seed")["last"]


def _ranked(page: Page, panel: Panel) -> None:
    """Rows are in the order of their ranks, and who is behind on every common seed is not ranked before."""
    table = page.table("summary", panel.title)
    if "rank" not in table.columns:
        return
    place = table.columns.index("rank")
    ranks = {row[0].text: int(row[place].text) for row in table.rows if row[place].text}
    assert list(ranks.values()) == sorted(ranks.values())
    assert not set(ranks) & panel.oracles
    scores = {label: _ends(panel, label) for label in ranks}
    if len({tuple(sorted(each.index)) for each in scores.values()}) == 1:  # all have all seeds
        means = pd.Series({label: each.mean() for label, each in scores.items()}).round(10)
        assert means.rank(ascending=False, method="min").astype(int).to_dict() == ranks
    if len(ranks) == 2:
        (first, second) = sorted(ranks, key=lambda label: ranks[label])
        assert (scores[first] - scores[second]).mean() >= -1e-9, (first, second)
    counts = sorted((len(_ends(panel, label)) for label in panel.labels), reverse=True)
    assert bool(table.badge) == (counts[1] < FEWEST_SEEDS), counts


def _bold(page: Page, table: Table) -> None:
    """Bold are the first and what it is not ahead of; nothing where something was not tested."""
    bold = [row for row in table.rows if any(cell.best for cell in row)]
    if not bold or not table.name.startswith("summary"):
        return
    assert bold[0] is table.rows[0] and not table.badge
    panel = next(panel for panel in page.panels if table.title.endswith(panel.title))
    told, best = claims(page.results), table.rows[0][0].text
    for row in table.rows[1:]:
        test = told.pair(panel, best, row[0].text)
        if row[0].text in panel.oracles:
            assert row not in bold
        else:
            assert test is not None and test.tested and (row in bold) == (test.verdict != "ahead")


def _labels(text: str, known: list[str]) -> tuple[list[str], int]:
    """The names in «A, B, C» or «A and 5 others», and how many there are in all."""
    more = re.search(r" and (\d+) others$", text)
    if more:
        return [text[: more.start()]], 1 + int(more.group(1))
    found = []
    for label in sorted(known, key=len, reverse=True):
        if re.search(rf"(^|, ){re.escape(label)}($|, )", text):
            found.append(label)
            text = re.sub(rf"(^|, ){re.escape(label)}($|, )", r"\1\2", text, count=1).replace(", , ", ", ")
    assert not text.strip(", "), text
    return found, len(found)


def _form(page: Page, sentence: str) -> str:
    for kind, (pattern, hold) in FORMS.items():
        found = re.fullmatch(pattern, sentence)
        if found:
            hold(page, found)
            return kind
    raise AssertionError(f"no form: {sentence}")


def _look(page: Page, found: re.Match[str]) -> None:
    counts = [sorted(panel.runs["label"].value_counts(), reverse=True)[:2][-1] for panel in page.panels]
    assert int(found["seeds"]) == max(counts) < FEWEST_SEEDS


def _highest(page: Page, found: re.Match[str]) -> None:
    panel = page.panel(found["place"])
    told, table = claims(page.results), page.table("summary", panel.title)
    best = next(label for label in panel.labels if found["who"].startswith(label))
    place = table.columns.index("rank")
    row = next(row for row in table.rows if row[0].text == best)
    assert row[place].text == "1", row
    level = [row[0].text for row in table.rows if row[place].text == "1"]
    assert all(label in found["who"] for label in level)
    seen = 0
    for part in found["rest"].split("; "):
        words, verdict = next(each for each in GROUPS.items() if part.startswith(each[0]))
        labels, count = _labels(part.removeprefix(words), panel.rivals)
        seen += count
        for label in labels:
            test = told.pair(panel, best, label)
            assert test is not None
            assert ("none" if test.seeds == 0 else test.verdict) == verdict, (part, test)
    assert seen == len(panel.rivals) - 1


GROUPS = {
    "ahead of ": "ahead",
    "equivalent to ": "equivalent",
    "undecided against ": "undecided",
    "behind, on the seeds that both have, ": "behind",
    "not tested, for too few seeds, against ": "too few seeds",
    "without a common seed with ": "none",
}


def _leads(page: Page, found: re.Match[str]) -> None:
    panel = page.panel(found["place"])
    table, told = page.table("summary", panel.title), claims(page.results)
    best = table.rows[0][0].text
    assert found["who"] == best
    for label in panel.rivals:
        test = told.pair(panel, best, label)
        assert label == best or (test is not None and test.verdict == "ahead")


def _sensitivity(page: Page, found: re.Match[str]) -> None:
    panel = page.panel(found["place"])
    table = page.table("sensitivity", panel.title)
    rows = [row for row in table.rows if row[3].text != "reference"]
    verdicts = [row[4].text.split(":")[0].split(",")[0] for row in rows]
    settings = {row[0].text for row in rows}
    assert int(found["settings"]) == len(settings)
    moved = {
        row[0].text for row, verdict in zip(rows, verdicts, strict=True) if verdict in ("ahead", "behind")
    }
    untested = {"too few seeds", "no common seed"}
    if found["untested"]:
        assert set(verdicts) <= untested
        candidates = [row for row in rows if row[3].text != "no common seed"]
    elif found["none"]:
        assert not moved and set(verdicts) - untested
        tested = [verdict for verdict in verdicts if verdict not in untested]
        assert int(found["values"]) == len(tested)
        assert int(found["alike"]) == tested.count("equivalent")
        assert int(found["open"]) == tested.count("undecided")
        return
    else:
        assert int(found["count"]) == len(moved) > 0
        candidates = [
            row for row, verdict in zip(rows, verdicts, strict=True) if verdict in ("ahead", "behind")
        ]
    largest = max(candidates, key=lambda row: abs(row[3].value))
    (named,) = (row for row in candidates if f"{row[0].text} {row[1].text}" == found["which"])
    assert named[3].text == found["most"] and abs(abs(named[3].value) - abs(largest[3].value)) < 1e-9


def _effects(page: Page, found: re.Match[str]) -> None:
    """«NLA adds 2.0 points [1.0, 3.0] at the last session; it costs 1.0 points at session 0.»"""
    title = found["place"] or page.panels[0].title
    table = page.table("effects", title)
    name = None
    for part in found["rest"].rstrip(".").split("; "):
        if not re.search(r" at (session 0|the last session)", part):
            continue  # «1.3 would have been found)» of the part before
        one = re.match(r"(?P<name>.+?)(?P<verb> adds| costs| makes| changes| has an undecided)\b", part)
        assert one, part
        name = name if one["name"] in ("it", "its") else one["name"]
        verb = one["verb"].split()[-1]
        row = next(row for row in table.rows if row[0].text == name)
        column = table.columns.index("session 0" if "at session 0" in part else "the last session")
        if row[column].text.startswith("is "):  # another effect under another name
            other = row[column].text.removeprefix("is ")
            row = next(row for row in table.rows if row[0].text == other)
        assert row[column + 1].text.split(":")[0].split(",")[0] == VERDICTS[verb], (part, row)
        said = re.findall(NUMBER, part.split("would")[0])[:1]
        shown = re.findall(NUMBER, row[column].text)[:1]
        assert abs(float(said[0])) == abs(float(shown[0])), (part, row[column].text)


def _training(page: Page, found: re.Match[str]) -> None:
    """«Supervised training adds 20.0 points over nothing at session 0; GPIL …», and the labels' part."""
    table = page.table("effects", found["place"] or page.panels[0].title)
    rows = {row[0].text: row for row in table.rows}
    column = table.columns.index(found["when"])

    def held(name: str, verb: str, said: str) -> None:
        row = rows[name]
        if row[column].text.startswith("is "):
            row = rows[row[column].text.removeprefix("is ")]
        assert row[column + 1].text.split(":")[0].split(",")[0] == VERDICTS[verb], (found[0], row)
        shown = re.findall(NUMBER, row[column].text)[0]
        assert abs(float(re.findall(NUMBER, said)[0])) == abs(float(shown)), (found[0], row[column].text)

    rest = found["rest"]
    both = re.match(r"Of the (.+?) that GPIL adds over nothing at .+?, (.+?) (?:are|supervised)", rest)
    if both:
        held("GPIL less nothing", "adds", both[1])
        held("supervised less nothing", "adds", both[2])
    pattern = (
        r"(Supervised training|GPIL) (adds|costs|makes|changes|has an undecided)\b(.*?) over "
        r"(nothing|supervised training on the same labels) at (?:session 0|the last session)( \([^)]*\))?"
    )
    told = re.findall(pattern, rest.partition("too); ")[2] if both else rest)
    assert len(told) + 2 * bool(both) == sum(" less " in name and " x " not in name for name in rows), rest
    for who, verb, said, over, brackets in told:
        less = "nothing" if over == "nothing" else "supervised"
        name = f"{'GPIL' if who == 'GPIL' else 'supervised'} less {less}"
        held(name, verb.split()[-1], said if verb in ("adds", "costs", "changes") else brackets)


def _interaction(page: Page, found: re.Match[str]) -> None:
    table = page.table("effects", found["place"] or page.panels[0].title)
    verdicts = {row[0].text: row[4].text for row in table.rows}
    for name in found["rest"].split(", "):
        row = next(row for row in table.rows if row[0].text == name)
        other = row[3].text.removeprefix("is ") if row[3].text.startswith("is ") else name
        assert verdicts[other].startswith(("ahead", "behind"))


def _across(page: Page, found: re.Match[str]) -> None:
    moment = found["moment"] or "the last session"
    if found["reference"]:
        (table,) = (table for table in page.tables if table.name == "across-methods")
        assert table.columns[-1] == f"less {found['reference']}"
    else:
        (table,) = (
            table
            for table in page.tables
            if table.name.startswith("across-effects") and moment in table.title
        )
    verdicts = {row[0].text: row[-1].text for row in table.rows}
    oracles = set.union(*(panel.oracles for panel in page.panels))
    known = [label for label in verdicts if label not in oracles]
    seen = 0
    for part in found["rest"].split("; "):
        words, _, names = part.partition(": ")
        labels, count = _labels(names, known)
        seen += count
        for label in labels:
            verdict = verdicts[label]
            if words == "decided on some only":
                assert re.search("more on|less on|equivalent on", verdict)
                assert verdict not in ("more on all", "less on all", "equivalent on all")
            else:
                assert WHOLE.get(words, words) == verdict, (part, verdict)
    assert seen == len(known) - bool(found["reference"])


def _agreement(page: Page) -> None:
    """What the table of all datasets says is what each dataset's own table says."""
    for table in page.tables:
        if table.name != "across-methods":
            continue
        own = {
            panel.runs["dataset"].iloc[0]: page.table("summary", panel.title)
            for panel in page.panels
            if not panel.leaks
        }
        for row in table.rows:
            label, verdict = row[0].text, row[-1].text
            if verdict == "reference":
                continue
            rows = {
                name: next(each for each in found.rows if each[0].text == label)
                for name, found in own.items()
            }
            words = {name: each[-1].text.split(":")[0].split(",")[0] for name, each in rows.items()}
            expected = [
                f"{word} on {'all' if len(there) == len(words) else ', '.join(there)}"
                for word, said in (("more", "ahead"), ("less", "behind"), ("equivalent", "equivalent"))
                if (there := [name for name, each in words.items() if each == said])
            ]
            kinds = {"undecided" if each == "undecided" else "not tested" for each in words.values()}
            open_words = (
                "undecided or not tested" if len(kinds) > 1 else kinds.pop().replace("ided", "ided on all")
            )
            assert verdict == ("; ".join(expected) or open_words), (label, words, verdict)


WHOLE = {
    **{"ahead on all": "more on all", "behind on all": "less on all"},
    **{"above zero on all": "more on all", "below zero on all": "less on all"},
}


def _over(page: Page, found: re.Match[str]) -> None:
    (table,) = (table for table in page.tables if table.name == "over-datasets")
    rated = over_datasets(page.results)
    assert rated is not None and int(found["count"]) == len(rated.scores)
    assert table.rows[0][1].text == found["rank"] and table.rows[0][0].text == found["first"]
    apart = [row[0].text for row in table.rows if row[2].text == "separated"]
    if found["none"]:
        assert not apart
    else:
        labels, count = _labels(found["apart"], rated.methods)
        assert count == len(apart) and set(labels) <= set(apart)
    (across,) = (table for table in page.tables if table.name == "across-methods")
    means = {row[0].text: row[-2].text for row in across.rows}
    for row in (
        table.rows
    ):  # one page has one mean rank; ties share the better rank in one table, a mean in the other
        assert abs(float(means[row[0].text]) - float(row[1].text)) <= (len(rated.methods) - 1) / 2 + 0.1
    values = pd.DataFrame({name: scores.mean() for name, scores in rated.scores.items()}).round(10)
    if not any(scores.isna().any().any() for scores in rated.scores.values()):
        best = values.rank(ascending=False).mean(axis=1)
        assert np.isclose(best[found["first"]], best.min())


def _margins(page: Page, found: re.Match[str]) -> None:
    (table,) = (
        table for table in page.tables if table.title == f"Margins of {found['who']}: {found['place']}"
    )
    told = [row[-1].text for row in table.rows]
    tested = [each for each in told if each != "too few seeds"]
    leads = [100 * row[5].value for row in table.rows if row[5].value is not None]
    low, high = re.findall(NUMBER, found["range"])[:2]
    assert (float(low), float(high)) == (round(min(leads), 1), round(max(leads), 1))
    if found["untested"]:
        assert not tested and int(found["cells"]) == len(leads)
        return
    ahead = tested.count("ahead of all")
    assert found["where"] == (f"all {ahead}" if ahead == len(tested) else f"{ahead} of {len(tested)}")
    behind = sum(each.startswith("behind") for each in tested)
    assert found["behind"] is None or int(found["behind"]) == behind
    assert found["behind"] is not None or ahead == len(tested)
    assert int(found["left"] or 0) == len(told) - len(tested)


def _unshared(page: Page, found: re.Match[str]) -> None:
    (table,) = (
        table for table in page.tables if table.title == f"Margins of {found['who']}: {found['place']}"
    )
    assert {row[5].text for row in table.rows} == {"no common seed"}


def _protocols(page: Page, found: re.Match[str]) -> None:
    table = page.table("protocols", "")
    for when in ("session 0", "the last session"):
        row = next(
            row
            for row in table.rows
            if row[0].text == found["who"] and row[1].text == f"{found['place']}, {when}"
        )
        key = "first" if when == "session 0" else "last"
        assert row[4].text == found[key]
        word = row[5].text.split(":")[0].split(",")[0]
        assert word == found[f"{key}_verdict"], (found[0], row)


def _shots(page: Page, found: re.Match[str]) -> None:
    """Held against the records: no table has these."""
    for where, name, n_way, few, many, change in shots(page.results):
        if (where, name, n_way) == (found["place"], found["who"], int(found["n_way"])):
            assert (few, many) == (int(found["few"]), int(found["many"]))
            known = change.dropna()
            said = re.findall(NUMBER, found["rest"])[0]
            assert abs(abs(float(said)) - abs(100 * known.mean())) < 0.05 + 1e-6, found[0]
            if len(known) < FEWEST_SEEDS:
                assert f"({len(known)} seed" in found["rest"]
            return
    raise AssertionError(found[0])


def _bounds(page: Page, found: re.Match[str]) -> None:
    panel = page.panel(found["place"])
    told = claims(page.results)
    for label in panel.rivals:
        test = told.pair(panel, label, found["oracle"])
        assert test is not None and (f"{label} (" in found["rest"]) == (test.verdict == "ahead")


def _level(page: Page, found: re.Match[str]) -> None:
    panel = page.panel(found["place"])
    assert found["who"] == panel.reference
    runs = panel.runs[panel.runs["label"] == panel.reference]
    for moment in ("first", "last"):
        assert abs(float(found[moment]) - 100 * runs[moment].mean()) < 0.05 + 1e-6, found[0]


def _nothing(page: Page, found: re.Match[str]) -> None:
    assert int(found["left"]) > 1


ON = r"(?:On (?P<place>[^:]+): )?"
FORMS: dict[str, tuple[str, Callable[[Page, re.Match[str]], None]]] = {
    "look": (r"(?P<seeds>\d+) seeds?: a look, not a claim; 6 decide\.", _look),
    "more": (r"(?P<left>\d+) more of this kind are in the tables\.", _nothing),
    "across": (
        r"(?:Compared with (?P<reference>.+?) at|At) (?P<moment>the last session|session 0) on [^:]+: "
        r"(?P<rest>.+)\.",
        _across,
    ),
    "over datasets": (
        r"Over (?P<count>\d+) datasets .+ the best mean rank, (?P<rank>[\d.]+) of \d+\. Nemenyi's test "
        r"separates (?P<first>.+) from (?:(?P<none>no other)|(?P<apart>.+)) \(critical difference .+\)\.",
        _over,
    ),
    "margins without a seed": (
        r"On (?P<place>[^,]+, [a-z]+), (?P<who>.+?) shares no seed with the best other "
        r"in any cell of N and K\.",
        _unshared,
    ),
    "margins": (
        r"On (?P<place>[^,]+, [a-z]+), (?P<who>.+?) is "
        r"(?:ahead of every other method in (?P<where>all \d+|\d+ of \d+)"
        r"(?: tested)? cells of N and K(?:, behind one or more in (?P<behind>\d+))?"
        r"(?:, with (?P<left>\d+) more of too few seeds)?; it is )?"
        r"(?P<range>.+ points) from the best other method"
        r"(?P<untested> in (?P<cells>\d+) cells of N and K, not tested)?\.",
        _margins,
    ),
    "highest": (
        rf"{ON}(?P<who>.+?) (?:has|have) the highest mean at the last session, [\d.]+ %: (?P<rest>.+)\.",
        _highest,
    ),
    "leads": (rf"{ON}(?P<who>.+?) is ahead of .+ at the last session, [\d.]+ %\.", _leads),
    "sensitivity": (
        rf"{ON}Of (?P<settings>\d+) settings varied one at a time around the reference, "
        r"(?:(?P<untested>not tested), |"
        r"(?P<none>none is found to change the last session): of (?P<values>\d+) values (?P<alike>\d+) are "
        r"equivalent to it and (?P<open>\d+) undecided|(?P<count>\d+) changes? the last session; )"
        rf"(?:the largest change is (?P<most>{POINTS[1:-1]}) points, with (?P<which>.+?))?"
        r"(?:; \d+ have too few seeds to test)?\.",
        _sensitivity,
    ),
    "interaction": (
        rf"{ON}Parts change each other's effect at the last session: (?P<rest>.+)\.",
        _interaction,
    ),
    "protocols": (
        r"(?P<who>.+?) on (?P<place>[^:]+): released less strict is "
        rf"(?P<first>{POINTS[1:-1]}) points at session 0 \((?P<first_verdict>[a-z ]+)\) and "
        rf"(?P<last>{POINTS[1:-1]}) points at the last session \((?P<last_verdict>[a-z ]+)\)\.",
        _protocols,
    ),
    "shots": (
        r"(?P<who>.+?) on (?P<place>[^:]+), (?P<n_way>\d+)-way: K = (?P<many>\d+) instead of (?P<few>\d+) "
        r"(?P<verb>adds|costs|makes|changes|has an undecided effect) (?P<rest>.+)\.",
        _shots,
    ),
    "training": (
        rf"{ON}(?P<rest>(?=.*over nothing at (?P<when>session 0|the last session))"
        r"(?:Of the|Supervised training|GPIL) .+)\.",
        _training,
    ),
    "effects": (rf"{ON}(?P<rest>.+ at the last session.*; its? .+ at session 0.*\.)", _effects),
    "bounds": (rf"{ON}(?P<oracle>.+?) is given labels that the others never see(?P<rest>.+)\.", _bounds),
    "level": (
        r"(?P<place>[^:]+): (?P<who>.+) goes from (?P<first>[\d.]+) % at session 0 to (?P<last>[\d.]+) % "
        r"at the last\.",
        _level,
    ),
}
