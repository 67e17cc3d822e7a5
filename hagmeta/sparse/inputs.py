"""Inputs of the first layer: raw features, or weighted and reduced ones.

- tf-idf: every word times its inverse document frequency, rows normalised to unit length;
- svd: these rows in the basis of their first right singular vectors, normalised again. Features that are not
  counts are normalised by row, without weights.

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
from hagmeta.common.settings.domains import Choice
from hagmeta.common.settings.setting import BY_METHOD, Settings, setting
from hagmeta.datasets.base import Dataset
from hagmeta.datasets.features import Features, Kind

BASIS = 128  # number of singular vectors, if there are as many features
LEAST = 1e-6  # a unit row with a smaller projection onto the basis has none of its words
MORE, ROUNDS = 16, 4  # extra columns, and iterations, of a randomised SVD
BLOCK = 10**7  # dense values that are copied at a time


@dataclass(frozen=True, kw_only=True)
class GraphSettings(Settings):
    """The inputs of the first layer, and the normalisation of propagation."""

    inputs: str = setting(
        BY_METHOD,
        "features as given (raw), their SVD (svd) or, for word counts, tf-idf, fitted on the initial nodes",
        Choice(("raw", "tf-idf", "svd")),
        scope="method",
    )
    faithful: bool = setting(
        True, "under released: reproduce the authors' code where it differs from the paper", scope="method"
    )

    @property
    def normalisation(self) -> str:
        """The degrees that normalise propagation: those of the visible graph, or of the whole graph."""
        return "whole" if self.faithful else "visible"


class Inputs(NamedTuple):
    """The inputs of a seed are ``diag(rows) @ X @ words`` for features X (nodes, features)."""

    words: np.ndarray  # (features, width), or (features,) if it is diagonal
    rows: np.ndarray  # (nodes,)


def width_of(inputs: str, num_features: int) -> int:
    """Return the number of inputs of the first layer. It is the same for every seed."""
    return min(BASIS, num_features) if inputs == "svd" else num_features


def narrow_inputs(kind: Kind, num_features: int) -> tuple[str, int]:
    """Return the inputs with few columns of a kind of features, and the number of columns.

    Features that are not counts stay raw if they have few columns, or if the user asked for that.
    """
    raw = kind == "unchanged" or (kind == "values" and num_features <= BASIS)
    inputs = "raw" if raw else "svd"
    return inputs, width_of(inputs, num_features)


def check_inputs(inputs: str, dataset: Dataset) -> None:
    """Raise an error if the features of ``dataset`` do not allow ``inputs``."""
    if inputs == "tf-idf" and dataset.kind != "counts":
        raise UserError(
            f"inputs is 'tf-idf', but the features of {dataset.name} are not counts: "
            f"{dataset.features_described}; expected 'raw' or 'svd'."
        )


class Fit(NamedTuple):
    """What inputs learn from the nodes that they are fitted on, in double precision."""

    words: np.ndarray  # (features,) inverse document frequencies, or ones
    basis: np.ndarray | None  # (features, width) singular vectors, for svd


def make_inputs(inputs: str, features: Features, visible: np.ndarray, kind: Kind = "counts") -> Inputs:
    """Fit inputs on the ``visible`` nodes. This runs on the host, so any device and pack gets the same."""
    return apply_inputs(fit_inputs(inputs, features, visible, kind), features)


def fit_inputs(inputs: str, features: Features, visible: np.ndarray, kind: Kind = "counts") -> Fit:
    """Fit tf-idf or svd on the ``visible`` nodes. Only ``counts`` are weighted."""
    width = width_of(inputs, features.shape[1])
    if kind != "counts":
        words = np.ones(features.shape[1])
        return Fit(words, _leading_vectors(features, visible, width) if inputs == "svd" else None)
    features = features.astype(np.float64)
    words = _inverse_frequencies(features[visible])
    if inputs != "svd":
        return Fit(words, None)
    return Fit(words, _singular_vectors(_unit_rows(features, words)[0][visible], width))


def apply_inputs(fit: Fit, features: Features) -> Inputs:
    """Return the inputs of all nodes of ``features``, which may be those of another graph."""
    words, rows = fit.words, np.zeros(features.shape[0])
    for block in _blocks(np.arange(len(rows)), features):
        unit, rows[block] = _unit_rows(features[block].astype(np.float64), words)
        if fit.basis is not None:
            rows[block] *= _reciprocals(np.linalg.norm(unit @ fit.basis, axis=1), LEAST)
    if fit.basis is not None:
        words = words[:, None] * fit.basis
    return Inputs(words.astype(np.float32), rows.astype(np.float32))


def _blocks(rows: np.ndarray, features: Features) -> list[np.ndarray]:
    """Divide rows into blocks. Sparse features need only one: their copies are small."""
    if not isinstance(features, np.ndarray):
        return [rows]
    return np.array_split(rows, max(1, len(rows) * features.shape[1] // BLOCK))


def _unit_rows(features: Features, words: np.ndarray) -> tuple[Features, np.ndarray]:
    """Return the weighted rows of ``features``, scaled to unit length, and their scales (nodes,)."""
    if isinstance(features, np.ndarray):
        weighed = features * words
        rows = _reciprocals(np.linalg.norm(weighed, axis=1)).astype(weighed.dtype)
        return rows[:, None] * weighed, rows
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

    The computation uses one thread: small products are much faster this way, and the result does not depend
    on the number of threads.
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
    vectors = _largest_first(values, vectors, width)
    basis[words, : len(vectors)] = vectors.T
    return basis


def _leading_vectors(features: Features, visible: np.ndarray, width: int) -> np.ndarray:
    """Return the same for unit rows of any features, by randomised subspace iteration in blocks of rows."""
    blocks, columns = _blocks(np.flatnonzero(visible), features), features.shape[1]
    ones, basis = np.ones(columns, dtype=np.float32), np.zeros((columns, width))

    def squared(right: np.ndarray) -> np.ndarray:
        """Multiply by the squared matrix: (columns, k) to (columns, k)."""
        total = np.zeros_like(right)
        for block in blocks:
            unit = _unit_rows(features[block], ones)[0]
            total += unit.T @ (unit @ right)
        return total

    with threadpool_limits(1, user_api="blas"):
        start = np.random.default_rng(0).standard_normal((columns, min(width + MORE, columns)))
        right = start.astype(np.float32)
        for _ in range(ROUNDS):
            right = np.linalg.qr(squared(right).astype(np.float64))[0].astype(np.float32)
        values, vectors = np.linalg.eigh((right.T @ squared(right)).astype(np.float64))
    vectors = _largest_first(np.sqrt(values.clip(min=0)), (right @ vectors).T, width)
    basis[:, : len(vectors)] = vectors.T
    return basis


def _largest_first(values: np.ndarray, vectors: np.ndarray, width: int) -> np.ndarray:
    """Return the vectors (width or fewer, columns) of the largest singular values.

    Values near 0 are left out. The largest entry of each vector is positive.
    """
    order = np.argsort(-values, kind="stable")[:width]
    vectors = vectors[order[values[order] > LEAST * values.max()]]
    largest = np.take_along_axis(vectors, np.abs(vectors).argmax(1)[:, None], axis=1)
    signed: np.ndarray = vectors * np.sign(largest)
    return signed


def _reciprocals(lengths: np.ndarray, least: float = 0.0) -> np.ndarray:
    """Return 1 / length; 0 where the length is at most ``least``."""
    there = lengths > least
    return np.where(there, 1 / np.where(there, lengths, 1), 0)
