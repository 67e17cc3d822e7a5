"""Nodes and binary word features of graphs that are built from texts."""

from __future__ import annotations

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import scipy.sparse


def frequent(words_of: Sequence[set[str]], minimum: int) -> list[str]:
    """Return the words of at least ``minimum`` nodes, sorted. They are the columns of ``presence``."""
    frequency = Counter(word for words in words_of for word in words)
    return sorted(word for word, count in frequency.items() if count >= minimum)


def presence(words_of: Sequence[set[str]], minimum: int) -> scipy.sparse.csr_matrix:
    """Return a binary matrix with one row per node and one column per word of at least ``minimum`` nodes."""
    vocabulary = frequent(words_of, minimum)
    column = {word: number for number, word in enumerate(vocabulary)}
    columns = [sorted(column[word] for word in words if word in column) for words in words_of]
    starts = np.cumsum([0] + [len(row) for row in columns])
    indices = np.array([number for row in columns for number in row], dtype=np.int64)
    return scipy.sparse.csr_matrix(
        (np.ones(len(indices), dtype=np.float32), indices, starts), shape=(len(words_of), len(vocabulary))
    )


def words(text: str) -> set[str]:
    """Return the words of ``text`` in lower case."""
    return set(re.findall(r"[a-z0-9]+", text.lower()))


def best_connected(class_of: Mapping[str, str], edges: Iterable[tuple[str, str]], most: int) -> list[str]:
    """Return at most ``most`` nodes per class, those with most neighbours. Ties are broken by name."""
    degree = Counter(name for edge in edges for name in edge)
    by_class = defaultdict(list)
    for name in sorted(class_of, key=lambda name: (-degree[name], name)):
        by_class[class_of[name]].append(name)
    return [name for names in by_class.values() for name in names[:most]]


def in_no_order(names: Iterable[str]) -> list[str]:
    """Sort names by their hash, so that the order is reproducible but says nothing about the nodes."""
    return sorted(names, key=lambda name: hashlib.sha256(name.encode()).digest())
