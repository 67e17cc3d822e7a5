"""`hagmeta-report references`: write a report of the reference results, and a page to explore them."""

from __future__ import annotations

import shlex
import webbrowser
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from analysis.compare_command import KINDS
from analysis.report_options import add_common_options, add_report_options, conditions, margin_of
from hagmeta.common.command import Parser, as_typed


def references_command(arguments: Sequence[str]) -> None:
    """Run the command line; `arguments` come after the word references.

    Raises:
        UserError: An option is wrong, or the folder is not writable.
    """
    prog = f"{as_typed('hagmeta-report')} references"
    options = _parser(prog).options(arguments)
    margin, where = margin_of(options.margin), conditions(options.where)
    import matplotlib

    from analysis.references import load_references  # pandas takes seconds to import
    from analysis.report import check_report_folder, write_results

    matplotlib.use("Agg")  # figures go to files, never to a window
    kind = options.references
    out, force = options.out or Path("results") / f"references-{kind}", options.force or not options.out
    check_report_folder("the report", out, force=force)  # before seconds of reading
    results = replace(load_references(kind, options.metric), margin=margin)
    page = write_results(
        results.where(where) if where else results,
        out,
        command=shlex.join([*prog.split(), *arguments]),
        explore=options.explore,
        force=force,
        study=f"reference results ({kind})",
    )
    Console(highlight=False, soft_wrap=True, markup=False).print(f"report: {page}")
    if options.open:
        webbrowser.open(page.resolve().as_uri())


def _parser(prog: str) -> Parser:
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
    add_report_options(parser)
    add_common_options(parser)
    return parser
