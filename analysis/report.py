"""From folders of records to a report: tables, figures and one page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pandas as pd

from analysis import figures, table
from analysis.across import across_tables
from analysis.claims import claims
from analysis.drawing import Drawing
from analysis.findings import findings
from analysis.frame import VERSION, Results, read
from analysis.inference import ALIKE, DIFFERENT, LEVEL, MARGIN
from analysis.margins import margin_tables
from analysis.over_datasets import rating_table, why_not
from analysis.page import Fact, Notice, Picture, render
from analysis.published import published_tables
from analysis.ranks import rank_tables
from analysis.searches import in_words
from analysis.tables import make_tables
from analysis.words import p_value
from hagmeta.common.command import as_typed
from hagmeta.common.errors import UserError
from hagmeta.common.files import written_whole

Item = TypeVar("Item", table.Table, Drawing)


def write_report(
    folders: Sequence[Path],
    out: Path,
    *,
    compare: bool = False,
    metric: str | None = None,
    margin: float = MARGIN,
    where: dict[str, str] | None = None,
    by: str | None = None,
    baseline: str | None = None,
    command: str | None = None,
) -> Path:
    """Write tables, figures, the tidy data and ``index.html`` under ``out``; returns the page.

    The paper's numbers are compared with ours where it has any for our datasets; ``compare`` insists on it.
    ``baseline`` names the method or configuration that all others are compared with.
    """
    results = replace(read(folders, metric), margin=margin)
    if where:
        results = results.where(where)
    if by:
        results = results.by(by)
    if baseline:
        results = results.against(baseline)
    published = list(published_tables(results))
    if compare and not published:
        names = ", ".join(sorted(set(results.runs["dataset"])))
        raise UserError(f"--compare published: the paper has no numbers for {names} in these settings.")
    own = (across_tables, _rated, make_tables, margin_tables, rank_tables)
    tables = list(_named_apart([*(each for make in own for each in make(results)), *published]))
    try:
        out.mkdir(parents=True, exist_ok=True)
        written = [path for each in tables for path in table.save(each, out / "tables")]
        pictures = [_saved(drawing, out) for drawing in _named_apart(figures.draw_all(results))]
        _remove_others(out, {*written, *(path for picture in pictures for path in picture.files)})
        _write_frame(results, out / "frame.parquet")
        page = render(
            title=_title(results),
            facts=facts(results),
            findings=findings(results),
            notices=notices(results),
            tables=tables,
            pictures=pictures,
            command=command or f"{as_typed('hagmeta-report')} {' '.join(map(str, folders))}",
            data="frame.parquet",
            leaks=bool(results.runs["leaks"].any()),
        )
        with written_whole(out / "index.html") as partial:
            partial.write_text(page, encoding="utf-8")
    except OSError as error:
        raise UserError(f"the report cannot be written to {out}: {error.strerror or error}.") from None
    return out / "index.html"


def _named_apart(items: Iterable[Item]) -> Iterator[Item]:
    """Each with a name of its own, so that none overwrites another's files."""
    seen: Counter[str] = Counter()
    for item in items:
        seen[item.name] += 1
        count = seen[item.name]
        yield item if count == 1 else replace(item, name=f"{item.name}-{count}")


def _rated(results: Results) -> list[table.Table]:
    found = rating_table(results)
    return [found] if found else []


def facts(results: Results) -> list[Fact]:
    """What was run, with what, and for how long."""
    runs = results.runs
    seeds = runs.groupby("config_hash")["seed"].count()
    count = f"{seeds.min()}" if seeds.min() == seeds.max() else f"{seeds.min()} to {seeds.max()}"
    launches = {launch["space"]: launch for launch in results.launches}
    hours = runs["seconds"].sum() / 3600
    found = [
        Fact("runs", f"{len(runs)}: {len(seeds)} configurations, {count} seeds each"),
        Fact("datasets", _listed(runs["dataset"])),
        Fact("protocol", _listed(runs["protocol"])),
        Fact("settings", _listed(runs["n_way"].map("{}-way ".format) + runs["k_shot"].map("{}-shot".format))),
        Fact("accuracy", _metric_words(results)),
        Fact("claims", _claim_words(results)),
        Fact("over datasets", why_not(results)),
        Fact("machine time", f"{hours:.2f} hours of training and evaluation"),
        Fact("device", _listed(runs["device"])),
        Fact("torch", _listed(runs["torch"])),
        Fact("commit", _listed(runs["commit"].map(lambda name: "unknown" if pd.isna(name) else name[:12]))),
    ]
    found = [fact for fact in found if fact.value]
    spaces = [
        Fact("space", f"{name}: {launch['description']}" if launch["description"] else name)
        for name, launch in launches.items()
    ]
    commands = [
        Fact("launched by", text) for text in dict.fromkeys(launch["command"] for launch in results.launches)
    ]
    searches = [Fact("chosen", in_words(search)) for search in results.searches.values()]
    overlaps = [Fact("overlap", line) for search in results.searches.values() for line in search["overlap"]]
    return [*spaces, *found, *searches, *overlaps, *commands]


