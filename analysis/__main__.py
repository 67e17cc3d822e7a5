"""Write a report from the command line: tables, figures and one page.

python -m analysis results/ablation
python -m analysis compare results/mine
python -m analysis references --explore
"""

from __future__ import annotations

import shlex
import sys
import webbrowser
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from analysis.compare_command import compare_command
from analysis.references_command import references_command
from analysis.report_options import add_common_options, add_report_options, conditions, margin_of
from hagmeta.common.command import Parser, as_typed, show_error
from hagmeta.common.errors import UserError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line with `arguments` and return the exit status."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    prog = as_typed("hagmeta-report")
    parser = Parser(
        prog=prog,
        description="Write tables, figures and a report from the records of studies.",
        epilog=f"`{prog} compare RESULTS` places results among the reference results. "
        f"`{prog} references` reports on the reference results.",
    )
    add = parser.add_argument
    add("results", nargs="+", type=Path, metavar="RESULTS", help="folder of a study, or folder of studies")
    add("--out", type=Path, metavar="DIR", help="folder to write to (default: report in the first RESULTS)")
    add("--published", action="store_true", help="require the paper's numbers: fail if it has none")
    add(
        "--baseline",
        metavar="METHOD",
        help="compare all others with this method, or with the configuration that has this label",
    )
    add("--by", metavar="KEY", help="compare the values of this setting, and separate all other settings")
    add_report_options(parser)
    add_common_options(parser)
    try:
        if arguments[:1] == ["compare"]:
            compare_command(arguments[1:])
            return 0
        if arguments[:1] == ["references"]:
            references_command(arguments[1:])
            return 0
        options = parser.options(arguments)
        import matplotlib

        from analysis.report import write_report  # pandas and seaborn take seconds to import

        matplotlib.use("Agg")  # figures go to files, never to a window

        page = write_report(
            options.results,
            options.out or options.results[0] / "report",
            published=options.published,
            metric=options.metric,
            margin=margin_of(options.margin),
            where=conditions(options.where),
            by=options.by,
            baseline=options.baseline,
            command=shlex.join([*prog.split(), *arguments]),
            explore=options.explore,
            force=options.force or not options.out,
        )
    except UserError as error:
        show_error(error)
        return 2
    Console(highlight=False, soft_wrap=True).print(f"report: {page}", markup=False)
    if options.open:
        webbrowser.open(page.resolve().as_uri())
    return 0


if __name__ == "__main__":
    sys.exit(main())
