from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse

from hagmeta.common.errors import UserError
from hagmeta.datasets.base import UNLABELLED, make_dataset

EDGES = [[0, 1], [1, 2]]
LABELS = [0, 1, 0]
FEATURES = np.eye(3)


def test_make_dataset_tidies_edges() -> None:
    # Both directions, a repeat and a self-loop are one edge and nothing.
    dataset = make_dataset("g", [[2, 0], [0, 2], [1, 1], [0, 2], [0, 1]], LABELS, FEATURES, source="g")
    assert dataset.edges.tolist() == [[0, 1], [0, 2]]
    assert dataset.edges.dtype == np.int64


def test_make_dataset_makes_labels_consecutive() -> None:
    # The source's numbers live on as names, in their own order.
    dataset = make_dataset("g", EDGES, [40.0, 7.0, 40.0], FEATURES, source="g")
    assert dataset.labels.tolist() == [1, 0, 1]
    assert dataset.class_names == ("7", "40")


def test_make_dataset_drops_names_of_absent_classes() -> None:
    dataset = make_dataset("g", EDGES, [2, 0, 2], FEATURES, ["a", "b", "c"], source="g")
    assert dataset.labels.tolist() == [1, 0, 1]
    assert dataset.class_names == ("a", "c")


def test_make_dataset_keeps_nodes_without_a_label() -> None:
    dataset = make_dataset("g", EDGES, [7, -1, 5], FEATURES, source="g")
    assert dataset.labels.tolist() == [1, UNLABELLED, 0] and dataset.labels.dtype == np.int64
    assert dataset.class_names == ("5", "7") and dataset.class_sizes.tolist() == [1, 1]
    assert dataset.edges.tolist() == EDGES


def test_make_dataset_merges_sparse_entries_without_touching_the_callers() -> None:
    given = scipy.sparse.csr_matrix(([1.0, 2.0, 0.0], [1, 1, 0], [0, 2, 3, 3]), shape=(3, 2))
    dataset = make_dataset("g", EDGES, LABELS, given, source="g")
    assert dataset.features.dtype == np.float32
    assert dataset.features.nnz == 1 and dataset.features[0, 1] == 3
    assert given.nnz == 3


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"labels": []}, "'labels' is empty"),
        ({"labels": [0, -2, 0]}, "'labels' holds -2 in row 1; expected whole numbers from 0, or -1 for no"),
        ({"labels": [-1, -1, -1]}, "'labels' holds no labels; expected at least one class"),
        ({"labels": [0, 0.5, 0]}, "'labels' holds 0.5 in row 1"),
        ({"labels": ["a", 1, "a"]}, "'labels' holds the number 1 in row 1, and strings such as 'a'"),
        (
            {"labels": np.zeros((3, 2), dtype=int)},
            "'labels' has shape (3, 2); expected 1 dimension (for one-hot labels, use argmax(axis=1); of "
            "several label columns, pass one)",
        ),
        (
            {"labels": [0, 5, 0], "class_names": ["a", "b"]},
            "'labels' holds 5 in row 1; expected 0 to 1, since there are 2 class names",
        ),
        (
            {"edges": [[0, 1], [3, 1]]},
            "'edges' holds node 3 in row 1, column 0; expected 0 to 2, since there are 3 nodes",
        ),
        ({"edges": [[0, -1]]}, "'edges' holds -1 in row 0"),
        ({"edges": [[0, 1, 2]]}, "'edges' has shape (1, 3); expected (edges, 2)"),
        ({"edges": [0, 1]}, "'edges' has shape (2,)"),
        ({"edges": np.empty((0, 2), dtype=int)}, "'edges' has no edge between"),
        ({"edges": [[1, 1]]}, "'edges' has no edge between"),
        ({"features": np.eye(4)}, "'features' has shape (4, 4); expected (3, features)"),
        ({"features": np.empty((3, 0))}, "'features' has shape (3, 0)"),
        ({"features": np.ones(3)}, "'features' has shape (3,)"),
        ({"features": np.full((3, 1), "x")}, "'features' has type <U1"),
        ({"features": np.array([[1.0], [np.nan], [1.0]])}, "'features' holds nan in row 1"),
        ({"features": np.array([[1.0], [1.0], [-np.inf]])}, "'features' holds -inf in row 2"),
        ({"features": scipy.sparse.csr_matrix([[0.0], [1.0], [np.inf]])}, "'features' holds inf in row 2"),
        # Finite as the source's 64 bits, but not as our 32.
        ({"features": np.array([[1.0], [1e300], [1.0]])}, "'features' holds inf in row 1"),
        (
            {"features": np.array([[1.0], [1e30], [1.0]])},
            "row 1, column 0; expected finite numbers from",
        ),
        (
            {"features": scipy.sparse.csr_matrix([[0.0], [1.0], [-1e30]])},
            "row 2, column 0; expected finite",
        ),
        (
            {"features": scipy.sparse.csr_matrix((3, 10**9))},
            "1,000,000,000 features; expected at most",
        ),
        ({"class_names": ["a", "b\ud800"]}, "'class_names' holds 'b\\ud800'; expected Unicode text"),
    ],
)
def test_make_dataset_says_what_is_wrong(changes: dict[str, Any], says: str) -> None:
    given: dict[str, Any] = {"edges": EDGES, "labels": LABELS, "features": FEATURES, **changes}
    with pytest.raises(UserError) as error, np.errstate(over="ignore"):
        make_dataset("g", **given, source="some/file")
    assert str(error.value).startswith("some/file: ")
    assert says in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("value", [1e15, -1e15])
def test_make_dataset_takes_the_largest_values(value: float) -> None:
    assert make_dataset("g", EDGES, LABELS, np.full((3, 1), value), source="g").num_features == 1
