from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hagmeta import datasets
from hagmeta.config import RunConfig
from hagmeta.datasets.base import NodeDataset

# A prime number of nodes: whatever has a row for each is known by its size.
TINY = "synthetic:nodes=401,edges=1500,features=60,classes=10,seed=1"


@pytest.fixture(scope="session")
def tiny_graph() -> NodeDataset:
    """A graph on which every method lives a whole life in a fraction of a second."""
    return datasets.load(TINY, Path())


@pytest.fixture
def tiny() -> Callable[..., RunConfig]:
    """Settings to go with it: two sessions, one novel-test class that never comes, one class of no part."""

    def make(**changes: Any) -> RunConfig:
        settings: dict[str, Any] = {
            "dataset": TINY,
            "classes": (2, 2, 5),
            "n_way": 2,
            "k_shot": 2,
            "hidden": 8,
            "embedding": 4,
            "heads": 2,
            "pretrain_epochs": 1,
            "episodes": 1,
            "validate_every": 1,
            "finetune_steps": 2,
            "inner_steps": 1,
            "memory": 3,
        }
        return RunConfig(**(settings | changes))

    return make
