"""Validation streams, answered without learning in them: what early stopping goes by."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from hagmeta.methods.base import Shared, Task
from hagmeta.packs.capture import Capture
from hagmeta.packs.pack import Pack, stack_padded
from hagmeta.phases.context import Context, Knowledge
from hagmeta.phases.meeting import meet, newcomers


class Validation:
    """Each seed's validation stream, answered without learning in it: what early stopping goes by."""

    def __init__(self, context: Context, pack: Pack, capture: Capture) -> None:
        self._context, self._pack, self._capture = context, pack, capture
        self._streams = [scenario.validation for scenario in context.scenarios]
        sessions = list(range(self._streams[0].sessions + 1))
        limited = context.protocol.most_rehearsed is not None
        oracle = context.oracle or context.knows_true_means
        changes = context.settings.val_classes or oracle or limited
        if changes or any(newcomers(context, self._streams, session) for session in sessions):
            self._parts = [self._part([session]) for session in sessions]
        else:
            # Where nothing changes on the way, one pass over the graph answers all sessions.
            self._parts = [self._part(sessions)]

    def _part(self, sessions: list[int]) -> _Together:
        context, streams = self._context, self._streams
        knowledge = context.propagated(self._pack, context.session(streams, sessions[0]))
        return _Together(
            knowledge,
            context.shared(knowledge, len(streams[0].known), sessions[-1]),
            sessions,
            tuple(context.task(streams, session, knowledge.all_averaged) for session in sessions),
            tuple(self._truth(session).to(context.device) for session in sessions),
            np.array([[len(stream.queries[session]) for session in sessions] for stream in streams]),
        )

    def _truth(self, session: int) -> Tensor:
        """The position of each query's class (pack, queries); -1 where a seed has fewer queries."""
        pairs = zip(self._context.scenarios, self._streams, strict=True)
        rows = [w.positions(s.met(session))[w.labels[s.queries[session]]] for w, s in pairs]
        return stack_padded(rows, filling=-1)

    @torch.no_grad()
    def accuracy(self) -> np.ndarray:
        """Of each seed, the mean over its sessions."""
        pack = self._pack
        before = pack.snapshot() if self._context.method.class_parameters else None
        kept: tuple[Tensor, ...] = ()
        shares = []
        for part in self._parts:
            meet(self._context, pack, part.knowledge, self._streams, part.sessions[0])
            count = partial(self._correct, part)
            counts, kept = self._capture.run(("validation", *part.sessions), count, (kept,))
            kept = tuple(prototypes.clone() for prototypes in kept)  # what a capture returns does not last
            shares.append(counts.cpu().numpy() / part.sizes)
        if before is not None:
            pack.restore(before)
        return np.array([np.mean(row) for row in np.concatenate(shares, axis=1)])

    def _correct(self, part: _Together, kept: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        """How many answers are right (pack, sessions), and the prototypes to keep where labels are not."""
        arguments = (part.shared,), part.knowledge.view
        tasks = tuple(task._replace(kept=kept) for task in part.tasks)
        pairs = zip(self._pack.run("logits", *arguments, tasks), part.truth, strict=True)
        counts = torch.stack([(answer.argmax(-1) == truth).sum(-1) for answer, truth in pairs], dim=-1)
        if self._context.keeps_prototypes:
            kept = (self._pack.run("prototypes", *arguments, tasks[-1]),)
        return counts, kept


class _Together(NamedTuple):
    """Sessions that are answered together."""

    knowledge: Knowledge
    shared: Shared
    sessions: list[int]
    tasks: tuple[Task, ...]
    truth: tuple[Tensor, ...]
    sizes: np.ndarray  # (pack, sessions) queries
