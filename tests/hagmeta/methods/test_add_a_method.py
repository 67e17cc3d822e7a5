"""The method of docs/add_a_method.md, as it stands there."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from hagmeta.config import RunConfig
from hagmeta.datasets.base import NodeDataset
from hagmeta.methods import METHODS
from hagmeta.pipeline import run

PAGE = Path(__file__).resolve().parents[3] / "docs" / "add_a_method.md"
CPU = torch.device("cpu")
Small = Callable[..., RunConfig]


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> str:
    """The page's code, run; what it registers is gone afterwards."""
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    monkeypatch.setitem(METHODS, "cosine-mean", METHODS["hag-meta"])
    exec(compile(code, str(PAGE), "exec"), {})
    return str(code)


def test_it_is_short(written: str) -> None:
    assert len(written.splitlines()) < 60


@pytest.mark.parametrize("protocol", ["strict", "released"])
def test_it_runs_in_any_pack(dataset: NodeDataset, small: Small, written: str, protocol: str) -> None:
    config = small(method="cosine-mean", protocol=protocol, pretrain_epochs=60, episodes=20)

    def accuracy(seeds: list[int]) -> Any:
        records = run(config, seeds, dataset=dataset, device=CPU)
        return next(record["accuracy"] for record in records if record["seed"] == 3)

    alone = accuracy([3])
    assert alone == accuracy([0, 3])
    assert alone[0] > 3 / 9 and alone[-1] > 2 / 13


def test_searches_can_score_it(dataset: NodeDataset, small: Small, written: str) -> None:
    (record,) = run(small(method="cosine-mean", val_classes=2), [0], dataset=dataset, device=CPU)
    assert record["validation"]["stream"] > 0
