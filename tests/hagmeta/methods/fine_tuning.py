"""Helpers for methods whose sessions learn the new supports: LwF and EWC."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from hagmeta.config.run_config import RunConfig
from hagmeta.datasets.base import Dataset
from hagmeta.engine.context import Context
from hagmeta.engine.hooks import add_trained_classes
from hagmeta.engine.run import prepare, pretrain
from hagmeta.engine.sessions import evaluate_streams
from hagmeta.methods.base import Shared, Task
from hagmeta.methods.classifiers.base import GrowingClassifier, loss_among_new
from hagmeta.packs.pack import Pack
from hagmeta.sparse.graph import View

CPU = torch.device("cpu")
SEEDS = [0, 5]


class FineTuning(GrowingClassifier):
    """Sessions learn the new supports and nothing else."""

    differs: ClassVar = ()

    def session_loss(
        self, shared: Shared, view: View, task: Task, target: Tensor, key: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        logits = self.classify(shared, self.encode(shared, view, key), task)
        return loss_among_new(logits, target, shared.task_sizes[-1]), logits


def prepared(config: RunConfig, dataset: Dataset) -> tuple[Context, Pack]:
    context = prepare(config, SEEDS, dataset, CPU)
    pack = pretrain(context)
    add_trained_classes(context, pack, context.known.training())
    return context, pack


def after_sessions(config: RunConfig, dataset: Dataset) -> dict[str, Tensor]:
    context, pack = prepared(config, dataset)
    evaluate_streams(context, pack, [scenario.test for scenario in context.scenarios], "test")
    return pack.snapshot()


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return all(torch.equal(value, other[name]) for name, value in one.items())
