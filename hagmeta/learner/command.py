"""`python -m hagmeta fit`, `learn` and `predict`: a learner in a file, for graphs in files."""

from __future__ import annotations

import argparse
import csv
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from hagmeta.api.calls import load_dataset, training_steps
from hagmeta.api.display import progress_display
from hagmeta.common.command import Parser, as_typed, parse_settings
from hagmeta.common.errors import UserError
from hagmeta.common.files.files import writing, written_whole
from hagmeta.common.files.outputs import Kind, check_output
from hagmeta.datasets.base import Dataset
from hagmeta.datasets.command import add_columns, columns_of
from hagmeta.datasets.formats.convert import convert
from hagmeta.learner.evidence import check_unknown, own_labels
from hagmeta.learner.learner import LIKELY, Learner
from hagmeta.learner.storage import LEARNER

DIGITS = 6  # of probabilities
HEADER = ("node", "class", "probability", "unknown")  # of the table that `predict` writes


def _are_predictions(path: Path) -> bool:
    with path.open(encoding="utf-8") as file:
        return file.readline(100) == ",".join(HEADER) + "\n"


PREDICTIONS = Kind("a table of predictions", _are_predictions)


def learner_command(name: str, arguments: Sequence[str]) -> None:
    """Run the command `name` with the arguments that follow it."""
    COMMANDS[name](arguments)


def _fit(arguments: Sequence[str]) -> None:
    parser = _parser(
        "fit", "Train a learner on the labelled nodes of a graph, and save it. Other nodes are unlabelled."
    )
    parser.add_argument(
        "--out", type=Path, required=True, metavar="FILE", help="file of the learner to write"
    )
    parser.add_argument(
        "--method",
        default="posterior-means",
        metavar="NAME",
        help="method, or your own file.py:Class (default: posterior-means)",
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of all random draws [0]")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help=f"change a setting that `{as_typed('hagmeta')} --help` lists; repeat it for more",
    )
    options = parser.options(arguments)
    learner = Learner(options.method, seed=options.seed, device=options.device, **parse_settings(options.set))
    check_output("--out", options.out, LEARNER, inputs=_inputs(options), force=options.force)
    steps = training_steps(learner._config)
    with _told() as console, progress_display(console, "learner", steps) as progress:
        learner.fit(_graph(options, labelled=True), progress=progress)
    print(f"wrote {learner.save(options.out)}: {learner.summary()}")


def _learn(arguments: Sequence[str]) -> None:
    parser = _parser(
        "learn",
        "Teach a saved learner all labels of a graph that are new or changed, and save it. Since the last "
        "call, the graph may have grown, shrunk or been reordered.",
    )
    _add_learner(parser)
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="file of the learner to write [the same file]"
    )
    options = parser.options(arguments)
    out = options.out or options.learner
    # The learner itself may be replaced.
    check_output("--out", out, LEARNER, inputs=_inputs(options), force=options.force)
    learner = _loaded(options)
    with _told():
        graph = _graph(options, labelled=True)
        labels = own_labels(graph)
        if not labels:
            raise UserError(f"{graph.name} has no labels; expected labels of the classes to learn.")
        by_name: dict[str, list[object]] = {}
        for node, name in labels.items():
            by_name.setdefault(name, []).append(node)
        before = learner.classes_
        learner.learn(graph, by_name)
    new = learner.classes_[len(before) :]
    print(f"new classes: {', '.join(new) or 'none'}")
    print(f"wrote {learner.save(out)}: {learner.summary()}")


