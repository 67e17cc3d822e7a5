"""From folders of records to tables, figures and one page.

python -m analysis results/ablation
"""

from __future__ import annotations

import shlex
import sys
import webbrowser
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from hagmeta.common.command import Parser, as_typed, show_error
from hagmeta.common.errors import UserError


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    arguments = sys.argv[1:] if arguments is None else arguments
    prog = as_typed("hagmeta-report")
    parser = Parser(prog=prog, description="From records to tables, figures and a report.")
    add = parser.add_argument
    add("results", nargs="+", type=Path, metavar="RESULTS", help="a study's folder, or a folder of studies")
    add("--out", type=Path, metavar="DIR", help="where to write (default: report in the first RESULTS)")
    add("--compare", choices=["published"], help="compare with the paper's numbers, or fail")
    add("--metric", metavar="NAME", help="what headlines, tests and figures go by (default: macro accuracy)")
    add(
        "--margin",
        type=float,
        default=1.0,
        metavar="POINTS",
        help="differences below POINTS count as equivalent (default: 1)",
    )
    add(
        "--baseline",
        metavar="METHOD",
        help="compare all others with this method, or configuration by its label",
    )
    add("--where", action="append", default=[], metavar="KEY=VALUE", help="only the runs with this setting")
    add("--by", metavar="KEY", help="compare the values of this setting, all others apart")
    add("--open", action="store_true", help="open the report in a browser")
    try:
        options = parser.options(arguments)
        import matplotlib

        from analysis.report import write_report  # pandas and seaborn take seconds to import

        matplotlib.use("Agg")  # files only: no window is ever opened

        page = write_report(
            options.results,
            options.out or options.results[0] / "report",
            compare=options.compare is not None,
            metric=options.metric,
            margin=_margin(options.margin),
            where=dict(_condition(text) for text in options.where),
            by=options.by,
            baseline=options.baseline,
            command=shlex.join([*prog.split(), *arguments]),
        )
    except UserError as error:
        show_error(error)
        return 2
    Console(highlight=False, soft_wrap=True).print(f"report: {page}", markup=False)
    if options.open:
        webbrowser.open(page.resolve().as_uri())
    return 0


def _margin(points: float) -> float:
    if not 0 < points < 100:
        raise UserError(f"--margin {points:g} is not between 0 and 100 points.")
    return points / 100


def _condition(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise UserError(f"--where {text!r} is not KEY=VALUE.")
    return key, value


if __name__ == "__main__":
    sys.exit(main())
