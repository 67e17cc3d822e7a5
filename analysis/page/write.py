"""Write a report from folders of records: tables, figures and one page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from analysis import figures
from analysis.comparisons import Analysis
from analysis.data.pooled import pooled
from analysis.data.reading import read
from analysis.data.results import Results
from analysis.designs.design import RANKING, Design
from analysis.figures.style import Drawing
from analysis.page import explorer
from analysis.page.facts import facts, notices, questions_of, seeds_of, setting_of, short_titles, title_of
from analysis.page.page import Page, Picture, render
from analysis.report import Report
from analysis.statistics.inference import MARGIN
from analysis.tables import table
from hagmeta.common.command import as_typed
from hagmeta.common.errors import UserError
from hagmeta.common.files.files import written_whole
from hagmeta.common.files.outputs import check_output_folder

FRAME = "frame.parquet"
TABLES_AND_FIGURES = ("tables/*.csv", "tables/*.md", "tables/*.tex", "figures/*.svg", "figures/*.p[dn][fg]")
Item = TypeVar("Item", table.Table, Drawing)


def write_report(
    folders: Sequence[Path],
    out: Path,
    *,
    published: bool = False,
    metric: str | None = None,
    margin: float = MARGIN,
    where: Mapping[str, Sequence[str]] | None = None,
    by: Sequence[str] = (),
    baseline: str | None = None,
    command: str | None = None,
    explore: bool = False,
    force: bool = False,
) -> Path:
    """Write tables, figures, the tidy data and `index.html` to `out`, and return the path of the page.

    Args:
        folders: studies, or folders of studies.
        out: the folder of the report.
        published: fail if the paper has no numbers for these datasets and settings.
        metric: the score that headlines, tests and figures use; macro accuracy by default.
        margin: differences below it count as equivalent, as a share (0.01 is one point).
        where: use only the runs whose settings have one of these values.
        by: compare the values of these settings, pooled over all other settings.
        baseline: the method or configuration that all others are compared with.
        command: the command to show on the page.
        explore: also write the page to explore, `explorer.html`, and link to it.
        force: replace files in `out` that no report wrote.

    Raises:
        UserError: the folders have no finished run, an option does not fit, or `out` is not writable.
    """
    results = read(folders, metric)
    if where:
        results = results.where(where)
    whole = Analysis(results, margin=margin) if by else None
    if by:
        results = pooled(results, by)
    if baseline:
        results = results.against(baseline)
    command = command or f"{as_typed('hagmeta-report')} {' '.join(map(str, folders))}"
    report = Report(results, (Design(RANKING),) if by else (), margin=margin, whole=whole)
    return write(report, out, command=command, explore=explore, published=published, force=force)


def write(
    report: Report,
    out: Path,
    *,
    command: str,
    explore: bool = False,
    published: bool = False,
    study: str = "",
    force: bool = False,
) -> Path:
    """Write a report to `out`, and return the path of the page.

    Args:
        report: The report.
        out: The folder of the report.
        command: The command to show on the page.
        explore: Also write the page to explore.
        published: Fail if the paper has no numbers for these datasets and settings.
        study: The name of the study in the title; by default that of the records.
        force: Replace files in `out` that no report wrote.

    Raises:
        UserError: `published` does not fit, or `out` is not writable.
    """
    check_report_folder("the report", out, force=force)
    results = report.results
    if published and not report.published:
        names = ", ".join(sorted(set(results.runs["dataset"])))
        raise UserError(
            f"--published: the paper has no numbers for {names} in these settings. "
            "Leave the option out, or report on a dataset of the paper."
        )
    page = Page(
        title=title_of(results, study),
        questions=questions_of(results),
        setting=setting_of(results),
        seeds=seeds_of(results),
        shorter=short_titles(results),
        facts=facts(report),
        findings=[finding.text for finding in report.findings],
        notices=notices(report),
        tables=report.tables,
        command=command,
        explorer=explorer.NAME if explore else "",
        leaks=bool(results.runs["leaks"].any()),
    )
    path = write_page(page, figures.draw_all(report), results, out, "the report")
    if explore:
        text = explorer.render(report, title=page.title, command=command, report=path.name)
        with written_whole(out / explorer.NAME) as partial:
            partial.write_text(text, encoding="utf-8")
    return path


def write_page(page: Page, drawings: Iterable[Drawing], results: Results, out: Path, what: str) -> Path:
    """Write a page with its tables, figures and data to `out`, and return its path.

    Delete what an earlier report left there. `what` names the page in errors.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        _write_frame(results, out / FRAME)  # first: the folder of a stopped report is recognised by it
        (out / explorer.NAME).unlink(missing_ok=True)
        tables = list(_named_apart(page.tables))
        written = [path for each in tables for path in table.save(each, out / "tables")]
        pictures = [_save_drawing(drawing, out) for drawing in _named_apart(drawings)]
        _remove_others(out, {*written, *(path for picture in pictures for path in picture.files)})
        with written_whole(out / "index.html") as partial:
            partial.write_text(
                render(replace(page, tables=tables, pictures=pictures, data=FRAME)), encoding="utf-8"
            )
    except OSError as error:
        reason = error.strerror or error
        raise UserError(f"cannot write {what} to {out}: {reason}. Choose another --out.") from None
    return out / "index.html"


def _named_apart(items: Iterable[Item]) -> Iterator[Item]:
    """Yield the items with unique names, so that none overwrites the files of another."""
    seen: Counter[str] = Counter()
    for item in items:
        seen[item.name] += 1
        count = seen[item.name]
        yield item if count == 1 else replace(item, name=f"{item.name}-{count}")


def _save_drawing(drawing: Drawing, out: Path) -> Picture:
    """Write a figure to the folder of a report, and return it as the page shows it."""
    files = figures.save(drawing, out / "figures")
    words = drawing.name, drawing.section, drawing.title, drawing.caption
    return Picture(*words, files["svg"], list(files.values()), drawing.leaks)


def check_report_folder(what: str, out: Path, *, force: bool) -> None:
    """Raise an error if `out` has files that a report would replace or delete, and is not a report."""
    pages = ("index.html", explorer.NAME, "paragraph.txt", "table.tex")
    check_output_folder(what, out, FRAME, (*pages, *TABLES_AND_FIGURES), force=force)


def _remove_others(out: Path, written: set[Path]) -> None:
    """Delete the tables and figures of an earlier report that this one did not write."""
    for pattern in TABLES_AND_FIGURES:
        for path in set(out.glob(pattern)) - written:
            path.unlink()


def _write_frame(results: Results, path: Path) -> None:
    """Write one row per run and session with every setting; settings with mixed types become text."""
    frame = results.sessions.copy()
    for key in results.keys:
        kinds = {type(value) for value in frame[key].dropna()}
        if len(kinds) > 1 and kinds - {int, float}:
            frame[key] = frame[key].map(str)
    with written_whole(path) as partial:
        frame.to_parquet(partial, index=False)
