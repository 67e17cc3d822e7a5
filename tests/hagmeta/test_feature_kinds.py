"""Every method runs on features of every kind, and learns nothing from those that it may not see."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse

from hagmeta import datasets, testing
from hagmeta.datasets.base import Dataset
from hagmeta.testing import GRAPH, TASK, check_no_leak, check_packs, check_plain

SOME = ("sgc-lda", "posterior-means", "hag-meta", "er-gnn", "frozen")
QUICK = [("sgc-lda", "sparse reals"), ("er-gnn", "100 dense columns")]
KINDS = ("counts", "sparse reals", "100 dense columns", "768 dense columns", "3000 dense columns")


@cache
def with_features(kind: str) -> Dataset:
    """Return the small random graph with other features, which tell as much about the classes."""
    graph = datasets.load(GRAPH, Path())
    rng = np.random.default_rng(0)
    if kind == "counts":
        return graph
    if kind == "sparse reals":
        words = scipy.sparse.hstack(
            [graph.features] * 5 + [scipy.sparse.csr_matrix((401, 100))], format="csr"
        )
        words.data = rng.normal(1, 0.5, words.nnz).astype(np.float32)
        words.data[rng.random(words.nnz) < 0.5] = 0
        words.eliminate_zeros()
        return replace(graph, name="mine", features=words, kind=None)
    columns = int(kind.split()[0])
    mapped = graph.features @ rng.normal(size=(60, columns)) / np.sqrt(columns)
    return replace(graph, name="mine", features=mapped.astype(np.float32), kind=None)


def check_on(check: Callable[..., None], method: str, kind: str) -> None:
    dataset = with_features(kind)
    assert (dataset.kind, scipy.sparse.issparse(dataset.features)) == (
        "counts" if kind == "counts" else "values",
        "dense" not in kind,
    )
    check(method, dataset=dataset, **TASK)


@pytest.mark.parametrize(
    ("method", "kind"),
    [
        pytest.param(*each, marks=() if each in QUICK else pytest.mark.slow)
        for each in product(SOME, KINDS[1:])
    ],
)
def test_method_learns_nothing_hidden_from_features_of_any_kind(method: str, kind: str) -> None:
    check_on(check_no_leak, method, kind)


@pytest.mark.slow
@pytest.mark.parametrize("check", [check_packs, check_plain], ids=["packs", "plain"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", SOME)
def test_method_runs_on_features_of_any_kind(
    method: str, kind: str, check: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Random real features leave many nodes close to a tie. Plain mode rounds differently, so some change.
    monkeypatch.setattr(testing, "ACCURACY", 0.005 if kind == "counts" else 0.15)
    check_on(check, method, kind)
