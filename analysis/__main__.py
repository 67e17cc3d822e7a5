"""Write a report from the command line: tables, figures and one page.

python -m analysis results/ablation
python -m analysis compare results/mine
python -m analysis references --explore
"""

from __future__ import annotations

import shlex
import sys
import webbrowser
from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console

from hagmeta.common.command import Parser, as_typed, show_error
from hagmeta.common.errors import UserError

KINDS = ("defaults", "tuned")  # as in `analysis.references.references`, which takes seconds to import


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line with `arguments` and return the exit status."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    form = arguments[0] if arguments[:1] and arguments[0] in FORMS else ""
    parser_of, run = FORMS[form]
    prog = f"{as_typed('hagmeta-report')} {form}".strip()
    console = Console(highlight=False, soft_wrap=True, markup=False)
    try:
        options = parser_of(prog).options(arguments[1:] if form else arguments)
        import matplotlib

        matplotlib.use("Agg")  # figures go to files, never to a window
        command = shlex.join([*as_typed("hagmeta-report").split(), *arguments])
        page = run(options, command, console)
    except UserError as error:
        show_error(error)
        return 2
    console.print(f"{'comparison' if form == 'compare' else 'report'}: {page}")
    if options.open:
        webbrowser.open(page.resolve().as_uri())
    return 0


def _report_parser(prog: str) -> Parser:
    parser = Parser(
        prog=prog,
        description="Write tables, figures and a report from the records of studies.",
        epilog=f"`{prog} compare RESULTS` places results among the reference results. "
        f"`{prog} references` reports on the reference results.",
    )
    add = parser.add_argument
    _add_results(parser, "report")
    add("--published", action="store_true", help="require the paper's numbers: fail if it has none")
    add(
        "--baseline",
        metavar="METHOD",
        help="compare all others with this method, or with the configuration that has this label; "
        "other comparisons are another family, which can change verdicts",
    )
    add(
        "--by",
        action="append",
        default=[],
        metavar="SETTING",
        help="compare the values of this setting, pooled over all others; may be repeated; "
        "other comparisons are another family, which can change verdicts",
    )
    _add_report_options(parser)
    _add_common_options(parser)
    return parser


def _report(options: Namespace, command: str, console: Console) -> Path:
    from analysis.page.write import write_report

    return write_report(
        options.results,
        options.out or options.results[0] / "report",
        published=options.published,
        metric=options.metric,
        margin=_margin(options.margin),
        where=_conditions(options.where),
        by=options.by,
        baseline=options.baseline,
        command=command,
        explore=options.explore,
        force=options.force or not options.out,
    )


def _compare_parser(prog: str) -> Parser:
    parser = Parser(prog=prog, description="Place the results of a study among the reference results.")
    _add_results(parser, "comparison")
    parser.add_argument(
        "--references",
        choices=KINDS,
        default=KINDS[0],
        help="compare with tuned methods, or with the defaults of methods (default: defaults)",
    )
    _add_common_options(parser)
    return parser


def _compare(options: Namespace, command: str, console: Console) -> Path:
    from analysis.references.page import write_comparison
    from analysis.references.words import findings

    page, placed = write_comparison(
        options.results,
        options.out or options.results[0] / "comparison",
        kind=options.references,
        metric=options.metric,
        margin=_margin(options.margin),
        force=options.force or not options.out,
        command=command,
    )
    for refusal in placed.refusals:
        console.print(f"not compared: {refusal.words}", style="yellow")
    for finding in findings(placed):
        console.print(finding.text)
    return page


def _references_parser(prog: str) -> Parser:
    parser = Parser(
        prog=prog, description="Write a report of the reference results, without running a method."
    )
    add = parser.add_argument
    add(
        "--references",
        choices=KINDS,
        default=KINDS[0],
        help="tuned methods, or the defaults of methods (default: defaults)",
    )
    add(
        "--out",
        type=Path,
        metavar="DIR",
        help="folder to write to (default: results/references-tuned or results/references-defaults)",
    )
    _add_report_options(parser)
    _add_common_options(parser)
    return parser


def _references(options: Namespace, command: str, console: Console) -> Path:
    margin, where = _margin(options.margin), _conditions(options.where)
    from analysis.page.write import check_report_folder, write
    from analysis.references.references import load_references
    from analysis.report import Report

    kind = options.references
    out, force = options.out or Path("results") / f"references-{kind}", options.force or not options.out
    check_report_folder("the report", out, force=force)  # before seconds of reading
    results = load_references(kind, options.metric)
    report = Report(results.where(where) if where else results, margin=margin)
    study = f"reference results ({kind})"
    return write(report, out, command=command, explore=options.explore, force=force, study=study)


FORMS: dict[str, tuple[Callable[[str], Parser], Callable[[Namespace, str, Console], Path]]] = {
    "": (_report_parser, _report),
    "compare": (_compare_parser, _compare),
    "references": (_references_parser, _references),
}


def _add_results(parser: Parser, folder: str) -> None:
    add = parser.add_argument
    add("results", nargs="+", type=Path, metavar="RESULTS", help="folder of a study, or folder of studies")
    where = f"folder to write to (default: {folder} in the first RESULTS)"
    add("--out", type=Path, metavar="DIR", help=where)


def _add_common_options(parser: Parser) -> None:
    add = parser.add_argument
    add("--metric", metavar="NAME", help="score for headlines, tests and figures (default: macro accuracy)")
    add(
        "--margin",
        type=float,
        default=1.0,
        metavar="POINTS",
        help="differences below POINTS count as equivalent (default: 1)",
    )
    add("--open", action="store_true", help="open the page in a browser")
    parser.add_force()


def _add_report_options(parser: Parser) -> None:
    add = parser.add_argument
    add(
        "--where",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="use only runs with this setting; repeat it with the same KEY to allow several values",
    )
    add("--explore", action="store_true", help="also write explorer.html, a page to filter, hover and click")


def _margin(points: float) -> float:
    """Return a margin in points as a share."""
    if not 0 < points < 100:
        raise UserError(f"--margin {points:g}: expected a number of points between 0 and 100.")
    return points / 100


def _conditions(given: Sequence[str]) -> dict[str, list[str]]:
    """Return the values that are allowed for each setting."""
    found: dict[str, list[str]] = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not equals:
            raise UserError(f"--where {text!r}: expected KEY=VALUE, such as protocol=strict.")
        found.setdefault(key, []).append(value)
    return found


if __name__ == "__main__":
    sys.exit(main())
