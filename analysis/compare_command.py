"""`hagmeta-report compare`: place the results of a study among the reference results."""

from __future__ import annotations

import shlex
import webbrowser
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from analysis.report_options import add_common_options, margin_of
from hagmeta.common.command import Parser, as_typed

KINDS = ("defaults", "tuned")  # as in `analysis.references`, which takes seconds to import


def compare_command(arguments: Sequence[str]) -> None:
    """Run the command line; `arguments` come after the word compare.

    Raises:
        UserError: An option is wrong, or nothing can be compared.
    """
    prog = f"{as_typed('hagmeta-report')} compare"
    options = _parser(prog).options(arguments)
    import matplotlib

    from analysis.compare_report import write_comparison  # pandas takes seconds to import

    matplotlib.use("Agg")  # figures go to files, never to a window
    page, placed = write_comparison(
        options.results,
        options.out or options.results[0] / "comparison",
        kind=options.references,
        metric=options.metric,
        margin=margin_of(options.margin),
        force=options.force or not options.out,
        command=shlex.join([*prog.split(), *arguments]),
    )
    from analysis.compare_words import sentences

    console = Console(highlight=False, soft_wrap=True, markup=False)
    for refusal in placed.refusals:
        console.print(f"not compared: {refusal.words}", style="yellow")
    for sentence in sentences(placed):
        console.print(sentence)
    console.print(f"comparison: {page}")
    if options.open:
        webbrowser.open(page.resolve().as_uri())


def _parser(prog: str) -> Parser:
    parser = Parser(prog=prog, description="Place the results of a study among the reference results.")
    add = parser.add_argument
    add("results", nargs="+", type=Path, metavar="RESULTS", help="folder of a study, or folder of studies")
    add(
        "--out",
        type=Path,
        metavar="DIR",
        help="folder to write to (default: comparison in the first RESULTS)",
    )
    add(
        "--references",
        choices=KINDS,
        default=KINDS[0],
        help="compare with tuned methods, or with the defaults of methods (default: defaults)",
    )
    add_common_options(parser)
    return parser
