"""`python -m hagmeta datasets`: list them, describe them, make a page of them, or make one from files."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from rich.console import Console

from hagmeta import datasets
from hagmeta.common.command import Parser
from hagmeta.common.home import home
from hagmeta.datasets.show import datasets_table, summary_view
from hagmeta.datasets.summary import Summary, summary_of


def datasets_command(arguments: Sequence[str]) -> None:
    """Do what the words after `datasets` say."""
    options = _parser().options(arguments)
    if options.names:
        for name in options.names:
            Console(highlight=False).print(summary_view(_summary(name)))
    else:
        root = home() / "data"
        Console().print(datasets_table([datasets.describe(name, root) for name in datasets.names()]))


def _summary(name: str) -> Summary:
    root = home() / "data"
    with Console(stderr=True).status(f"looking at {name}", spinner="line"):
        return summary_of(datasets.load(name, root), datasets.describe(name, root))


def _parser() -> Parser:
    parser = Parser(
        prog="python -m hagmeta datasets",
        description="List the datasets, or describe those that are named: counts, class sizes, degrees, "
        "homophily, and what a linear model makes of features alone, or of neighbours' classes alone.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="of the list, npz:FILE or mat:PREFIX")
    return parser
