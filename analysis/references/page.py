"""Write a comparison with the references: one page, tables, figures and a paragraph for a paper."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from analysis.figures.methods import draw_against
from analysis.page.facts import lost_runs, tests_words
from analysis.page.page import Fact, Notice, Page, Pasted
from analysis.page.write import check_report_folder, write_page
from analysis.references.comparable import spanned
from analysis.references.place import Placed, place
from analysis.references.references import DEFAULTS
from analysis.references.tables import about_references, compare_tables
from analysis.references.words import citations, findings, paragraph
from analysis.statistics.inference import MARGIN
from analysis.words import count_of_seeds, listed
from hagmeta.common.command import as_typed
from hagmeta.common.files.files import written_whole


def write_comparison(
    folders: Sequence[Path],
    out: Path,
    *,
    kind: str = DEFAULTS,
    metric: str | None = None,
    margin: float = MARGIN,
    command: str | None = None,
    force: bool = False,
) -> tuple[Path, Placed]:
    """Write the comparison of `folders` with the references to `out`, and return the page and what it shows.

    Args:
        folders: Studies, or folders of studies.
        out: The folder of the page.
        kind: Compare with `tuned` references or with `defaults`.
        metric: The score; macro accuracy by default.
        margin: Differences below it count as equivalent, as a share.
        command: The command to show on the page.
        force: Replace files in `out` that no report wrote.

    Raises:
        UserError: Nothing can be compared, or `out` is not writable.
    """
    check_report_folder("the comparison", out, force=force)
    placed = place(folders, kind=kind, metric=metric, margin=margin)
    pasted = [Pasted(label, paragraph(placed, label), citations(placed, label)) for label in placed.labels]
    words = " ".join(map(str, folders))
    page = Page(
        title=f"{listed(list(placed.labels))} among the references",
        facts=facts(placed),
        findings=[finding.text for finding in findings(placed)],
        notices=notices(placed),
        tables=list(compare_tables(placed)),
        command=command or f"{as_typed('hagmeta-report')} compare {words} --references {kind}",
        leaks=False,
        pasted=pasted,
    )
    path = write_page(page, draw_against(placed), placed.analysis.results, out, "the comparison")
    shutil.copyfile(out / "tables" / "paper.tex", out / "table.tex")
    with written_whole(out / "paragraph.txt") as partial:
        partial.write_text("\n\n".join(map(_as_text, pasted)) + "\n", encoding="utf-8")
    return path, placed


def _as_text(pasted: Pasted) -> str:
    cited = [f"[{number}] {text}" for number, text in enumerate(pasted.citations, 1)]
    return "\n\n".join([pasted.paragraph, *cited])


def facts(placed: Placed) -> list[Fact]:
    """Return the facts at the top of the page."""
    standings = placed.standings
    methods = len(set().union(*(each.rivals for each in standings)))
    seeds = sorted({each.lead.seeds for each in standings})
    theirs = placed.references.of(placed.kind, [each.dataset for each in standings])
    commits = {record["environment"]["commit"][:12] for record in theirs}
    found = [
        Fact("references", f"{methods} methods, {placed.kind}"),
        Fact("graphs", ", ".join(dict.fromkeys(each.dataset for each in standings))),
        Fact("common seeds", " to ".join(count_of_seeds(each) for each in {seeds[0], seeds[-1]})),
        Fact("accuracy", placed.analysis.results.metric),
        Fact("how they were run", about_references(placed)),
        Fact("tests", tests_words(placed.analysis.comparisons)),
        Fact("commit of the references", ", ".join(sorted(commits))),
    ]
    return [fact for fact in found if fact.value]


def notices(placed: Placed) -> list[Notice]:
    """Return what to know before reading: runs that were not compared, and doubtful assumptions."""
    lines_of = {
        "Not compared": [each.words for each in placed.refusals],
        "Seeds that the references have and you do not": list(_unused_seeds(placed)),
    }
    own = [Notice(title, lines) for title, lines in lines_of.items() if lines]
    return [*own, *lost_runs(placed.analysis)]


def _unused_seeds(placed: Placed) -> Iterator[str]:
    """Yield which seeds of the references the user's runs lack; more seeds decide smaller differences."""
    for each in placed.standings:
        known = {record["seed"] for record in placed.references.of(placed.kind, [each.dataset])}
        own = each.panel.by_seed("last")[each.label].dropna().index
        left = sorted(known - set(own))
        if left:
            yield f"{each.dataset}, {each.label}: {spanned(left)}. The references have {len(known)} seeds."
