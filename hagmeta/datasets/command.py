"""`python -m hagmeta datasets`: list them, describe them, make a page of them, or make one from files."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from hagmeta import datasets
from hagmeta.common.command import Parser, as_typed
from hagmeta.common.errors import UserError
from hagmeta.common.files import check_writable, writing, written_whole
from hagmeta.common.home import home
from hagmeta.datasets import Dataset, npz
from hagmeta.datasets.convert import NODES_PER_WORD, Columns, convert, count
from hagmeta.datasets.page import render
from hagmeta.datasets.show import datasets_table, summary_view
from hagmeta.datasets.summary import Summary, summary_of


def datasets_command(arguments: Sequence[str]) -> None:
    """Do what the words after `datasets` say."""
    if list(arguments[:1]) == ["convert"]:
        _convert(_convert_parser().options(arguments[1:]))
        return
    options = _parser().options(arguments)
    if options.report:
        _report(options.report, options.names)
    elif options.names:
        console = Console(highlight=False)
        for name in options.names:
            if name != options.names[0]:
                console.print()
            console.print(summary_view(_summary(name)))
    else:
        root = home() / "data"
        Console().print(datasets_table([datasets.describe(name, root) for name in datasets.names()]))


def _summary(name: str) -> Summary:
    root = home() / "data"
    with Console(stderr=True).status(Text(f"looking at {name}"), spinner="line"):
        return summary_of(datasets.load(name, root), datasets.describe(name, root))


def _report(out: Path, names: Sequence[str]) -> None:
    """A page of what is at hand, and of what is named."""
    if out.suffix != ".html":
        raise UserError(f"--report {out}: valid is a name that ends in .html; datasets are named before it.")
    check_writable("--report", out)
    root = home() / "data"
    for name in names:
        datasets.describe(name, root)  # an unknown one is named before the work
    shown = list(dict.fromkeys([*datasets.at_hand(root), *names]))
    command = shlex.join(["python", "-m", "hagmeta", "datasets", *names, "--report", str(out)])
    page = render([_summary(name) for name in shown], command)
    with writing("--report", out), written_whole(out) as partial:
        # A file's name may hold bytes that are no UTF-8.
        partial.write_text(page, encoding="utf-8", errors="replace")
    print(f"{out}: {', '.join(shown)}")


def _convert(options: argparse.Namespace) -> None:
    out: Path = options.out
    if out.suffix != ".npz":
        raise UserError(f"--out {out}: valid is a name that ends in .npz.")
    check_writable("--out", out)
    columns = Columns(options.id, options.label, options.text, tuple(options.numeric or ()))
    converted = convert(options.edges, options.nodes, columns)
    made = Dataset(out.stem, *converted.graph)
    with writing("--out", out):
        npz.save(out, made)
    counts = {"node": made.num_nodes, "edge": len(made.edges), "feature": made.num_features}
    classes = f"{made.num_classes:,} classes"
    for note in converted.notes:
        print(note)
    print(f"{out}: {', '.join(count(number, what) for what, number in counts.items())}, {classes}")
    print(f"look at it with: {as_typed('hagmeta')} datasets npz:{out}")


def _parser() -> Parser:
    prog = f"{as_typed('hagmeta')} datasets"
    parser = Parser(
        prog=prog,
        description="List the datasets, or describe those that are named: counts, class sizes, degrees, "
        "homophily, and what a linear model makes of features alone, or of neighbours' classes alone.",
        epilog=f"`{prog} convert --help`: a dataset from files of your own.",
        allow_abbrev=False,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="of the list, npz:FILE or mat:PREFIX")
    parser.add_argument(
        "--report",
        nargs="?",
        type=Path,
        const=Path("datasets.html"),
        metavar="FILE.html",
        help="a page of the named, the embedded and the downloaded ones [datasets.html]",
    )
    return parser


def _convert_parser() -> Parser:
    parser = Parser(
        prog=f"{as_typed('hagmeta')} datasets convert",
        description="Make a dataset, which --dataset npz:FILE then runs on, from an edge list and a table of "
        "nodes: UTF-8 files, cells between commas (tabs in a .tsv). docs/your_data.md has the rules "
        "and an example.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--edges", type=Path, required=True, metavar="FILE", help="two ids a line; a header is recognised"
    )
    parser.add_argument(
        "--nodes",
        type=Path,
        required=True,
        metavar="FILE",
        help="a node a line, after a line of column names",
    )
    parser.add_argument("--out", type=Path, required=True, metavar="FILE.npz", help="replaced if it is there")
    parser.add_argument("--id", default="id", metavar="COLUMN", help="the node's id [id]")
    parser.add_argument("--label", default="label", metavar="COLUMN", help="its class [label]")
    features = parser.add_mutually_exclusive_group()
    features.add_argument(
        "--text", metavar="COLUMN", help=f"its words, those that {NODES_PER_WORD} nodes use, are the features"
    )
    features.add_argument(
        "--numeric", nargs="+", metavar="COLUMN", help="dense features [every column but id and label]"
    )
    return parser
