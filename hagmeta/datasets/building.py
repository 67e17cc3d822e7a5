"""What the builders of embedded datasets share: choices, features and files that are the same anywhere."""

from __future__ import annotations

import argparse
import hashlib
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import scipy.sparse

from hagmeta.common.errors import UserError
from hagmeta.common.home import home
from hagmeta.datasets import npz
from hagmeta.datasets.base import NodeDataset
from hagmeta.datasets.download import RemoteFile, fetch_all

Edge = tuple[str, str]


def words(text: str) -> set[str]:
    """The words of a text, in lower case."""
    return set(re.findall(r"[a-z0-9]+", text.lower()))


def presence(words_of: Sequence[set[str]], minimum: int) -> scipy.sparse.csr_matrix:
    """A row a node, a column a word that at least ``minimum`` nodes have, 1 where it occurs."""
    frequency = Counter(word for words in words_of for word in words)
    vocabulary = sorted(word for word, count in frequency.items() if count >= minimum)
    column = {word: number for number, word in enumerate(vocabulary)}
    columns = [sorted(column[word] for word in words if word in column) for words in words_of]
    starts = np.cumsum([0] + [len(row) for row in columns])
    indices = np.array([number for row in columns for number in row], dtype=np.int64)
    return scipy.sparse.csr_matrix(
        (np.ones(len(indices), dtype=np.float32), indices, starts), shape=(len(words_of), len(vocabulary))
    )


def best_connected(class_of: Mapping[str, str], edges: Iterable[Edge], most: int) -> list[str]:
    """Of each class the nodes with most neighbours, at most so many; ties go by name."""
    degree = Counter(name for edge in edges for name in edge)
    by_class = defaultdict(list)
    for name in sorted(class_of, key=lambda name: (-degree[name], name)):
        by_class[class_of[name]].append(name)
    return [name for names in by_class.values() for name in names[:most]]


def in_no_order(names: Iterable[str]) -> list[str]:
    """Names in an order that tells nothing of their nodes, and is the same anywhere: that of their hashes."""
    return sorted(names, key=lambda name: hashlib.sha256(name.encode()).digest())


def from_package(
    package: RemoteFile, build: Callable[[Path], NodeDataset], doc: str | None, prog: str
) -> None:
    """A builder's command: ``OUT.npz``, from the package, fetched or given with ``--deb``."""
    parser = argparse.ArgumentParser(
        prog=f"python -m {prog}", description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path, metavar="OUT.npz", help="the file to write")
    parser.add_argument("--deb", type=Path, metavar="FILE", help=f"a {package.name} that is at hand")
    arguments = parser.parse_args()

    def fetch_and_build() -> NodeDataset:
        if arguments.deb is not None:
            return build(arguments.deb)
        folder = home() / "data" / "packages"
        fetch_all([package], folder)
        return build(folder / package.name)

    write(arguments.out, fetch_and_build)


def write(path: Path, build: Callable[[], NodeDataset]) -> None:
    """Build, write and say what came out, or in one line why nothing did."""
    try:
        dataset = build()
        npz.save(path, dataset)
    except UserError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    print(
        f"{path}: {dataset.num_nodes:,} nodes, {len(dataset.edges):,} edges, "
        f"{dataset.num_features:,} features, {dataset.num_classes} classes"
    )
