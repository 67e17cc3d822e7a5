from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from hagmeta import datasets, testing
from hagmeta.config.run_config import RunConfig
from hagmeta.datasets.base import Dataset
from hagmeta.engine.context import Context
from hagmeta.packs.pack import Progress

SMALL = "synthetic:nodes=1200,edges=5000,features=150,classes=14,seed=1"
# A prime number of nodes: whatever has a row for each is known by its size.
TINY = testing.GRAPH
CPU = torch.device("cpu")


def watched(context: Context, progress: Progress) -> Context:
    """The same context, which calls another function with its progress."""
    options = replace(context.runtime.options, progress=progress)
    return replace(context, runtime=replace(context.runtime, options=options))


@pytest.fixture(scope="session")
def dataset() -> Dataset:
    """A graph on which the whole pipeline runs in seconds."""
    return datasets.load(SMALL, Path())


@pytest.fixture(scope="session")
def narrow() -> Dataset:
    """As large a graph, with fewer features: heads in closed form invert matrices of their number."""
    return datasets.load(SMALL.replace("features=150", "features=60"), Path())


@pytest.fixture
def small() -> Callable[..., RunConfig]:
    """Settings to go with it; keywords change them."""

    def make(**changes: Any) -> RunConfig:
        settings: dict[str, Any] = testing.SMALL | {
            **{"dataset": SMALL, "classes": (4, 5, 5), "n_way": 2, "k_shot": 3, "hidden": 16, "embedding": 8},
            **{"pretrain_epochs": 3, "episodes": 6, "validate_every": 3, "finetune_steps": 3},
            **{"inner_steps": 2, "memory": 4},
        }
        return RunConfig.of(**(settings | changes))

    return make


@pytest.fixture(scope="session")
def tiny_graph() -> Dataset:
    """A graph on which every method lives a whole life in a fraction of a second."""
    return datasets.load(TINY, Path())


@pytest.fixture
def tiny() -> Callable[..., RunConfig]:
    """Settings to go with it: two sessions, one novel-test class that never comes, one class of no part."""

    def make(**changes: Any) -> RunConfig:
        settings: dict[str, Any] = {**testing.SMALL, **testing.TASK, "dataset": TINY}
        settings |= {"pretrain_epochs": 1, "episodes": 1}
        return RunConfig.of(**(settings | changes))

    return make
