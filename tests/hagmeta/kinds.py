"""One method of each kind, for tests of parts that treat all methods of a kind alike."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import pytest

from hagmeta.methods import METHODS

# How they learn in training and in sessions. test_contract.py has all methods under the default protocol.
KINDS = ("hag-meta", "er-gnn", "sgc-lda")


def one_of_each_kind(methods: Iterable[str] = METHODS, *, kinds: Collection[str] = KINDS) -> list[Any]:
    """Return `methods` as parameters of a test; all but those of `kinds` are slow."""
    return [pytest.param(name, marks=() if name in kinds else pytest.mark.slow) for name in methods]


def each_once(methods: Sequence[str], values: Sequence[str], *, fully: Collection[str]) -> list[Any]:
    """Return all pairs of `methods` and `values` as parameters of a test.

    Each method comes with the first value, and those of `fully` with each value. Other pairs are slow.
    """
    return [
        pytest.param(method, value, marks=() if value == values[0] or method in fully else pytest.mark.slow)
        for method in methods
        for value in values
    ]


def kinds_with(
    values: Iterable[str],
    *,
    fully: Collection[str] = ("hag-meta",),
    methods: Iterable[str] = METHODS,
    kinds: Collection[str] = KINDS,
) -> list[Any]:
    """Return all pairs as parameters of a test.

    Methods of `kinds` come with the first value, and those of `fully` with each value. Other pairs are slow.
    """
    first, *others = values
    quick = {(method, first) for method in kinds} | {(method, value) for method in fully for value in others}
    return [
        pytest.param(method, value, marks=() if (method, value) in quick else pytest.mark.slow)
        for method in methods
        for value in (first, *others)
    ]
