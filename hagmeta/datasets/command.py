"""`python -m hagmeta datasets`: list and describe datasets, write a page about them, convert files."""

from __future__ import annotations

import argparse
import shlex
import zipfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from hagmeta import datasets
from hagmeta.common.command import Parser, as_typed
from hagmeta.common.errors import UserError
from hagmeta.common.files.files import writing, written_whole
from hagmeta.common.files.home import home
from hagmeta.common.files.outputs import Kind, check_output
from hagmeta.datasets import Dataset
from hagmeta.datasets.descriptions.page import render
from hagmeta.datasets.descriptions.show import datasets_table, summary_view
from hagmeta.datasets.descriptions.summary import Summary, summary_of
from hagmeta.datasets.formats import npz
from hagmeta.datasets.formats.convert import NODES_PER_WORD, Columns, convert, count

PAGE_START = b"<title>Datasets</title>"  # within the first bytes of a page


def _is_graph(path: Path) -> bool:
    with zipfile.ZipFile(path) as archive:
        return {"edges.npy", "labels.npy"} <= set(archive.namelist())


def _is_page(path: Path) -> bool:
    with path.open("rb") as file:
        return PAGE_START in file.read(1000)


GRAPH = Kind("a graph in .npz format", _is_graph)
PAGE = Kind("a page about datasets", _is_page)


def datasets_command(arguments: Sequence[str]) -> None:
    """Run the command with the arguments that follow `datasets`."""
    if list(arguments[:1]) == ["convert"]:
        _convert(_convert_parser().options(arguments[1:]))
        return
    options = _parser().options(arguments)
    if options.report:
        _report(options.report, options.names, options.force)
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
    with Console(stderr=True).status(Text(f"analysing {name}"), spinner="line"):
        return summary_of(datasets.load(name, root), datasets.describe(name, root))


def _report(out: Path, names: Sequence[str], force: bool) -> None:
    """Write a page about the available datasets and those in ``names``."""
    if out.suffix != ".html":
        raise UserError(
            f"--report {out}: expected a file name that ends in .html. Put dataset names before --report."
        )
    check_output("--report", out, PAGE, inputs=names, force=force)
    root = home() / "data"
    for name in names:
        datasets.describe(name, root)  # report an unknown name before the slow part
    shown = list(dict.fromkeys([*datasets.at_hand(root), *names]))
    command = shlex.join(["python", "-m", "hagmeta", "datasets", *names, "--report", str(out)])
    page = render([_summary(name) for name in shown], command)
    with writing("--report", out), written_whole(out) as partial:
        # File names may contain bytes that are not valid UTF-8.
        partial.write_text(page, encoding="utf-8", errors="replace")
    print(f"wrote {out}: {', '.join(shown)}")


def _convert(options: argparse.Namespace) -> None:
    out: Path = options.out
    if out.suffix != ".npz":
        raise UserError(f"--out {out}: expected a file name that ends in .npz.")
    check_output("--out", out, GRAPH, inputs=[options.edges, options.nodes], force=options.force)
    columns = Columns(options.id, options.label, options.text, tuple(options.numeric or ()))
    converted = convert(options.edges, options.nodes, columns)
    made = Dataset(out.stem, *converted.graph)
    with writing("--out", out):
        npz.save(out, made)
    counts = {"node": made.num_nodes, "edge": len(made.edges), "feature": made.num_features}
    classes = f"{made.num_classes:,} classes"
    for note in converted.notes:
        print(note)
    print(f"wrote {out}: {', '.join(count(number, what) for what, number in counts.items())}, {classes}")
    print(f"to describe it, run: {as_typed('hagmeta')} datasets {out}")


def _parser() -> Parser:
    prog = f"{as_typed('hagmeta')} datasets"
    parser = Parser(
        prog=prog,
        description="List the datasets, or describe the given ones: counts, class sizes, degrees, homophily, "
        "and the accuracy of linear models on features alone and on neighbours' classes alone.",
        epilog=f"To make a dataset from your own CSV files, see `{prog} convert --help`.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="dataset to describe: a listed name, FILE.npz or mat:PREFIX"
    )
    parser.add_argument(
        "--report",
        nargs="?",
        type=Path,
        const=Path("datasets.html"),
        metavar="FILE.html",
        help="write an HTML page about the given, embedded and downloaded datasets [datasets.html]",
    )
    parser.add_force()
    return parser


def _convert_parser() -> Parser:
    parser = Parser(
        prog=f"{as_typed('hagmeta')} datasets convert",
        description="Make a dataset from an edge list and a node table. Both are CSV files in UTF-8, or TSV "
        "if the name ends in .tsv. Use the result with --dataset FILE.npz. The rules and an example are in "
        "docs/guides/your_graph.md.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--edges",
        type=Path,
        required=True,
        metavar="FILE",
        help="edge list with two node ids per line; a header is detected",
    )
    parser.add_argument(
        "--nodes",
        type=Path,
        required=True,
        metavar="FILE",
        help="node table with a header and one node per line",
    )
    parser.add_argument(
        "--out", type=Path, required=True, metavar="FILE.npz", help="file to write; replaces an older graph"
    )
    parser.add_force()
    parser.add_argument("--id", default="id", metavar="COLUMN", help="column with node ids [id]")
    parser.add_argument("--label", default="label", metavar="COLUMN", help="column with classes [label]")
    features = parser.add_mutually_exclusive_group()
    features.add_argument(
        "--text",
        metavar="COLUMN",
        help=f"column whose words become sparse features, if at least {NODES_PER_WORD} nodes use them",
    )
    features.add_argument(
        "--numeric",
        nargs="+",
        metavar="COLUMN",
        help="columns that become dense features [all except id and label]",
    )
    return parser
