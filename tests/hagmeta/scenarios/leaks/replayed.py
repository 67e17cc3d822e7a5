"""Sessions that can be lived through again, with labels that can be overwritten."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from hagmeta.config.run_config import RunConfig
from hagmeta.datasets.base import Dataset
from hagmeta.engine.context import Context
from hagmeta.engine.known.memory import Memory
from hagmeta.engine.run import prepare, pretrain
from hagmeta.engine.sessions import evaluate_streams
from hagmeta.engine.training.meta_training import meta_train
from hagmeta.testing import Answers
from tests.hagmeta.conftest import watched

SEEDS = [0, 5]


class Life:
    """One model at the beginning of its sessions, which can be lived through again and again."""

    def __init__(self, config: RunConfig, dataset: Dataset) -> None:
        self.context = prepare(config, SEEDS, dataset, torch.device("cpu"))
        self.pack = pretrain(self.context)
        self.trained = meta_train(self.context, self.pack)
        self.start = self.pack.snapshot()

    def sessions(self, context: Context, after: Callable[[int], object] = lambda session: None) -> Answers:
        """Return the answers, with something done after each session."""

        def progress(purpose: str, session: int, total: int, values: dict[str, float]) -> None:
            after(session)

        self.pack.restore(self.start)
        streams = [scenario.test for scenario in context.scenarios]
        evaluators = evaluate_streams(watched(context, progress), self.pack, streams, "test", self.trained)
        return [evaluator.answers for evaluator in evaluators]


def with_own_labels(context: Context) -> Context:
    """Return the same, with labels and supports that can be overwritten."""
    scenarios = [
        replace(s, labels=s.labels.copy(), test=replace(s.test, support=deepcopy(s.test.support)))
        for s in context.scenarios
    ]
    return replace(context, scenarios=scenarios)


def memories_made(patch: pytest.MonkeyPatch) -> list[Memory]:
    """Return the memories that replaying methods will make: what these keep is their own choice."""
    made: list[Memory] = []
    keep = Memory.keep

    def noted(self: Memory, *arguments: Any) -> None:
        made.append(self)
        keep(self, *arguments)

    patch.setattr(Memory, "keep", noted)
    return made


def readable_again(stream: Any, memory: Memory | None, seed: int, session: int) -> np.ndarray:
    """Return the nodes whose labels may be read in later sessions."""
    if memory is not None:
        return np.concatenate([rows.ravel() for rows in memory.kept[seed]])
    assert stream.rehearsed is not None
    return np.concatenate([*stream.rehearsed.known, *map(np.ravel, stream.rehearsed.support[: session + 1])])
