"""Check every sentence of a report against its tables.

Each sentence must have one of the forms below. The checks parse what it states. They compare that with the
cells of its table, and with means that they compute from the records alone.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

from analysis.across import across_tables
from analysis.against_control import control_table
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
WITH_UNIT = rf"{NUMBER} points(?: \[{NUMBER}, {NUMBER}\])?"
MOST_WORDS = 30  # in a sentence, with the names of configurations
EMPTY = re.compile(r"\bnan\b|\binf\b|None|: [.;,]|; ?[;.]|, ?[,.;]|\(\)|\[\]|  ")


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
        over = (rating_table(self.results), control_table(self.results))
        self.tables: list[Table] = [*found, *(each for each in over if each)]
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
    """Raise an AssertionError if a sentence or a table is wrong; return the number of sentences by form."""
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
    for text in page.sentences:
        _, _, told = text.rpartition(": ") if text.startswith("On ") else ("", "", text)
        for sentence in re.split(r"(?<=\.) (?=[A-Z0-9])", told):
            assert len(sentence.split()) <= MOST_WORDS, sentence


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
    """Return the names in "A, B and C" or "A and 5 others", and how many there are in all."""
    more = re.search(r" and (\d+) others$", text)
    if more:
        return [text[: more.start()]], 1 + int(more.group(1))
    found = []
    for label in sorted(known, key=len, reverse=True):
        text, count = re.subn(rf"(^|, | and ){re.escape(label)}(?=$|, | and )", r"\1", text, count=1)
        found += [label] * count
    assert not re.sub(", | and ", "", text), text
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
    leader = "It" if len(level) == 1 else best
    for part in found["rest"].split(". "):
        assert part.startswith(f"{leader} "), part
        said = part.removeprefix(f"{leader} ")
        named, verdict = next(
            (m, verdict) for form, verdict in GROUPS.items() if (m := re.fullmatch(form, said))
        )
        labels, count = _labels(named[1], panel.rivals)
        seen += count
        for label in labels:
            test = told.pair(panel, best, label)
            assert test is not None
            assert ("none" if test.seeds == 0 else test.verdict) == verdict, (part, test)
    assert seen == len(panel.rivals) - 1


GROUPS = {
    "is ahead of (.+)": "ahead",
    "is equivalent to (.+)": "equivalent",
    r"is not separated from (.+) \(undecided\)": "undecided",
    "is behind (.+) on the seeds they share": "behind",
    "was not tested against (.+): too few seeds": "too few seeds",
    "shares no seed with (.+)": "none",
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
    assert (
        named[3].text == found["most"].replace(" points", "")
        and abs(abs(named[3].value) - abs(largest[3].value)) < 1e-9
    )


ALL_TOO_FEW = re.compile(r" \d+ seeds? (?:is|are) too few to test these effects\.$")


def _told_effects(text: str, untested: bool = False) -> list[tuple[str, str, float, str]]:
    """Return (name, compared with, signed points, verdict) of each effect in some sentences.

    If the text says that all have too few seeds, or ``untested``, that is the verdict of each.
    """
    untested = untested or bool(ALL_TOO_FEW.search(text))
    text = ALL_TOO_FEW.sub("", text)
    found = []
    sentences = re.split(r"(?<=\.) (?=[A-Z0-9])", text)
    for index, sentence in enumerate(sentences):
        if re.match(r"\d+ seeds? (is|are) too few|The test detects |The gain of ", sentence):
            continue
        after = sentences[index + 1] if index + 1 < len(sentences) else ""
        few = re.fullmatch(r"(\d+) seeds? (?:is|are) too few to test this\.", after)
        one = re.match(r"(?:At (?:session 0|the last session), )?", sentence)
        assert one
        body = sentence[one.end() :]
        name, sign, verdict = _one_effect(body)
        assert not (few and verdict in ("equivalent", "undecided")), text
        assert (verdict == "undecided") == after.startswith("The test detects "), text
        over = re.search(r"(?:over|compared with) (no training|supervised training on the same labels)", body)
        (size, *_) = re.findall(rf"({NUMBER}) points", body)
        assert not (untested and (few or verdict in ("equivalent", "undecided"))), text
        verdict = "too few seeds" if few or untested else verdict
        found.append((name, over[1] if over else "", sign * float(size), verdict))
    return found


def _one_effect(body: str) -> tuple[str, int, str]:
    """Return the name, the sign of the number that is printed, and the verdict of one sentence."""
    forms = {
        r"(.+?) adds \d": (1, "ahead"),
        r"(.+?) costs \d": (-1, "behind"),
        r"(.+?) makes less than [\d.]+ points? of difference(?: compared with .+?)?: ": (1, "equivalent"),
        r"[Tt]he effect of (.+?)(?: compared with .+?)? is undecided: ": (1, "undecided"),
    }
    for form, (sign, verdict) in forms.items():
        found = re.match(form, body)
        if found:
            return found[1], sign, verdict
    raise AssertionError(body)


def _hold_effect(table: Table, name: str, when: str, points: float, verdict: str) -> None:
    """Compare an effect with its cells: the points with their sign, and the verdict."""
    rows = {row[0].text: row for row in table.rows}
    column = table.columns.index(when)
    row = rows[name]
    if row[column].text.startswith("same as "):  # another effect under another name
        row = rows[row[column].text.removeprefix("same as ")]
    assert row[column + 1].text.split(":")[0].split(",")[0] == verdict, (name, when, row)
    assert points == float(re.findall(NUMBER, row[column].text)[0]), (name, points, row[column].text)


def _effects(page: Page, found: re.Match[str]) -> None:
    """Hold "At the last session, NLA adds 2.0 points [1.0, 3.0]. At session 0, NLA costs 1.0 points."."""
    table = page.table("effects", found["place"] or page.panels[0].title)
    untested = bool(ALL_TOO_FEW.search(found[0]))
    for when, text in (("the last session", found["last"]), ("session 0", found["first"])):
        ((name, _, points, verdict),) = _told_effects(text, untested)
        _hold_effect(table, name, when, points, verdict)


def _training(page: Page, found: re.Match[str]) -> None:
    """Hold "At session 0: GPIL adds 20.0 points over no training. Supervised training adds ..."."""
    table = page.table("effects", found["place"] or page.panels[0].title)
    told = _told_effects(found["rest"])
    pairs = [row[0].text for row in table.rows if " minus " in row[0].text and " x " not in row[0].text]
    assert len(told) == len(pairs), found[0]
    for name, over, points, verdict in told:
        pair = f"{name.replace('Supervised', 'supervised')} minus {over.removesuffix(' on the same labels')}"
        _hold_effect(table, pair, found["when"], points, verdict)
    if "due to the labels" in found["rest"]:
        verdicts = {(name.lower(), over): verdict for name, over, _, verdict in told}
        assert verdicts["gpil", "no training"] == verdicts["supervised training", "no training"] == "ahead"


def _interaction(page: Page, found: re.Match[str]) -> None:
    table = page.table("effects", found["place"] or page.panels[0].title)
    verdicts = {row[0].text: row[4].text for row in table.rows}
    for name in found["rest"].split(", "):
        row = next(row for row in table.rows if row[0].text == name)
        other = row[3].text.removeprefix("same as ") if row[3].text.startswith("same as ") else name
        assert verdicts[other].startswith(("ahead", "behind"))


def _across(page: Page, found: re.Match[str]) -> None:
    moment = found["moment"] or "the last session"
    if found["reference"]:
        (table,) = (table for table in page.tables if table.name == "across-methods")
        assert table.columns[-1] == f"compared with {found['reference']}"
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
    for part in found["rest"].split(". "):
        one = re.fullmatch(rf"(?P<names>.+?) (?:is|are) (?P<words>{'|'.join(AGREED)})", part)
        assert one, part
        labels, count = _labels(one["names"], known)
        seen += count
        for label in labels:
            verdict = verdicts[label]
            if one["words"] == "decided on some datasets only":
                assert re.search("(ahead|behind|positive|negative|equivalent) on", verdict)
                assert verdict not in AGREED
            else:
                assert one["words"] == verdict, (part, verdict)
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
                for word in ("ahead", "behind", "equivalent")
                if (there := [name for name, each in words.items() if each == word])
            ]
            kinds = {"undecided" if each == "undecided" else "not tested" for each in words.values()}
            open_words = (
                "undecided or not tested" if len(kinds) > 1 else kinds.pop().replace("ided", "ided on all")
            )
            assert verdict == ("; ".join(expected) or open_words), (label, words, verdict)


AGREED = (
    *(f"{word} on all" for word in ("ahead", "behind", "positive", "negative", "equivalent", "undecided")),
    *("decided on some datasets only", "not tested", "undecided or not tested"),
)


def _over(page: Page, found: re.Match[str]) -> None:
    (table,) = (table for table in page.tables if table.name == "over-datasets")
    rated = over_datasets(page.results)
    assert rated is not None and int(found["count"]) == len(rated.scores)
    assert table.rows[0][1].text == found["rank"] and table.rows[0][0].text in found["who"]


def _separated(page: Page, found: re.Match[str]) -> None:
    (table,) = (table for table in page.tables if table.name == "over-datasets")
    rated = over_datasets(page.results)
    assert rated is not None and table.rows[0][0].text == found["first"]
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


def _control(page: Page, found: re.Match[str]) -> None:
    (table,) = (table for table in page.tables if table.name == "against-control")
    rated = over_datasets(page.results)
    assert rated is not None and int(found["count"]) == len(rated.scores) >= 6
    assert table.columns[1] == f"minus {found['control']}" and found["control"] == rated.methods[0]
    told = Counter(row[-1].text for row in table.rows)
    for part in re.findall(r"(.+?) (?:is|are) (ahead|behind|not separated)\.\s*", found["rest"]):
        labels, count = _labels(part[0], rated.methods)
        assert told.pop(part[1]) == count
        assert set(labels) <= {row[0].text for row in table.rows if row[-1].text == part[1]}
    assert not told


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
        assert row[4].text == found[key].replace(" points", "")
        word = row[5].text.split(":")[0].split(",")[0]
        assert word == found[f"{key}_verdict"], (found[0], row)


def _shots(page: Page, found: re.Match[str]) -> None:
    """Held against the records: no table has these."""
    for where, name, n_way, few, many, change in shots(page.results):
        if (where, name, n_way) == (found["place"], found["who"], int(found["n_way"])):
            assert (few, many) == (int(found["few"]), int(found["many"]))
            known = change.dropna()
            ((_, _, points, verdict),) = _told_effects(found["rest"])
            assert abs(points - 100 * known.mean()) < 0.05 + 1e-6, found[0]
            assert (verdict == "too few seeds") == (len(known) < FEWEST_SEEDS)
            if len(known) < FEWEST_SEEDS:
                assert re.search(rf"\. {len(known)} seeds? (is|are) too few to test this\.$", found["rest"])
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
    "look": (r"(?P<seeds>\d+) seeds?: too few to test, at least 6 needed\.", _look),
    "more": (r"The tables have (?P<left>\d+) more findings of this kind\.", _nothing),
    "across": (
        r"On [^:]+?, (?:compared with (?P<reference>.+?) at|effects at) "
        r"(?P<moment>the last session|session 0): (?P<rest>.+)\.",
        _across,
    ),
    "over datasets": (
        r"Over (?P<count>\d+) datasets, (?P<who>.+) (?:has|share) the best mean rank: "
        r"(?P<rank>[\d.]+) of \d+\.",
        _over,
    ),
    "separated": (
        r"Nemenyi's test separates (?P<first>.+) from (?:(?P<none>no other method)|(?P<apart>.+)) "
        r"\(critical difference [\d.]+\)\. Friedman's test of equal mean ranks gives p [=<] [\d.]+\.",
        _separated,
    ),
    "against the control": (
        r"Over (?P<count>\d+) datasets, paired tests compare each method with (?P<control>.+?)\. "
        r"(?P<rest>.+?\.)"
        r"(?: \d+ datasets are too few for \d+ comparisons: the smallest possible corrected p is [\d.]+\.)?",
        _control,
    ),
    "margins without a seed": (
        r"On (?P<place>[^,]+, [a-z]+), (?P<who>.+?) shares no seed with the best other method "
        r"for any N and K\.",
        _unshared,
    ),
    "margins": (
        r"On (?P<place>[^,]+, [a-z]+), (?P<who>.+?) "
        r"(?:is ahead of every other method in (?P<where>all \d+|\d+ of \d+)"
        r"(?: tested)? combinations of N and K\."
        r"(?: It is behind at least one method in (?P<behind>\d+) of them\.)?"
        r"(?: (?P<left>\d+) more combinations? (?:has|have) too few seeds to test\.)? Its margin is |"
        r"has a margin of )"
        r"(?P<range>.+ points) over the best other method"
        r"(?P<untested> in (?P<cells>\d+) combinations of N and K\."
        r" There are too few seeds to test the margins)?\.",
        _margins,
    ),
    "highest": (
        rf"{ON}(?P<who>.+?) (?:has|have) the highest mean at the last session, [\d.]+ %\. (?P<rest>.+)\.",
        _highest,
    ),
    "leads": (rf"{ON}(?P<who>.+?) is ahead of .+ at the last session, with [\d.]+ %\.", _leads),
    "sensitivity": (
        rf"{ON}(?P<settings>\d+) settings were varied one at a time around the reference\. "
        r"(?:(?P<untested>There are too few seeds to test them)\.|"
        r"(?P<none>No setting is found to change accuracy at the last session)\. "
        r"Of (?P<values>\d+) tested values, (?P<alike>\d+) "
        r"are equivalent to the reference and (?P<open>\d+) are undecided\.|"
        r"Of these, (?P<count>\d+) changes? accuracy at the last session\.)"
        rf"(?: The largest change is (?P<most>{WITH_UNIT}), with (?P<which>.+?)\.)?"
        r"(?: (?P<left>\d+) settings? (?:has|have) too few seeds to test\.)?",
        _sensitivity,
    ),
    "interaction": (rf"{ON}Parts interact at the last session: (?P<rest>.+)\.", _interaction),
    "protocols": (
        r"(?P<who>.+?) on (?P<place>[^:]+): released minus strict is "
        rf"(?P<first>{WITH_UNIT}) at session 0 \((?P<first_verdict>[a-z ]+)\)\. It is "
        rf"(?P<last>{WITH_UNIT}) at the last session \((?P<last_verdict>[a-z ]+)\)\.",
        _protocols,
    ),
    "shots": (
        r"(?P<who>.+?) on (?P<place>[^:]+), (?P<n_way>\d+)-way: "
        r"(?P<rest>At the last session, (?:the effect of )?K = (?P<many>\d+) instead of (?P<few>\d+) .+\.)",
        _shots,
    ),
    "training": (rf"{ON}At (?P<when>session 0|the last session): (?P<rest>.+\.)", _training),
    "effects": (rf"{ON}(?P<last>At the last session, .+\.) (?P<first>At session 0, .+\.)", _effects),
    "bounds": (rf"{ON}(?P<oracle>.+?) sees labels that the others never see\. (?P<rest>.+)\.", _bounds),
    "level": (
        r"(?P<place>[^:]+): (?P<who>.+) goes from (?P<first>[\d.]+) % at session 0 to (?P<last>[\d.]+) % "
        r"at the last session\.",
        _level,
    ),
}
