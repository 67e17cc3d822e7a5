"""FSCIL-Calibration, against a case computed by hand. test_closed_form.py has a reference for whole runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from hagmeta.config.run_config import RunConfig, resolve
from hagmeta.layers.statistics import LabelledRows
from hagmeta.methods.base import Sizes, Task
from hagmeta.methods.closed_form.fscil_calibration import FscilCalibration

EMPTY = torch.empty(0, dtype=torch.long)


def by_hand(monkeypatch: pytest.MonkeyPatch, **settings: Any) -> tuple[FscilCalibration, Callable[..., Any]]:
    """Return a method on rows of two columns, and a function that returns its statistics.

    Base classes are (2, 0) and (0, 5), with variance 1 in the other column. The new class has the supports
    (0, 3) and (6, 5), with mean (3, 4).
    """
    config = resolve(RunConfig.of(method="fscil-calibration", features="propagated", hops=0, **settings))
    method = FscilCalibration(config, Sizes(2, 2, 1, 3, narrow=2), 0)
    rows = torch.tensor([[2.0, 1], [2, -1], [1, 5], [-1, 5], [0, 3], [6, 5]])

    def known(*_: Any) -> list[LabelledRows]:
        nodes = torch.arange(6).view(3, 2)
        share = torch.full((3, 2), 0.5)
        return [
            LabelledRows(nodes[:2], share[:2], rows.__getitem__),
            LabelledRows(nodes[2:], share[2:], rows.__getitem__),
        ]

    monkeypatch.setattr(method, "known", known)
    task = Task(EMPTY, EMPTY, EMPTY, EMPTY)
    return method, lambda kept=(): method.statistics(None, rows, task._replace(class_statistics=kept))  # type: ignore[arg-type]


def test_what_was_kept_is_not_calibrated_again(monkeypatch: pytest.MonkeyPatch) -> None:
    method, statistics = by_hand(monkeypatch)
    first = statistics()
    both = method.known(None, None, None)  # type: ignore[arg-type]
    monkeypatch.setattr(method, "known", lambda *_: both[1:])
    again = statistics(first)
    for old, new in zip(first, again, strict=True):
        torch.testing.assert_close(new[: len(old)], old, rtol=0, atol=0)
    torch.testing.assert_close(again[2][1], first[2][0])  # the same supports, with the same base classes
