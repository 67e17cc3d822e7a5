"""`python -m hagmeta datasets convert`: an edge list and a table of nodes become a graph (docs/your_data.md).

Every line is checked, and what is left out is counted in a note. Nodes without a label stay in the graph as
context.
"""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from hagmeta.common.errors import UserError
from hagmeta.datasets.clean import (
    LARGEST,
    UNLABELLED,
    Features,
    GraphArrays,
    clean_graph,
    in_order,
    is_no_label,
    sorted_unique,
)
from hagmeta.datasets.table_file import TableFile, shown
from hagmeta.datasets.word_features import presence

NODES_PER_WORD = 3  # a word that fewer use tells nodes apart, not classes


@dataclass(frozen=True)
class Columns:
    """Which columns of the table of nodes are read; neither text nor numeric: all others are numeric."""

    id: str = "id"
    label: str = "label"
    text: str | None = None
    numeric: Sequence[str] = ()


@dataclass(frozen=True)
class Converted:
    """A graph, and what a user should know of how it was made."""

    graph: GraphArrays
    notes: list[str]


@dataclass
class _Nodes:
    """The table of nodes, which are numbered in the order of the file."""

    feature_names: list[str]
    number: dict[str, int] = field(default_factory=dict)  # by id
    labels: list[str | None] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    numbers: list[list[float]] = field(default_factory=list)


def convert(edges: Path, nodes: Path, columns: Columns) -> Converted:
    """Read both files; a UserError names file, line, column and value of the first thing that is wrong."""
    edge_table, node_table = TableFile(edges), TableFile(nodes)
    if edges.samefile(nodes):
        raise UserError(f"{edges}: --edges and --nodes name the same file; valid are two.")
    notes: list[str] = []
    read = _read_nodes(node_table, columns, notes)
    names = _class_names(read.labels, nodes, columns)
    features = _features(read, nodes, columns, notes)
    pairs = _read_edges(edge_table, read.number, notes)
    position: dict[str | None, int] = {name: label for label, name in enumerate(names)}
    graph = clean_graph(
        edges=pairs,
        labels=[position.get(name, UNLABELLED) for name in read.labels],
        features=features,
        class_names=names,
        source=str(nodes),
    )
    columns_read = tuple(read.feature_names) if columns.text is None else None
    return Converted(graph._replace(node_ids=tuple(read.number), feature_names=columns_read), notes)


def _read_nodes(table: TableFile, columns: Columns, notes: list[str]) -> _Nodes:
    rows = table.rows()
    _, header = next(rows)
    names = [name.strip() for name in header]
    id_column, label_column = (_position(table, names, name) for name in (columns.id, columns.label))
    feature_names = _feature_names(table, names, columns)
    feature_columns = [_position(table, names, name) for name in feature_names]
    nodes = _Nodes(feature_names)
    line_of: dict[str, int] = {}
    for line, row in rows:
        node, label = row[id_column].strip(), row[label_column].strip()
        if not node:
            raise table.error(line, f"column {columns.id!r} is empty; valid is an id for every node.")
        if node in line_of:
            raise table.error(
                line,
                f"column {columns.id!r} holds {shown(node)}, as does line {line_of[node]}; "
                f"valid is an id of its own for every node.",
            )
        line_of[node] = line
        nodes.number[node] = len(nodes.labels)
        nodes.labels.append(None if is_no_label(label) else label)
        if columns.text is not None:
            nodes.texts.append(row[feature_columns[0]])
        else:
            nodes.numbers.append(_numbers(table, line, row, feature_columns, names))
    unlabelled = nodes.labels.count(None)
    if unlabelled:
        notes.append(f"{table.path}: {count(unlabelled, 'node')} without a label, kept as context")
    unread = [name for name in names if name not in (columns.id, columns.label, *feature_names)]
    if unread:
        notes.append(f"{table.path}: not read: {_listed(unread)}")
    return nodes


def _position(table: TableFile, names: list[str], wanted: str) -> int:
    times = names.count(wanted)
    if times != 1:
        reason = f"there are {times} columns" if times else "there is no column"
        alone = " alone; cells stand between commas, in a .tsv between tabs" if len(names) == 1 else ""
        raise table.error(
            1, f"{reason} {wanted!r}; the line that names the columns has {_listed(names)}{alone}."
        )
    return names.index(wanted)


