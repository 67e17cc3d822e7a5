"""FSCIL-Calibration, against a case computed by hand. test_closed_form.py has a reference for whole runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from hagmeta.config.run_config import RunConfig, resolve
from hagmeta.datasets.base import Dataset
from hagmeta.layers.statistics import LabelledRows
from hagmeta.methods import METHODS
from hagmeta.methods.base import Sizes, Task
from hagmeta.methods.closed_form.fscil_calibration import FscilCalibration
from tests.hagmeta.methods.closed_form.test_closed_form import lived

Small = Callable[..., RunConfig]
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


def test_means_and_covariances_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    # Cosines of (3, 4) are 0.6 and 0.8; with scale 5 ln 3 the weights are 1/4 and 3/4.
    _, statistics = by_hand(monkeypatch, calibration=0.2, calibration_scale=5 * float(np.log(3)))
    base, spreads, later, later_spreads = statistics()
    np.testing.assert_allclose(base, [[2, 0], [0, 5]])
    np.testing.assert_allclose(spreads, [np.diag([0, 1]), np.diag([1, 0])])
    expected = 0.8 * np.array([0.6, 0.8]) + 0.2 * np.array([1, 3]) / np.sqrt(10)
    np.testing.assert_allclose(later, [expected], rtol=1e-6)
    own = np.array([[9.0, 3.0], [3.0, 1.0]])  # deviations are (-3, -1) and (3, 1)
    np.testing.assert_allclose(later_spreads, [own + np.diag([0.75, 0.25])], rtol=1e-6)


def test_what_was_kept_is_not_calibrated_again(monkeypatch: pytest.MonkeyPatch) -> None:
    method, statistics = by_hand(monkeypatch)
    first = statistics()
    both = method.known(None, None, None)  # type: ignore[arg-type]
    monkeypatch.setattr(method, "known", lambda *_: both[1:])
    again = statistics(first)
    for old, new in zip(first, again, strict=True):
        torch.testing.assert_close(new[: len(old)], old, rtol=0, atol=0)
    torch.testing.assert_close(again[2][1], first[2][0])  # the same supports, with the same base classes


def test_known_classes_are_those_of_fecam_with_the_same_power(narrow: Dataset, small: Small) -> None:
    settings = {"features": "propagated", "tukey": 0.5, "shrinkage": 0.3}
    ours, fecam = (lived(small(method=m, **settings), narrow) for m in ("fscil-calibration", "fecam"))
    np.testing.assert_array_equal(ours.logits[:, : ours.many], fecam.logits[:, : fecam.many])
    assert (np.abs(ours.logits - fecam.logits)[:, ours.many :].max(0) > 1e-3).all()


def test_defaults_are_those_of_the_public_code() -> None:
    config = resolve(RunConfig.of(method="fscil-calibration"))
    assert (config.calibration, config.calibration_scale, config.tukey) == (0.1, 16, 1)
    assert resolve(RunConfig.of(method="teen")).calibration == 0.5
    assert METHODS["fecam"].all_defaults()["tukey"] == 0.5
