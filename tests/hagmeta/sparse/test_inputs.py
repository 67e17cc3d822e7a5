"""Inputs are scikit-learn's TF-IDF and its truncated SVD, applied through the parameters of a layer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse
import torch
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.preprocessing import normalize

from hagmeta.common.errors import UserError
from hagmeta.datasets.base import Dataset
from hagmeta.sparse import inputs as inputs_module
from hagmeta.sparse.graph import Graph
from hagmeta.sparse.inputs import BASIS, Inputs, check_inputs, fit_inputs, make_inputs, width_of
from hagmeta.sparse.plain import PlainGraph

CPU = torch.device("cpu")
RNG = np.random.default_rng(0)
SEEN = np.arange(400) % 3 > 0


def counts(nodes: int = 400, words: int = 200) -> scipy.sparse.csr_matrix:
    """Rare words and common ones; the last is met by later nodes alone, and node 1 has none."""
    frequency = np.linspace(0.01, 0.2, words)
    entries = RNG.poisson(frequency, size=(nodes, words)).astype(np.float32)
    entries[: len(SEEN)][SEEN, -1] = 0
    entries[0, -1], entries[1] = 2, 0
    return scipy.sparse.csr_matrix(entries)


COUNTS = counts()


def dense(inputs: Inputs, features: scipy.sparse.csr_matrix) -> np.ndarray:
    words = np.diag(inputs.words) if inputs.words.ndim == 1 else inputs.words
    applied: np.ndarray = inputs.rows[:, None] * (features @ words)
    return applied


def test_tf_idf_is_scikit_learn_s_fitted_to_the_visible_nodes() -> None:
    expected = TfidfTransformer().fit(COUNTS[SEEN]).transform(COUNTS).toarray()
    np.testing.assert_allclose(dense(make_inputs("tf-idf", COUNTS, SEEN), COUNTS), expected, atol=1e-6)


def test_svd_is_the_best_basis_of_the_visible_rows_at_unit_length() -> None:
    tfidf = TfidfTransformer().fit(COUNTS[SEEN]).transform(COUNTS).toarray()
    basis = np.linalg.svd(tfidf[SEEN], full_matrices=False)[2][:BASIS].T
    given = dense(make_inputs("svd", COUNTS, SEEN), COUNTS)
    assert given.shape == (400, BASIS)
    expected = normalize(tfidf @ basis)
    # Signs are a convention; cosines between rows are not.
    np.testing.assert_allclose(given @ given.T, expected @ expected.T, atol=1e-5)
    np.testing.assert_allclose(np.abs(given), np.abs(expected), atol=1e-3)
    assert np.linalg.norm(given, axis=1)[2:] == pytest.approx(1, abs=1e-5) and not given[1].any()


def few_kinds() -> scipy.sparse.csr_matrix:
    return COUNTS[np.arange(400) % 5]


def one_word_each() -> scipy.sparse.csr_matrix:
    return scipy.sparse.csr_matrix(np.eye(200, dtype=np.float32)[RNG.integers(200, size=400)])


@pytest.mark.parametrize(
    "make", [few_kinds, one_word_each, lambda: COUNTS[:, :7], lambda: scipy.sparse.csr_matrix((400, 200))]
)
def test_the_width_is_the_dataset_s_though_the_rank_be_lower(
    make: Callable[[], scipy.sparse.csr_matrix],
) -> None:
    features = make()
    inputs, again = (make_inputs("svd", features, SEEN) for _ in range(2))
    assert inputs.words.shape == (features.shape[1], width_of("svd", features.shape[1]))
    assert all(np.array_equal(*pair) for pair in zip(inputs, again, strict=True))
    lengths = np.linalg.norm(dense(inputs, features), axis=1)
    assert np.all((np.abs(lengths - 1) < 1e-5) | (lengths == 0))


def test_a_node_of_unknown_words_alone_has_no_direction_in_the_basis() -> None:
    alone = COUNTS.tolil()
    alone[0] = 0
    alone[0, -1] = 3
    inputs = make_inputs("svd", alone.tocsr(), SEEN)
    assert inputs.rows[0] == 0 and not inputs.words[-1].any()


@pytest.mark.parametrize("kind", ["tf-idf", "svd"])
@pytest.mark.parametrize("graph", [Graph, PlainGraph])
def test_a_layer_maps_the_inputs(graph: type[Graph], kind: str) -> None:
    edges, labels = np.array([[0, 1], [1, 2]]), np.zeros(400, dtype=np.int64)
    made = graph(Dataset("counts", edges, labels, COUNTS, ("a",)), CPU)
    inputs = made.inputs(kind, SEEN)
    view = made.view(SEEN[None])
    one = view._replace(inputs=tuple(torch.from_numpy(part) for part in inputs))
    weight = torch.randn(width_of(kind, 200), 5, requires_grad=True)
    mapped = made.mapped(weight, one)
    table = torch.from_numpy(dense(inputs, COUNTS).astype(np.float32))
    torch.testing.assert_close(mapped, table @ weight, rtol=1e-4, atol=1e-5)
    (gradient,) = torch.autograd.grad(mapped.square().sum(), weight)
    torch.testing.assert_close(gradient, 2 * table.T @ (table @ weight), rtol=1e-3, atol=1e-4)


def test_only_counts_have_tf_idf() -> None:
    edges, labels = np.array([[0, 1]]), np.zeros(400, dtype=np.int64)
    words = Dataset("words", edges, labels, COUNTS, ("a",))
    table, negative = (
        replace(words, name="other", features=f, kind=None) for f in (COUNTS.toarray() + 0.5, -COUNTS)
    )
    assert (words.kind, table.kind, negative.kind) == ("counts", "values", "values")
    check_inputs("tf-idf", words)
    for other in (table, negative):
        check_inputs("raw", other)
        check_inputs("svd", other)
        with pytest.raises(UserError, match=r"inputs is 'tf-idf'.*of other.*expected 'raw' or 'svd'"):
            check_inputs("tf-idf", other)


REALS = RNG.normal(size=(400, 200)).astype(np.float32) @ np.diag(np.linspace(3, 0.1, 200)).astype(np.float32)


@pytest.mark.parametrize("sparse", [False, True])
def test_svd_of_values_is_the_best_basis_of_their_unit_rows(
    sparse: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inputs_module, "BLOCK", 7000)  # several blocks of rows
    features = np.where(np.arange(400)[:, None] % 7 == np.arange(200) % 7, REALS, 0) if sparse else REALS
    unit = normalize(features.astype(np.float64))
    values, basis = np.linalg.svd(unit[SEEN], full_matrices=False)[1:]
    given_as = scipy.sparse.csr_matrix(features) if sparse else features
    fitted = make_inputs("svd", given_as, SEEN, "values")
    given = dense(fitted, given_as)
    # The part of the visible rows that the basis keeps, against the best possible.
    kept = np.linalg.norm(unit[SEEN] @ np.linalg.qr(fitted.words)[0]) ** 2
    assert kept == pytest.approx((values[:BASIS] ** 2).sum(), rel=0.002)
    assert np.linalg.norm(given, axis=1) == pytest.approx(1, abs=1e-4) and len(basis) == 200


def test_svd_of_values_ignores_rows_that_are_not_visible() -> None:
    other = REALS.copy()
    other[~SEEN] = 7
    for left, right in zip(
        fit_inputs("svd", REALS, SEEN, "values"), fit_inputs("svd", other, SEEN, "values"), strict=True
    ):
        assert left is not None and right is not None and np.array_equal(left, right)
