"""Let a method summarise the classes that it has just learnt, while their labels may be read."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from hagmeta.methods.base import Task
from hagmeta.methods.parts import Consolidates
from hagmeta.packs.pack import Pack, stack_padded
from hagmeta.phases.context import Context
from hagmeta.phases.knowledge import Knowledge
from hagmeta.protocol.scenario import Scenario, Stream

NO_TARGET = -1  # the target of padding


def consolidate(
    context: Context, pack: Pack, knowledge: Knowledge, streams: Sequence[Stream], session: int
) -> None:
    """Let a method that consolidates update its parameters after `session`, unless no other follows."""
    if issubclass(context.method, Consolidates) and session < streams[0].sessions:
        shared = context.tasks.shared(knowledge, len(streams[0].known), session)
        lesson = labelled(context, streams, session)
        slopes = pack.slopes(pack.run("task_loss", (shared,), knowledge.view, *lesson))
        with torch.no_grad():
            pack.assign(pack.run("consolidate", (), slopes))


def labelled(context: Context, streams: Sequence[Stream], session: int) -> tuple[Task, Tensor]:
    """Return a task whose queries are the labelled nodes of the classes of `session`, and their targets."""
    pairs = [_labelled(context, w, s, session) for w, s in zip(context.scenarios, streams, strict=True)]
    nodes, targets = zip(*pairs, strict=True)
    task, device = context.tasks.session(streams, session), context.runtime.device
    target = stack_padded(targets, filling=NO_TARGET).to(device)
    return task._replace(query=stack_padded(nodes).to(device)), target


def _labelled(
    context: Context, scenario: Scenario, stream: Stream, session: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the nodes of one seed and their targets: those of known classes in session 0, supports later."""
    if session == 0:
        nodes = context.protocol.labelled(scenario, stream.known)
        return nodes, scenario.positions(stream.known)[scenario.labels[nodes]]
    _, own = stream.supports(session)
    first = len(stream.met(session - 1))
    return own.ravel(), np.repeat(first + np.arange(len(own)), own.shape[1])
