"""Initialise the parameters of new classes, for methods that have parameters per class."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from hagmeta.methods.base import MetaTraining, Shared, Task
from hagmeta.methods.parts import Grows
from hagmeta.packs.pack import Pack, stack
from hagmeta.phases.context import Context
from hagmeta.phases.knowledge import Knowledge
from hagmeta.protocol.scenario import Stream


def meet(context: Context, pack: Pack, knowledge: Knowledge, streams: Sequence[Stream], session: int) -> None:
    """Let a growing method initialise its parameters for the new classes of `session`."""
    new = newcomers(context, streams, session)
    if new:
        shared = context.tasks.shared(knowledge, len(streams[0].known), session)
        _grow(pack, shared, new, knowledge, context.tasks.session(streams, session))


def meet_trained(context: Context, pack: Pack, training: Knowledge) -> None:
    """Let a growing method initialise its parameters for the classes of supervised training."""
    if issubclass(context.method, Grows) and context.meta_training is MetaTraining.SUPERVISED:
        classes = stack(scenario.trained for scenario in context.scenarios).to(context.runtime.device)
        known = classes.shape[1]
        shared = Shared(training.graph, training.class_means, (known,))
        nothing = classes[:, :0]
        _grow(pack, shared, known, training, Task(classes, classes, nothing.unsqueeze(-1), nothing))


@torch.no_grad()
def _grow(pack: Pack, shared: Shared, new: int, knowledge: Knowledge, task: Task) -> None:
    pack.assign(pack.run("meet", (shared, new), knowledge.view, task))


def newcomers(context: Context, streams: Sequence[Stream], session: int) -> int:
    """Return how many classes of `session` are new to a growing method."""
    if not issubclass(context.method, Grows):
        return 0
    arrived = streams[0].arriving[session - 1] if session else streams[0].known
    if context.meta_training is MetaTraining.SUPERVISED:
        arrived = np.setdiff1d(arrived, context.scenarios[0].trained)
    return len(arrived)
