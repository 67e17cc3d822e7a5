"""`python -m hagmeta datasets convert`: make a graph from an edge list and a node table.

Every line is checked. Notes count everything that is left out. Nodes without a label stay in the graph as
context. The rules are in docs/guides/your_graph.md.
"""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from hagmeta.common.errors import UserError
from hagmeta.datasets.clean import sorted_unique
from hagmeta.datasets.features import LARGEST, Features
from hagmeta.datasets.formats.arrays import GraphArrays, clean_graph
from hagmeta.datasets.formats.table_file import TableFile, shown
from hagmeta.datasets.formats.word_features import frequent, presence
from hagmeta.datasets.labels import is_no_label

NODES_PER_WORD = 3  # rarer words identify nodes, not classes


@dataclass(frozen=True)
class Columns:
    """The columns of the node table to read. Without ``text`` and ``numeric``, all others are numeric."""

    id: str = "id"
    label: str | None = "label"  # None: there is no such column
    text: str | None = None
    numeric: Sequence[str] = ()
    needs_labels: bool = True  # False: the label column may be missing or empty


@dataclass(frozen=True)
class Converted:
    """A graph, and notes for the user about the files."""

    graph: GraphArrays
    notes: list[str]


@dataclass
class _Nodes:
    """The content of the node table. Nodes are numbered in the order of the file."""

    feature_names: list[str]
    number: dict[str, int] = field(default_factory=dict)  # by id without surrounding blanks
    ids: list[str] = field(default_factory=list)  # as in the file
    labels: list[str | None] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    numbers: list[list[float]] = field(default_factory=list)


def convert(edges: Path, nodes: Path, columns: Columns) -> Converted:
    """Read both files and return the graph.

    Raises:
        UserError: A file is invalid. The message gives file, line, column and value of the first problem.
    """
    edge_table, node_table = TableFile(edges), TableFile(nodes)
    if edges.samefile(nodes):
        raise UserError(f"{edges}: --edges and --nodes are the same file; expected two different files.")
    notes: list[str] = []
    read = _read_nodes(node_table, columns, notes)
    _require_classes(read.labels, nodes, columns)
    features = _features(read, nodes, columns, notes)
    pairs = _read_edges(edge_table, read.number, notes)
    graph = clean_graph(
        edges=pairs,
        labels=read.labels,
        features=features,
        source=str(nodes),
        may_be_unlabelled=not columns.needs_labels,
    )
    ids, features_read = tuple(read.ids), tuple(read.feature_names)
    return Converted(graph._replace(node_ids=ids, feature_names=features_read), notes)


def _read_nodes(table: TableFile, columns: Columns, notes: list[str]) -> _Nodes:
    rows = table.rows()
    _, header = next(rows)
    names = [name.strip() for name in header]
    if not columns.needs_labels and columns.label not in names:
        columns = replace(columns, label=None)
    id_column = _position(table, names, columns.id)
    label_column = None if columns.label is None else _position(table, names, columns.label)
    feature_names = _feature_names(table, names, columns)
    feature_columns = [_position(table, names, name) for name in feature_names]
    nodes = _Nodes(feature_names)
    line_of: dict[str, int] = {}
    for line, row in rows:
        node, label = row[id_column].strip(), "" if label_column is None else row[label_column].strip()
        if not node:
            raise table.error(line, f"column {columns.id!r} is empty; expected an id for every node.")
        if node in line_of:
            raise table.error(
                line,
                f"column {columns.id!r} holds {shown(node)}, as does line {line_of[node]}; "
                f"expected a unique id for every node.",
            )
        line_of[node] = line
        nodes.number[node] = len(nodes.labels)
        nodes.ids.append(row[id_column])
        nodes.labels.append(None if is_no_label(label) else label)
        if columns.text is not None:
            nodes.texts.append(row[feature_columns[0]])
        else:
            nodes.numbers.append(_numbers(table, line, row, feature_columns, names))
    unlabelled = nodes.labels.count(None)
    if unlabelled and columns.label is not None:
        notes.append(f"{table.path}: {count(unlabelled, 'node')} without a label; kept as context")
    unread = [name for name in names if name not in (columns.id, columns.label, *feature_names)]
    if unread:
        notes.append(f"{table.path}: columns not used: {_listed(unread)}")
    return nodes


def _position(table: TableFile, names: list[str], wanted: str) -> int:
    times = names.count(wanted)
    if times != 1:
        reason = f"there are {times} columns" if times else "there is no column"
        alone = " only. Separate cells with commas, or with tabs in a .tsv file" if len(names) == 1 else ""
        raise table.error(1, f"{reason} {wanted!r}; the header has {_listed(names)}{alone}.")
    return names.index(wanted)


