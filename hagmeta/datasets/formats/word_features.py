"""Binary word features."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

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
