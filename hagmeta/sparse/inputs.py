"""How node features enter the first layer: as they are, or weighed as the words of documents are.

    tf-idf   every word times its inverse document frequency, rows at unit length
    svd      those rows in the basis of their first right singular vectors, at unit length again

Both are linear in the features but for a factor a row, so that nothing is made that has a row a node and a
seed: seeds share the sparse features, and each weighs its first layer's parameters instead. Frequencies and
basis are of the nodes that a seed sees at the start; to nodes that come later they are applied as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy.sparse
from scipy.sparse.linalg import svds
from threadpoolctl import threadpool_limits

from hagmeta.common.errors import UserError
from hagmeta.common.settings import BY_METHOD, Settings, setting
from hagmeta.datasets.base import Dataset

BASIS = 128  # singular vectors, where there are as many features
LEAST = 1e-6  # a unit row that the basis sees less of than this has none of its words


@dataclass(frozen=True, kw_only=True)
class InputSettings(Settings):
    """What the first layer is given."""

    inputs: str = setting(
        BY_METHOD,
        "features as given (raw) or, for word counts, tf-idf or its SVD, fitted on the initial nodes",
        choices=("raw", "tf-idf", "svd"),
        birth="raw",
    )


class Inputs(NamedTuple):
    """With features X (nodes, features), a seed's inputs are ``diag(rows) @ X @ words``."""

    words: np.ndarray  # (features, width); (features,) where it is diagonal
    rows: np.ndarray  # (nodes,)


def width_of(inputs: str, num_features: int) -> int:
    """How many inputs the first layer has: the same for every seed."""
    return min(BASIS, num_features) if inputs == "svd" else num_features


def narrow_kind(has_counts: bool) -> str:
    """The inputs of few columns, for methods that need such; what are not counts can only be raw."""
    return "svd" if has_counts else "raw"


def check_inputs(inputs: str, dataset: Dataset) -> None:
    """Refuse inputs that a dataset's features do not allow."""
    if inputs != "raw" and not dataset.has_counts:
        raise UserError(
            f"inputs is {inputs!r}; the features of {dataset.name} are not counts (a sparse matrix without "
            f"negative numbers), so that it must be 'raw' there."
        )


def make_inputs(inputs: str, features: scipy.sparse.csr_matrix, visible: np.ndarray) -> Inputs:
    """By the visible nodes (nodes,) alone; on the host, so that they are the same for any device and pack."""
    features = features.astype(np.float64)
    words = _inverse_frequencies(features[visible])
    weighed = features @ scipy.sparse.diags(words)
    rows = _reciprocals(np.sqrt(weighed.power(2).sum(1).A1))
    if inputs == "svd":
        unit = scipy.sparse.diags(rows) @ weighed
        basis = _singular_vectors(unit[visible], width_of(inputs, features.shape[1]))
        rows = rows * _reciprocals(np.linalg.norm(unit @ basis, axis=1), LEAST)
        words = words[:, None] * basis
    return Inputs(words.astype(np.float32), rows.astype(np.float32))


def _inverse_frequencies(seen: scipy.sparse.csr_matrix) -> np.ndarray:
    """log((1 + nodes) / (1 + nodes that have the word)) + 1."""
    frequency = np.bincount(seen.indices, minlength=seen.shape[1])
    weights: np.ndarray = np.log((1 + seen.shape[0]) / (1 + frequency)) + 1
    return weights


def _singular_vectors(rows: scipy.sparse.csr_matrix, width: int) -> np.ndarray:
    """The first right singular vectors (columns, width); where there are fewer, zeros stand for the rest.

    The largest entry of each is positive. On one thread: such small products are many times faster so, and
    the result does not depend on how many there are.
    """
    basis = np.zeros((rows.shape[1], width))
    words = np.flatnonzero(np.bincount(rows.indices, minlength=rows.shape[1]))
    rows = rows[:, words]
    if not len(words):
        return basis
    with threadpool_limits(1, user_api="blas"):
        if width < min(rows.shape):
            start = np.random.default_rng(0).standard_normal(min(rows.shape))
            _, values, vectors = svds(rows, width, v0=start, return_singular_vectors="vh", rng=0)
        else:
            _, values, vectors = np.linalg.svd(rows.toarray(), full_matrices=False)
    order = np.argsort(-values, kind="stable")[:width]
    vectors = vectors[order[values[order] > LEAST * values.max()]]
    largest = np.take_along_axis(vectors, np.abs(vectors).argmax(1)[:, None], axis=1)
    basis[words, : len(vectors)] = (vectors * np.sign(largest)).T
    return basis


def _reciprocals(lengths: np.ndarray, least: float = 0.0) -> np.ndarray:
    """1 / length; 0 where there is none to speak of."""
    there = lengths > least
    return np.where(there, 1 / np.where(there, lengths, 1), 0)
