"""`python -m hagmeta datasets`: list and describe datasets, and convert files."""

from __future__ import annotations

import argparse
import zipfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from hagmeta import datasets
from hagmeta.common.command import Parser, as_typed
from hagmeta.common.errors import UserError
from hagmeta.common.files.files import writing
from hagmeta.common.files.home import home
from hagmeta.common.files.outputs import Kind, check_output
from hagmeta.datasets import Dataset
from hagmeta.datasets.descriptions.show import datasets_table, summary_view
from hagmeta.datasets.descriptions.summary import summary_of
from hagmeta.datasets.formats import npz
from hagmeta.datasets.formats.convert import NODES_PER_WORD, Columns, convert, count


def _is_graph(path: Path) -> bool:
    with zipfile.ZipFile(path) as archive:
        return {"edges.npy", "labels.npy"} <= set(archive.namelist())


GRAPH = Kind("a graph in .npz format", _is_graph)


def datasets_command(arguments: Sequence[str]) -> None:
    """Run the command with the arguments that follow `datasets`."""
    if list(arguments[:1]) == ["convert"]:
        _convert(_convert_parser().options(arguments[1:]))
        return
    names, root, console = _parser().options(arguments).names, home() / "data", Console(highlight=False)
    for name in names:
        if name != names[0]:
            console.print()
        with Console(stderr=True).status(Text(f"analysing {name}"), spinner="line"):
            summary = summary_of(datasets.load(name, root), datasets.describe(name, root))
        console.print(summary_view(summary))
    if not names:
        Console().print(datasets_table([datasets.describe(name, root) for name in datasets.names()]))


def _convert(options: argparse.Namespace) -> None:
    out: Path = options.out
    if out.suffix != ".npz":
        raise UserError(f"--out {out}: expected a file name that ends in .npz.")
    check_output("--out", out, GRAPH, inputs=[options.edges, options.nodes], force=options.force)
    converted = convert(options.edges, options.nodes, columns_of(options))
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
    add_columns(parser)
    return parser


def add_columns(parser: Parser) -> None:
    """Add the options that name the columns of a node table; see `columns_of`."""
    parser.add_argument("--id", default="id", metavar="COLUMN", help="column with node ids [id]")
    parser.add_argument(
        "--label", default="label", metavar="COLUMN", help="column with classes; empty: no label [label]"
    )
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


def columns_of(options: argparse.Namespace, *, needs_labels: bool = True) -> Columns:
    """Return the columns of a node table that `options` name."""
    numeric = tuple(options.numeric or ())
    return Columns(options.id, options.label, options.text, numeric, needs_labels=needs_labels)
