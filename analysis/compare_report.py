"""Write a comparison with the references: one page, tables, figures and a paragraph for a paper."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from analysis import table
from analysis.comparable import spanned
from analysis.compare import Placed, place
from analysis.compare_tables import about_references, compare_tables
from analysis.compare_words import citations, paragraph, sentences
from analysis.figures import against
from analysis.inference import ALIKE, DIFFERENT, LEVEL, MARGIN
from analysis.page import Fact, Notice, Pasted, render
from analysis.references import DEFAULTS
from analysis.report import (
    FRAME,
    asymmetry,
    check_report_folder,
    named_apart,
    remove_others,
    save_drawing,
    write_frame,
)
from analysis.words import count_of_seeds, listed
from hagmeta.common.command import as_typed
from hagmeta.common.errors import UserError
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
    tables = list(named_apart(compare_tables(placed)))
    pasted = [Pasted(label, paragraph(placed, label), citations(placed, label)) for label in placed.labels]
    try:
        out.mkdir(parents=True, exist_ok=True)
        write_frame(placed.results, out / FRAME)
        written = [path for each in tables for path in table.save(each, out / "tables")]
        pictures = [save_drawing(drawing, out) for drawing in named_apart(against.draw(placed))]
        remove_others(out, {*written, *(path for picture in pictures for path in picture.files)})
        shutil.copyfile(out / "tables" / "paper.tex", out / "table.tex")
        with written_whole(out / "paragraph.txt") as partial:
            partial.write_text("\n\n".join(map(_as_text, pasted)) + "\n", encoding="utf-8")
        page = render(
            title=f"{listed(placed.labels)} among the references",
            facts=facts(placed),
            findings=list(sentences(placed)),
            notices=notices(placed),
            tables=tables,
            pictures=pictures,
            command=command or f"{as_typed('hagmeta-report')} compare {' '.join(map(str, folders))}",
            data=FRAME,
            leaks=False,
            pasted=pasted,
        )
        with written_whole(out / "index.html") as partial:
            partial.write_text(page, encoding="utf-8")
    except OSError as error:
        reason = error.strerror or error
        raise UserError(f"cannot write the comparison to {out}: {reason}. Choose another --out.") from None
    return out / "index.html", placed


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
    tests = ""
    if placed.tests.total:
        tests = (
            f"{placed.tests.total} comparisons were tested together. The probability of any false verdict is "
            f'at most {100 * LEVEL:g} %: {100 * DIFFERENT:g} % for "ahead" and "behind", {100 * ALIKE:g} % '
            'for "equivalent". Each verdict holds for its graph only.'
        )
    found = [
        Fact("references", f"{methods} methods, {placed.kind}"),
        Fact("graphs", ", ".join(dict.fromkeys(each.dataset for each in standings))),
        Fact("common seeds", " to ".join(count_of_seeds(each) for each in {seeds[0], seeds[-1]})),
        Fact("accuracy", placed.results.metric),
        Fact("how they were run", about_references(placed)),
        Fact("tests", tests),
        Fact("commit of the references", ", ".join(sorted(commits))),
    ]
    return [fact for fact in found if fact.value]


def notices(placed: Placed) -> list[Notice]:
    """Return what to know before reading: runs that were not compared, and doubtful assumptions."""
    results = placed.results
    lines_of = {
        "Not compared": [each.words for each in placed.refusals],
        "Seeds that the references have and you do not": list(_unused_seeds(placed)),
        "Failed runs": [lost.words for lost in results.failed],
        "Planned runs that are missing": [lost.words for lost in results.missing],
        "Damaged files, left out": results.damaged,
        "Runs with different results in two folders": results.conflicts,
        "Differences are not symmetric": asymmetry(placed.asymmetry),
    }
    return [Notice(title, lines) for title, lines in lines_of.items() if lines]


def _unused_seeds(placed: Placed) -> Iterator[str]:
    """Yield which seeds of the references the user's runs lack; more seeds decide smaller differences."""
    for each in placed.standings:
        known = {record["seed"] for record in placed.references.of(placed.kind, [each.dataset])}
        own = each.panel.by_seed("last")[each.label].dropna().index
        left = sorted(known - set(own))
        if left:
            yield f"{each.dataset}, {each.label}: {spanned(left)}. The references have {len(known)} seeds."
