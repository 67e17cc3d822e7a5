"""The checks of `hagmeta.testing`: honest methods pass, and each kind of fault is found."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import hagmeta.testing
from hagmeta import datasets
from hagmeta.datasets.base import Dataset
from hagmeta.methods import METHODS, Method
from hagmeta.methods.bounds import Frozen
from hagmeta.methods.closed_form.sgc import RidgeSettings, SgcRidge
from hagmeta.methods.paper.hag_meta import HagMeta
from hagmeta.testing import (
    GRAPH,
    TASK,
    check_deterministic,
    check_method,
    check_no_leak,
    check_packs,
    check_plain,
)

LABELS = np.zeros(0, dtype=np.int64)  # those of the graph that is checked, as a method might keep them


class Shifted(Frozen):
    """An honest one; those below shift its logits by what they may not know."""

    def classify(self, shared: Any, encoded: Any, task: Any) -> Tensor:
        logits = super().classify(shared, encoded, task)
        return logits + self.shift(shared, task) * torch.arange(logits.shape[-1])

    def shift(self, shared: Any, task: Any) -> Any:
        return 0.1


class ReadsQueryLabels(Shifted):
    """By a reference that it kept."""

    def shift(self, shared: Any, task: Any) -> Any:
        return torch.from_numpy(LABELS)[task.query][:, None] - 5.0


class ReadsLaterEdges(Shifted):
    """By a degree that counts neighbours which have not arrived."""

    def shift(self, shared: Any, task: Any) -> Any:
        return shared.graph.degree[task.query][:, None] - 8.0


class LearnsFromLaterEdges(HagMeta):
    """By a loss that weighs nodes by such a degree."""

    def loss(self, shared: Any, view: Any, task: Any, target: Tensor, key: Any) -> tuple[Tensor, Tensor]:
        logits = self.classify(shared, self.encode(shared, view, key), task)
        losses = F.cross_entropy(logits, target, reduction="none")
        return (losses * shared.graph.degree[task.query]).mean(), logits


class DrawsUnseeded(Shifted):
    """A start that no seed fixes."""

    def __init__(self, settings: Any, sizes: Any, seed: int) -> None:
        super().__init__(settings, sizes, seed)
        drawn = torch.from_numpy(np.random.default_rng().normal(size=1)).float()
        self.drawn = nn.Parameter(drawn, requires_grad=False)

    def shift(self, shared: Any, task: Any) -> Any:
        return self.drawn


class KnowsOtherSeeds(Shifted):
    """By what the class remembers of them."""

    seen: ClassVar[set[int]] = set()

    def __init__(self, settings: Any, sizes: Any, seed: int) -> None:
        super().__init__(settings, sizes, seed)
        self.seen.add(seed)
        self.sign = nn.Parameter(torch.tensor([9.0 if len(self.seen) > 1 else -9.0]), requires_grad=False)

    def shift(self, shared: Any, task: Any) -> Any:
        return self.sign


class RefusesPlainMode(Shifted):
    def shift(self, shared: Any, task: Any) -> Any:
        if not torch._C._functorch.is_batchedtensor(task.query):
            raise RuntimeError("this is no pack")
        return 0.0


class AnswersOtherwiseInPlainMode(Shifted):
    def shift(self, shared: Any, task: Any) -> Any:
        return 9.0 if torch._C._functorch.is_batchedtensor(task.query) else -9.0


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    """What a test registers is gone afterwards."""
    before = set(METHODS)
    yield
    for name in set(METHODS) - before:
        del METHODS[name]


@pytest.fixture
def graph(monkeypatch: pytest.MonkeyPatch) -> Dataset:
    """A graph whose labels a method holds."""
    graph = datasets.load(GRAPH, Path())
    monkeypatch.setattr(sys.modules[__name__], "LABELS", graph.labels)
    monkeypatch.setattr(KnowsOtherSeeds, "seen", set())
    return graph


def test_an_honest_method_passes() -> None:
    check_method(Shifted)


def test_labels_are_as_they_were_after_a_check(graph: Dataset) -> None:
    before = graph.labels.copy()
    check_no_leak(Shifted, dataset=graph, **TASK)
    assert np.array_equal(graph.labels, before)


@pytest.mark.parametrize(
    ("method", "words"),
    [
        (ReadsQueryLabels, r"predictions of session \d change when hidden labels are replaced"),
        (
            ReadsLaterEdges,
            r"predictions of session \d change when features and edges of nodes that arrive later",
        ),
        (
            LearnsFromLaterEdges,
            "the parameter .* changes when features and edges of nodes hidden from training",
        ),
    ],
)
def test_a_leak_is_found(graph: Dataset, method: type[Method], words: str) -> None:
    with pytest.raises(AssertionError, match=f"{method.__name__}: .*{words}"):
        check_no_leak(method, dataset=graph, **TASK)


def test_a_protocol_that_leaks_is_found() -> None:
    with pytest.raises(AssertionError, match="when hidden labels are replaced"):
        check_no_leak("hag-meta", protocol="released")


def test_unseeded_numbers_are_found() -> None:
    with pytest.raises(AssertionError, match=r"values in its record change .* when the same seed runs again"):
        check_deterministic(DrawsUnseeded)
    with pytest.raises(AssertionError, match="DrawsUnseeded"):
        check_method(DrawsUnseeded)


def test_what_depends_on_other_seeds_is_found(graph: Dataset) -> None:
    check_deterministic(KnowsOtherSeeds)
    with pytest.raises(AssertionError, match=r"record change \(.*accuracy.*\) when seed 3 runs in a pack"):
        check_packs(KnowsOtherSeeds)


class DiffersInAFloat(SgcRidge):
    """Declares a setting, but does not hold it for each member."""

    own_settings = RidgeSettings
    differs: ClassVar = ("ridge",)

    def __init__(self, settings: Any, sizes: Any, seed: int) -> None:
        super().__init__(settings, sizes, seed)
        self.factor = settings.ridge

    def answer(self, statistics: Any, query: Tensor) -> Tensor:
        return self.factor * super().answer(statistics, query)


def test_what_depends_on_the_settings_of_other_members_is_found() -> None:
    with pytest.raises(AssertionError, match=r"other values of ridge; read each as an attribute"):
        check_packs(DiffersInAFloat, features="propagated", logit_adjustment=0.5)
    check_packs("sgc-ridge", features="propagated", logit_adjustment=0.5)


@pytest.mark.parametrize(("difference", "is_rounding"), [(1e-4, True), (2e-4, False)])
def test_numbers_of_records_may_differ_by_what_is_allowed(difference: float, is_rounding: bool) -> None:
    one = {"seed": 3, "diagnostics": {"share": [0.2, None, 0.3]}, "classes": [[1, 2]]}
    other = {"seed": 3, "diagnostics": {"share": [0.2, None, 0.3 + difference]}, "classes": [[1, 2]]}
    assert hagmeta.testing._unequal(one, one) is None
    assert hagmeta.testing._unequal(one, other) is not None
    assert (hagmeta.testing._unequal(one, other, 1.01e-4) is None) == is_rounding
    for changed in ({"seed": 4}, {"classes": [[1]]}, {"diagnostics": {"other": [0.2, None, 0.3]}}):
        assert hagmeta.testing._unequal(one, one | changed, 1.01e-4) is not None


def test_what_breaks_in_plain_mode_is_found() -> None:
    for method in (RefusesPlainMode, AnswersOtherwiseInPlainMode):
        check_packs(method)
    with pytest.raises(AssertionError, match=r"fails in plain mode: RuntimeError\('this is no pack'\)"):
        check_plain(RefusesPlainMode)
    with pytest.raises(AssertionError, match="predictions of session 0 change in plain mode"):
        check_plain(AnswersOtherwiseInPlainMode)
