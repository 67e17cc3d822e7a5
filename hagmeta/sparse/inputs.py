"""Inputs of the first layer: raw features, or weighted word counts.

- tf-idf: every word times its inverse document frequency, rows normalised to unit length;
- svd: these rows in the basis of their first right singular vectors, normalised again.

Both are linear in the features, up to a factor per row. So all seeds share the sparse features, and each seed
applies its weights to the parameters of its first layer. No array with a row per node and seed is needed.
Frequencies and basis are fitted on the nodes that a seed sees at the start. Later nodes use the same fit.
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

BASIS = 128  # number of singular vectors, if there are as many features
LEAST = 1e-6  # a unit row with a smaller projection onto the basis has none of its words


@dataclass(frozen=True, kw_only=True)
class InputSettings(Settings):
    """The inputs of the first layer."""

    inputs: str = setting(
        BY_METHOD,
        "features as given (raw) or, for word counts, tf-idf or its SVD, fitted on the initial nodes",
        scope="method",
        choices=("raw", "tf-idf", "svd"),
        birth="raw",
    )


class Inputs(NamedTuple):
    """The inputs of a seed are ``diag(rows) @ X @ words`` for features X (nodes, features)."""

    words: np.ndarray  # (features, width), or (features,) if it is diagonal
    rows: np.ndarray  # (nodes,)


def width_of(inputs: str, num_features: int) -> int:
    """Return the number of inputs of the first layer. It is the same for every seed."""
    return min(BASIS, num_features) if inputs == "svd" else num_features


def narrow_kind(has_counts: bool) -> str:
    """Return the kind of inputs with few columns. Features that are not counts stay raw."""
    return "svd" if has_counts else "raw"


def check_inputs(inputs: str, dataset: Dataset) -> None:
    """Raise an error if the features of ``dataset`` do not allow ``inputs``."""
    if inputs != "raw" and not dataset.has_counts:
        raise UserError(
            f"inputs is {inputs!r}, but the features of {dataset.name} are not counts (a sparse matrix "
            f"without negative numbers); expected 'raw'."
        )


class Fit(NamedTuple):
    """What inputs learn from the nodes that they are fitted on, in double precision."""

    words: np.ndarray  # (features,) inverse document frequencies
    basis: np.ndarray | None  # (features, width) singular vectors, for svd


def make_inputs(inputs: str, features: scipy.sparse.csr_matrix, visible: np.ndarray) -> Inputs:
    """Fit inputs on the ``visible`` nodes. This runs on the host, so any device and pack gets the same."""
    return apply_inputs(fit_inputs(inputs, features, visible), features)


def fit_inputs(inputs: str, features: scipy.sparse.csr_matrix, visible: np.ndarray) -> Fit:
    """Fit tf-idf or svd on the ``visible`` nodes."""
    features = features.astype(np.float64)
    words = _inverse_frequencies(features[visible])
    if inputs != "svd":
        return Fit(words, None)
    unit = _unit_rows(features, words)[0]
    return Fit(words, _singular_vectors(unit[visible], width_of(inputs, features.shape[1])))


def apply_inputs(fit: Fit, features: scipy.sparse.csr_matrix) -> Inputs:
    """Return the inputs of all nodes of ``features``, which may be those of another graph."""
    words = fit.words
    unit, rows = _unit_rows(features.astype(np.float64), words)
    if fit.basis is not None:
        rows = rows * _reciprocals(np.linalg.norm(unit @ fit.basis, axis=1), LEAST)
        words = words[:, None] * fit.basis
    return Inputs(words.astype(np.float32), rows.astype(np.float32))


def _unit_rows(
    features: scipy.sparse.csr_matrix, words: np.ndarray
) -> tuple[scipy.sparse.csr_matrix, np.ndarray]:
    """Return the weighted rows of ``features``, scaled to unit length, and their scales (nodes,)."""
    weighed = features @ scipy.sparse.diags(words)
    rows = _reciprocals(np.sqrt(weighed.power(2).sum(1).A1))
    return scipy.sparse.diags(rows) @ weighed, rows


def _inverse_frequencies(seen: scipy.sparse.csr_matrix) -> np.ndarray:
    """Return log((1 + nodes) / (1 + nodes that have the word)) + 1."""
    frequency = np.bincount(seen.indices, minlength=seen.shape[1])
    weights: np.ndarray = np.log((1 + seen.shape[0]) / (1 + frequency)) + 1
    return weights


def _singular_vectors(rows: scipy.sparse.csr_matrix, width: int) -> np.ndarray:
    """Return the first right singular vectors (columns, width), padded with zeros if there are fewer.

    The largest entry of each vector is positive. The computation uses one thread: small products are much
    faster this way, and the result does not depend on the number of threads.
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
    """Return 1 / length; 0 where the length is at most ``least``."""
    there = lengths > least
    return np.where(there, 1 / np.where(there, lengths, 1), 0)