def _claim_words(results: Results) -> str:
    """What a verdict on this page is worth."""
    count = claims(results).tested
    if not count:
        return ""
    tested = "1 comparison was tested" if count == 1 else f"{count} comparisons were tested together"
    return (
        f"{tested}. The chance that any «ahead», «behind» or «equivalent» is false is at most "
        f"{100 * LEVEL:g} % ({100 * DIFFERENT:g} % for the first two, {100 * ALIKE:g} % for the last), each "
        "for its own graph"
    )


def _metric_words(results: Results) -> str:
    if results.metric == "macro accuracy":
        return "macro: the mean over the classes met, each of which counts the same"
    older = results.sessions.loc[results.sessions["macro_accuracy"].isna(), "run"].nunique()
    if results.metric != "accuracy" or not older:
        return f"{results.metric}, as was asked for, stands for accuracy on this page"
    return f"over the queries, each of which counts the same: {older} runs are older than macro accuracy"


def notices(results: Results) -> list[Notice]:
    """What keeps a number from being the whole truth."""
    listed = {
        "failed": ("Runs that failed", [lost.words for lost in results.failed]),
        "missing": ("Runs that were planned and are missing", [lost.words for lost in results.missing]),
        "damaged": ("Files that are damaged and were left out", results.damaged),
        "conflicts": ("Runs that differ between two folders", results.conflicts),
        "graphs": ("Datasets of one name over different graphs", results.graphs),
        "untitled": ("Methods that no record describes", _untitled(results)),
        "asymmetry": ("Differences are not symmetric", _asymmetry(results)),
    }
    found = [Notice(title, lines) for title, lines in listed.values() if lines]
    mixed = [
        f"{key}: {_listed(results.runs[key].map(str))}"
        for key in VERSION
        if results.runs[key].nunique(dropna=False) > 1
    ]
    if mixed:
        found.append(Notice("These runs were not all made alike", mixed))
    return found


def _untitled(results: Results) -> list[str]:
    """A warning where all records of a method are from before records had its traits."""
    if not results.untitled:
        return []
    return [
        f"{', '.join(results.untitled)}: these records are older than descriptions of methods, so the report "
        "uses the names in them and cannot say whether their answers are transductive"
    ]


def _asymmetry(results: Results) -> list[str]:
    """A warning where the tests' assumption looks wrong."""
    p = claims(results).asymmetry
    if not p < LEVEL:
        return []
    return [
        f"Over seeds, differences scatter further to one side of their mean than to the other "
        f"({p_value(p)}). The sign-flip test assumes symmetry, so verdicts near the limit may be false more "
        "often than stated"
    ]


def _saved(drawing: Drawing, out: Path) -> Picture:
    files = figures.save(drawing, out / "figures")
    words = drawing.name, drawing.section, drawing.title, drawing.caption
    return Picture(*words, files["svg"], list(files.values()), drawing.leaks)


def _remove_others(out: Path, written: set[Path]) -> None:
    """What an earlier report left in its folders and this one has not."""
    for pattern in ("tables/*.csv", "tables/*.md", "tables/*.tex", "figures/*.svg", "figures/*.p[dn][fg]"):
        for path in set(out.glob(pattern)) - written:
            path.unlink()


def _write_frame(results: Results, path: Path) -> None:
    """One row a run and session, with every setting; settings of mixed types as text."""
    frame = results.sessions.copy()
    for key in results.keys:
        kinds = {type(value) for value in frame[key].dropna()}
        if len(kinds) > 1 and kinds - {int, float}:
            frame[key] = frame[key].map(str)
    with written_whole(path) as partial:
        frame.to_parquet(partial, index=False)


def _title(results: Results) -> str:
    return f"{_listed(results.runs['study'])} on {_listed(results.runs['dataset'])}"


def _listed(values: Iterable[object]) -> str:
    return ", ".join(dict.fromkeys(str(value) for value in values if not pd.isna(value)))