def _feature_names(table: TableFile, names: list[str], columns: Columns) -> list[str]:
    own = [name for name in (columns.id, columns.label) if name is not None]
    if columns.id == columns.label:
        raise UserError(f"--id and --label are both {columns.id!r}; expected two different columns.")
    chosen = [columns.text] if columns.text is not None else list(columns.numeric)
    for name, times in Counter([*chosen, *own]).items():
        if times > 1:
            raise UserError(
                f"column {name!r} is given twice; expected different columns for id, label and features."
            )
    if chosen:
        return chosen
    others = [name for name in names if name not in own]
    if not others:
        listed = " and ".join(map(repr, own))
        raise table.error(1, f"there is no feature column; the only columns are {listed}.")
    if "" in others:
        raise table.error(
            1, f"column {names.index('') + 1} has no name; name it, or choose columns with --numeric."
        )
    return others


def _numbers(
    table: TableFile, line: int, row: list[str], positions: list[int], names: list[str]
) -> list[float]:
    try:
        numbers = [float(row[position]) for position in positions]
    except ValueError:
        numbers = []
    if numbers and all(-LARGEST <= number <= LARGEST for number in numbers):  # NaN is not
        return numbers
    position = next(position for position in positions if not _is_number(row[position]))
    raise table.error(
        line,
        f"column {names[position]!r} holds {shown(row[position])}; expected a number from {-LARGEST:g} to "
        f"{LARGEST:g}. Use --text COLUMN to read words, or --numeric COLUMN ... to choose other columns.",
    )


def _is_number(cell: str) -> bool:
    try:
        return math.isfinite(float(cell)) and abs(float(cell)) <= LARGEST
    except ValueError:
        return False


def _require_classes(labels: list[str | None], path: Path, columns: Columns) -> None:
    present = {label for label in labels if label is not None}
    if len(present) < 2 and columns.needs_labels:
        found = f"only one class, {shown(present.pop())}" if present else "no labels"
        raise UserError(f"{path}: column {columns.label!r} holds {found}; expected at least two classes.")


def _features(nodes: _Nodes, path: Path, columns: Columns, notes: list[str]) -> Features:
    if columns.text is None:
        return np.array(nodes.numbers, dtype=np.float32)
    words_of = [set(re.findall(r"[^\W_]+", text.lower())) for text in nodes.texts]
    matrix, nodes.feature_names = presence(words_of, NODES_PER_WORD), frequent(words_of, NODES_PER_WORD)
    if not matrix.shape[1]:
        raise UserError(
            f"{path}: column {columns.text!r} has no word that occurs in {NODES_PER_WORD} nodes; "
            f"expected at least one such word."
        )
    wordless = int(np.sum(matrix.getnnz(axis=1) == 0))
    notes.append(
        f"{path}: {count(matrix.shape[1], 'word')} of column {columns.text!r} in at least "
        f"{NODES_PER_WORD} nodes; {count(wordless, 'node')} without any of them"
    )
    return matrix


def _read_edges(table: TableFile, number: dict[str, int], notes: list[str]) -> np.ndarray:
    rows = itertools.chain.from_iterable(_edge_rows(table, number, notes))
    ends = np.fromiter(rows, dtype=np.int64).reshape(-1, 2)
    lower, upper = ends.min(axis=1), ends.max(axis=1)
    distinct = len(sorted_unique((lower * len(number) + upper)[lower != upper]))
    loops = int(np.sum(lower == upper))
    dropped = {"self-loop": loops, "duplicate": len(ends) - loops - distinct}
    listed = ", ".join(count(times, what) for what, times in dropped.items() if times)
    notes.append(
        f"{table.path}: {count(len(ends), 'edge')} read, {distinct:,} kept"
        + (f" (dropped: {listed})" if listed else "")
    )
    if not distinct:
        raise UserError(f"{notes[-1]}; expected at least one edge between two different nodes.")
    return ends


def _edge_rows(table: TableFile, number: dict[str, int], notes: list[str]) -> Iterator[tuple[int, int]]:
    rows = table.rows()
    line, row = next(rows)
    if len(row) < 2:
        raise table.error(
            line,
            f"there is only one cell, {shown(row[0])}; expected two node ids, as in a,b (tab in a .tsv).",
        )
    if row[2:]:
        notes.append(f"{table.path}: {count(len(row) - 2, 'column')} after the first two not used")
    if any(cell.strip() in number for cell in row[:2]):
        rows = itertools.chain([(line, row)], rows)
    else:
        notes.append(f"{table.path}: line {line} skipped as a header: {_listed(row)}")
    for line, row in rows:
        source, target = number.get(row[0].strip()), number.get(row[1].strip())
        if source is None or target is None:
            column = 0 if source is None else 1
            raise table.error(
                line,
                f"column {column + 1} holds {shown(row[column].strip())}; expected one of the "
                f"{len(number):,} ids in the node table, spelled the same.",
            )
        yield source, target


def _listed(names: Sequence[str]) -> str:
    few = ", ".join(shown(name) for name in names[:8])
    return few if len(names) <= 8 else f"{few} and {len(names) - 8} more"


def count(number: int, what: str) -> str:
    """Return a number with its noun, such as "2 nodes"."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"
