"""Features of any type give the same dataset, and what they are is found out from their values."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch
from sklearn.feature_extraction.text import TfidfTransformer
from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.transforms import NormalizeFeatures

from hagmeta.common.errors import UserError
from hagmeta.datasets import UNLABELLED, Dataset
from hagmeta.datasets.features import clean_features, is_normalised

RNG = np.random.default_rng(0)
WORDS = (RNG.random((30, 40)) < 0.15).astype(np.float32)
WORDS[0] = 0  # a node without words
EDGES = np.stack([np.arange(29), np.arange(1, 30)])
BOTH_WAYS = torch.from_numpy(np.concatenate([EDGES, EDGES[::-1]], axis=1))


def pyg(x: Any = None, **changes: Any) -> Data:
    given = {"x": torch.from_numpy(WORDS) if x is None else x, "edge_index": BOTH_WAYS}
    return Data(**(given | {"y": torch.arange(30) % 5} | changes))


def from_pyg(x: Any = None, **changes: Any) -> Dataset:
    return Dataset.from_pyg(pyg(x, **changes), name="mine")


def from_arrays(features: Any) -> Dataset:
    return Dataset.from_arrays(EDGES.T, np.arange(30) % 5, features, name="mine")


FORMS: dict[str, Any] = {
    "dense float": lambda: from_pyg(torch.from_numpy(WORDS)),
    "double": lambda: from_pyg(torch.from_numpy(WORDS).double()),
    "whole numbers": lambda: from_pyg(torch.from_numpy(WORDS).int()),
    "bool": lambda: from_pyg(torch.from_numpy(WORDS).bool()),
    "half": lambda: from_pyg(torch.from_numpy(WORDS).half()),
    "bfloat16": lambda: from_pyg(torch.from_numpy(WORDS).bfloat16()),
    "sparse COO": lambda: from_pyg(torch.from_numpy(WORDS).half().to_sparse()),
    "sparse CSR": lambda: from_pyg(torch.from_numpy(WORDS).to_sparse_csr()),
    "SciPy": lambda: from_arrays(scipy.sparse.coo_array(WORDS.astype(bool))),
    "NumPy": lambda: from_arrays(WORDS.astype(np.uint8)),
    "list": lambda: from_arrays(WORDS.tolist()),
    "pandas": lambda: from_arrays(pd.DataFrame(WORDS, dtype="Int8")),
}


@pytest.mark.parametrize("form", FORMS)
def test_dataset_is_the_same_for_features_of_any_type(form: str) -> None:
    dataset = FORMS[form]()
    assert dataset.fingerprint == from_arrays(scipy.sparse.csr_matrix(WORDS)).fingerprint
    assert dataset.kind == "counts" and scipy.sparse.issparse(dataset.features)
    assert dataset.features_described == "40 binary columns (13.7 % non-zero)"


@pytest.mark.skipif(not importlib.util.find_spec("torch_sparse"), reason="torch-sparse is not installed")
def test_dataset_is_the_same_for_a_sparse_tensor() -> None:
    from torch_sparse import SparseTensor  # type: ignore[import-not-found]

    x = SparseTensor.from_dense(torch.from_numpy(WORDS))
    assert from_pyg(x).fingerprint == FORMS["SciPy"]().fingerprint


def test_words_normalised_by_row_are_still_words() -> None:
    # PyG's NormalizeFeatures divides by the sum of a row. The values stay, so this is another dataset.
    normalised = Dataset.from_pyg(NormalizeFeatures()(pyg()), name="mine")
    assert normalised.kind == "counts" and normalised.fingerprint != FORMS["SciPy"]().fingerprint
    assert normalised.features_described == "40 count columns (13.7 % non-zero, normalised by row)"
    by_length = WORDS / np.maximum(np.linalg.norm(WORDS, axis=1, keepdims=True), 1)
    assert from_arrays(by_length).kind == "counts"


def test_other_numbers_are_not_counts() -> None:
    tf_idf = TfidfTransformer().fit_transform(scipy.sparse.csr_matrix(WORDS))
    real = RNG.normal(size=(30, 40))
    for features, described in (
        (tf_idf, "40 real columns (13.7 % non-zero)"),
        (np.where(WORDS, real, 0), "40 real columns (13.7 % non-zero)"),
        (-WORDS, "40 real columns (13.7 % non-zero)"),
        (real, "40 real columns"),
        (np.exp(real) / np.exp(real).sum(1, keepdims=True), "40 real columns"),
        (5000 * WORDS, "40 real columns (13.7 % non-zero)"),  # far too many times in one text
        (np.where(WORDS, RNG.integers(2, 9, (30, 40)), 0), "40 count columns (13.7 % non-zero)"),
    ):
        dataset = from_arrays(features)
        assert dataset.features_described == described
        assert dataset.kind == ("counts" if "count" in described else "values")


def test_storage_follows_the_share_of_values_that_are_not_zero() -> None:
    values = RNG.normal(size=(10, 10))
    for share, sparse in ((0.25, True), (0.3, False)):
        kept = np.arange(100).reshape(10, 10) < 100 * share
        for given in (np.where(kept, values, 0), scipy.sparse.csr_matrix(np.where(kept, values, 0))):
            features, kind = clean_features(given, 10, source="g", key="x")
            assert scipy.sparse.issparse(features) == sparse and kind == "values"


def test_columns_stay_unchanged_if_the_user_says_that_they_are_no_counts() -> None:
    made = Dataset.from_pyg(pyg(torch.eye(30)), name="mine", counts=False)
    assert isinstance(made.features, np.ndarray) and made.kind == "unchanged"
    assert made.fingerprint != Dataset.from_pyg(pyg(torch.eye(30)), name="mine").fingerprint
    with pytest.raises(UserError, match=r"counts is True; expected None \(find out\), or False"):
        Dataset.from_pyg(pyg(), name="mine", counts=True)  # type: ignore[arg-type]


@pytest.mark.parametrize("scale", [1.0, 1.01])
def test_rows_are_normalised_only_if_all_are(scale: float) -> None:
    # One row that was scaled by anything else leaves room for doubt.
    rows = WORDS[1:] / WORDS[1:].sum(1, keepdims=True)
    rows[3] *= scale
    assert is_normalised(scipy.sparse.csr_matrix(rows)) == (scale == 1)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (
            HeteroData({"a": {"x": torch.ones(2, 1)}}),
            "data is a HeteroData with nodes of 1 types; .* to_homog",
        ),
        ([pyg(), pyg()], r"data has 2 graphs; expected one graph, such as data\[0\]"),
        (pyg(y=torch.zeros(30, 3)), r"'data.y' has shape \(30, 3\); .* of several label columns, pass one"),
        (pyg(x=torch.ones(30, 4, dtype=torch.complex64)), "'data.x' has type complex64; expected real"),
        (pyg(x=torch.ones(30, 2, 2)), r"'data.x' has shape \(30, 2, 2\); expected \(30, features\)"),
        (pyg(x=pd.DataFrame({"a": ["b"] * 30})), "'data.x' is not an array of numbers"),
    ],
)
def test_other_graphs_are_refused_in_one_line(data: Any, says: str) -> None:
    with pytest.raises(
        UserError, match=rf"^Dataset.from_pyg: {says.replace('to_homog', 'data.to_homogeneous')}"
    ):
        Dataset.from_pyg(data, name="mine")


def test_shapes_of_labels_and_edges_that_users_have_work() -> None:
    plain = from_pyg()
    assert from_pyg(y=(torch.arange(30) % 5).view(-1, 1)).fingerprint == plain.fingerprint
    y = (torch.arange(30) % 5).float()
    y[3], y[4] = torch.nan, -1
    assert from_pyg(y=y).labels.tolist()[3:5] == [UNLABELLED, UNLABELLED]
    assert from_pyg(y=torch.arange(30) % 2 == 0).class_names == ("0", "1")
    assert from_pyg(train_mask=torch.ones(30, dtype=torch.bool)).fingerprint == plain.fingerprint
    with pytest.warns(UserWarning, match="mine: data.edge_weight is not used") as seen:
        assert from_pyg(edge_weight=torch.rand(58)).fingerprint == plain.fingerprint
    assert seen[0].filename == __file__
    lonely = from_pyg(edge_index=BOTH_WAYS[:, BOTH_WAYS.max(0).values < 29])
    assert lonely.num_nodes == 30 and lonely.edges.max() == 28
    assert Dataset.from_pyg(Batch.from_data_list([pyg(), pyg()]), name="mine").num_nodes == 60
