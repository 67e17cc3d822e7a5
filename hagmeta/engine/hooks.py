"""Call the hooks of a method for new classes, and after a session."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from hagmeta.engine.context import Context
from hagmeta.engine.known.session import Known
from hagmeta.methods.base import MetaTraining, Shared, Task
from hagmeta.packs.pack import Pack, stack, stack_padded
from hagmeta.scenarios.scenario import Scenario, Stream

NO_TARGET = -1  # the target of padding


def add_classes(context: Context, pack: Pack, known: Known, streams: Sequence[Stream], session: int) -> None:
    """Let a method initialise its parameters for the new classes of `session`."""
    new = new_classes(context, streams, session)
    if new:
        shared = context.tasks.shared(known, streams[0].sizes(session))
        _add(pack, shared, new, known, context.tasks.session(streams, session))


def add_trained_classes(context: Context, pack: Pack, training: Known) -> None:
    """Let a method initialise its parameters for the classes of supervised training."""
    if context.method.has("add_classes") and context.meta_training is MetaTraining.SUPERVISED:
        classes = stack(scenario.trained for scenario in context.scenarios).to(context.runtime.device)
        known = classes.shape[1]
        shared = Shared(training.graph, training.class_means, (known,))
        nothing = classes[:, :0]
        _add(pack, shared, known, training, Task(classes, classes, nothing.unsqueeze(-1), nothing))


@torch.no_grad()
def _add(pack: Pack, shared: Shared, new: int, known: Known, task: Task) -> None:
    pack.assign(pack.run("add_classes", (shared, new), known.view, task))


def new_classes(context: Context, streams: Sequence[Stream], session: int) -> int:
    """Return how many classes of `session` are new to the parameters of a method."""
    if not context.method.has("add_classes"):
        return 0
    arrived = streams[0].arriving[session]
    if context.meta_training is MetaTraining.SUPERVISED:
        arrived = np.setdiff1d(arrived, context.scenarios[0].trained)
    return len(arrived)


def consolidate(context: Context, pack: Pack, known: Known, streams: Sequence[Stream], session: int) -> None:
    """Let a method summarise what it learnt in `session`, before another follows."""
    if context.method.has("consolidate"):
        shared = context.tasks.shared(known, streams[0].sizes(session))
        batches = labelled(context, streams, session)
        gradients = pack.gradients(pack.run("consolidation_loss", (shared,), known.view, *batches))
        with torch.no_grad():
            pack.assign(pack.run("consolidate", (), gradients))


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