def _predict(arguments: Sequence[str]) -> None:
    parser = _parser(
        "predict", "Predict the classes of all nodes of a graph. Labels of the graph are not read."
    )
    _add_learner(parser)
    parser.add_argument(
        "--out",
        type=Path,
        required=True,
        metavar="FILE.csv",
        help="table to write: node, class, probability, and how likely it is none of the known classes",
    )
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument("--all", action="store_true", help="write a row for every class of a node")
    shown.add_argument(
        "--unknown",
        metavar="NAME",
        help="write NAME as the class of nodes that more likely belong to none of the known classes",
    )
    options = parser.options(arguments)
    inputs = [options.learner, *_inputs(options)]
    check_output("--out", options.out, PREDICTIONS, inputs=inputs, force=options.force)
    learner = _loaded(options)
    if options.unknown is not None:
        check_unknown(options.unknown, learner.classes_, "--unknown")
    with _told():
        graph = _graph(options, labelled=False)
        nodes, probabilities = learner.probabilities(graph)
        _, unknown = learner.unknown_probabilities(graph)
    classes = learner.classes_
    with (
        writing("--out", options.out),
        written_whole(options.out) as partial,
        partial.open("w", encoding="utf-8", newline="") as file,
    ):
        plain = csv.writer(file, lineterminator="\n")
        # Before Python 3.13, a carriage return is not quoted.
        quoted = csv.writer(file, lineterminator="\n", quoting=csv.QUOTE_ALL)
        plain.writerow(HEADER)
        for node, row, strange in zip(nodes, probabilities, unknown, strict=True):
            chosen = range(len(classes)) if options.all else [int(row.argmax())]
            renamed = options.unknown is not None and strange > LIKELY
            for c in chosen:
                name = options.unknown if renamed else classes[c]
                table = quoted if "\r" in f"{node}{name}" else plain
                table.writerow([node, name, f"{row[c]:.{DIGITS}f}", f"{strange:.{DIGITS}f}"])
    print(f"wrote {options.out}: {len(nodes):,} nodes, {len(classes)} classes")


COMMANDS: dict[str, Callable[[Sequence[str]], None]] = {"fit": _fit, "learn": _learn, "predict": _predict}


@contextmanager
def _told() -> Iterator[Console]:
    """Print warnings as notes on standard error."""
    console = Console(stderr=True, highlight=False, markup=False, emoji=False)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", UserWarning)
        yield console
    for each in caught:
        console.print(f"note: {each.message}", style="yellow", soft_wrap=True)


def _graph(options: argparse.Namespace, *, labelled: bool) -> Dataset:
    """Return the graph that the options name. Its table must have labels if it is `labelled`."""
    if (options.nodes is None) != (options.edges is None) or (options.nodes is None) == (
        options.dataset is None
    ):
        raise UserError("expected either --nodes and --edges, or --dataset.")
    if options.dataset is not None:
        return load_dataset(options.dataset)
    converted = convert(options.edges, options.nodes, columns_of(options, needs_labels=labelled))
    for note in converted.notes:
        print(note)
    return Dataset(options.nodes.stem, *converted.graph)


def _inputs(options: argparse.Namespace) -> list[Path | str | None]:
    """Return the files that the graph is read from."""
    return [options.nodes, options.edges, options.dataset]


def _parser(name: str, description: str) -> Parser:
    parser = Parser(
        prog=f"{as_typed('hagmeta')} {name}",
        description=f"{description} Nodes are known by their ids, and features by their names.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add(
        "--nodes",
        type=Path,
        metavar="FILE",
        help="node table: CSV with a header, or TSV; see --id and --label",
    )
    add("--edges", type=Path, metavar="FILE", help="edge list with two node ids per line")
    add("--dataset", metavar="NAME", help="instead of --nodes and --edges: FILE.npz or a dataset name")
    add_columns(parser)
    add("--device", choices=["auto", "cpu", "cuda"], default="auto", help="where to compute [auto]")
    parser.add_force()
    return parser


def _add_learner(parser: Parser) -> None:
    parser.add_argument("learner", type=Path, help="file of a learner that fit or learn wrote")
    for kind in ("method", "encoder"):
        parser.add_argument(f"--{kind}", metavar="NAME", help=f"the {kind} of the learner, if it is your own")


def _loaded(options: argparse.Namespace) -> Learner:
    return Learner.load(
        options.learner, device=options.device, method=options.method, encoder=options.encoder
    )