def _feature_names(table: TableFile, names: list[str], columns: Columns) -> list[str]:
    own = (columns.id, columns.label)
    if columns.id == columns.label:
        raise UserError(f"--id and --label both name the column {columns.id!r}; valid are two columns.")
    chosen = [columns.text] if columns.text is not None else list(columns.numeric)
    for name, times in Counter([*chosen, *own]).items():
        if times > 1:
            raise UserError(f"the column {name!r} is named twice; a feature is a column of its own.")
    if chosen:
        return chosen
    others = [name for name in names if name not in own]
    if not others:
        raise table.error(1, f"there is no column for features beside {own[0]!r} and {own[1]!r}.")
    if "" in others:
        raise table.error(1, f"column {names.index('') + 1} has no name; name it, or choose with --numeric.")
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
        f"column {names[position]!r} holds {shown(row[position])}; valid is a number from {-LARGEST:g} to "
        f"{LARGEST:g}. Words are read with --text COLUMN; --numeric COLUMN ... chooses columns.",
    )


def _is_number(cell: str) -> bool:
    try:
        return math.isfinite(float(cell)) and abs(float(cell)) <= LARGEST
    except ValueError:
        return False


def _class_names(labels: list[str | None], path: Path, columns: Columns) -> list[str]:
    present = in_order(label for label in labels if label is not None)
    if len(present) < 2:
        found = f"one class, {shown(present[0])}" if present else "no label at all"
        raise UserError(f"{path}: column {columns.label!r} holds {found}; valid are two classes or more.")
    return present


def _features(nodes: _Nodes, path: Path, columns: Columns, notes: list[str]) -> Features:
    if columns.text is None:
        return np.array(nodes.numbers, dtype=np.float32)
    words_of = [set(re.findall(r"[^\W_]+", text.lower())) for text in nodes.texts]
    matrix = presence(words_of, NODES_PER_WORD)
    if not matrix.shape[1]:
        raise UserError(
            f"{path}: column {columns.text!r} has no word that {NODES_PER_WORD} nodes use; "
            f"at least one is needed."
        )
    wordless = int(np.sum(matrix.getnnz(axis=1) == 0))
    notes.append(
        f"{path}: {count(matrix.shape[1], 'word')} of column {columns.text!r} used by at least "
        f"{NODES_PER_WORD} nodes; {count(wordless, 'node')} without any"
    )
    return matrix


def _read_edges(table: TableFile, number: dict[str, int], notes: list[str]) -> np.ndarray:
    rows = itertools.chain.from_iterable(_edge_rows(table, number, notes))
    ends = np.fromiter(rows, dtype=np.int64).reshape(-1, 2)
    lower, upper = ends.min(axis=1), ends.max(axis=1)
    distinct = len(sorted_unique((lower * len(number) + upper)[lower != upper]))
    loops = int(np.sum(lower == upper))
    dropped = {
        "from a node to itself": loops,
        "repeated, in either direction": len(ends) - loops - distinct,
    }
    said = "".join(f", {times:,} {what}" for what, times in dropped.items() if times)
    notes.append(f"{table.path}: {count(len(ends), 'edge')}{said}; {distinct:,} kept")
    if not distinct:
        raise UserError(f"{notes[-1]}; at least one between two different nodes is needed.")
    return ends


def _edge_rows(table: TableFile, number: dict[str, int], notes: list[str]) -> Iterator[tuple[int, int]]:
    rows = table.rows()
    line, row = next(rows)
    if len(row) < 2:
        raise table.error(
            line, f"one cell, {shown(row[0])}; valid are two node ids, as in a,b (tab in a .tsv)."
        )
    if row[2:]:
        notes.append(f"{table.path}: not read: {count(len(row) - 2, 'column')} after the first two")
    if any(cell.strip() in number for cell in row[:2]):
        rows = itertools.chain([(line, row)], rows)
    else:
        notes.append(f"{table.path}: line {line} is taken for a header: {_listed(row)}")
    for line, row in rows:
        source, target = number.get(row[0].strip()), number.get(row[1].strip())
        if source is None or target is None:
            column = 0 if source is None else 1
            raise table.error(
                line,
                f"column {column + 1} holds {shown(row[column].strip())}, which is no node's id; "
                f"valid are the {len(number):,} ids of the nodes, to the letter.",
            )
        yield source, target


def _listed(names: Sequence[str]) -> str:
    few = ", ".join(shown(name) for name in names[:8])
    return few if len(names) <= 8 else f"{few} and {len(names) - 8} more"


def count(number: int, what: str) -> str:
    """So many of something."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"
