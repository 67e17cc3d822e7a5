"""Accuracy on validation streams without learning in their sessions, for early stopping."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from hagmeta.engine.context import Context
from hagmeta.engine.hooks import add_classes, new_classes
from hagmeta.engine.known.session import Known
from hagmeta.methods.base import Shared, Task
from hagmeta.packs.capture import Capture
from hagmeta.packs.pack import Pack, stack_padded
from hagmeta.scenarios.scenario import Scenario


class Validation:
    """The validation stream of each seed, classified without learning in its sessions."""

    def __init__(self, context: Context, pack: Pack, capture: Capture) -> None:
        self._context, self._pack, self._capture = context, pack, capture
        self._streams = [scenario.validation for scenario in context.scenarios]
        self._last = self._streams[0].sessions
        sessions = list(range(self._last + 1))
        limited = context.protocol.most_rehearsed is not None
        oracle = context.known.oracle or context.known.knows_true_means
        changes = context.settings.val_classes or oracle or limited
        if changes or any(new_classes(context, self._streams, session) for session in sessions):
            self._parts = [self._part([session]) for session in sessions]
        else:
            # Nothing changes between sessions, so one pass over the graph is enough for all of them.
            self._parts = [self._part(sessions)]

    def _part(self, sessions: list[int]) -> _Together:
        context, streams = self._context, self._streams
        # Inputs propagated once for each validation view would take much memory.
        known = context.known.session(streams, sessions[0], learns=False)
        known = context.known.with_fixed_features(self._pack, known)
        return _Together(
            known,
            context.tasks.shared(known, streams[0].sizes(sessions[-1])),
            sessions,
            tuple(context.tasks.session(streams, session, known.all_averaged) for session in sessions),
            tuple(self._truth(session).to(context.runtime.device) for session in sessions),
            np.stack([self._asked(session) for session in sessions], axis=1),
        )

    def _truth(self, session: int) -> Tensor:
        """Return the class position of each query (pack, queries), padded with -1."""
        pairs = zip(self._context.scenarios, self._streams, strict=True)
        rows = [w.positions(s.met(session))[w.labels[s.queries[session]]] for w, s in pairs]
        return stack_padded(rows, filling=-1)

    def _asked(self, session: int) -> np.ndarray:
        """Return the number of queries per class (pack, classes), in order of arrival."""
        pairs = zip(self._context.scenarios, self._streams, strict=True)
        return np.stack([_counts(w, s.met(self._last), s.queries[session]) for w, s in pairs])

    @torch.no_grad()
    def accuracy(self) -> np.ndarray:
        """Return the macro accuracy of each seed, averaged over sessions. All classes have equal weight."""
        pack = self._pack
        before = pack.snapshot() if self._context.method.has("add_classes") else None
        kept: tuple[Tensor, ...] = ()
        shares = []
        for part in self._parts:
            add_classes(self._context, pack, part.known, self._streams, part.sessions[0])
            count = partial(self._correct, part)
            counts, kept = self._capture.run(("validation", *part.sessions), count, (kept,))
            kept = tuple(part.clone() for part in kept)  # the next replay overwrites the result of a capture
            right, asked = counts.cpu().numpy(), part.asked
            by_class = np.divide(right, asked, out=np.zeros(asked.shape), where=asked > 0)
            shares.append(by_class.sum(-1) / (asked > 0).sum(-1))
        if before is not None:
            pack.restore(before)
        return np.array([np.mean(row) for row in np.concatenate(shares, axis=1)])

    def _correct(self, part: _Together, kept: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Return correct predictions (pack, sessions, classes), and class statistics if labels are gone."""
        arguments = (part.shared,), part.known.view
        tasks = tuple(task._replace(class_statistics=kept) for task in part.tasks)
        pairs = zip(self._pack.run("logits", *arguments, tasks), part.truth, strict=True)
        counts = torch.stack([self._right(logits, truth) for logits, truth in pairs], dim=1)
        if self._context.tasks.keeps_prototypes:
            kept = self._pack.run("class_statistics", *arguments, tasks[-1])
        return counts, kept

    def _right(self, logits: Tensor, truth: Tensor) -> Tensor:
        """Return correct predictions (pack, classes) as integers, whose sum does not depend on the order."""
        right = (logits.argmax(-1) == truth).long()
        counts = right.new_zeros(len(right), len(self._streams[0].met(self._last)))
        return counts.scatter_add(1, truth.clamp(min=0), right)  # padding, -1, is never correct


def _counts(scenario: Scenario, classes: np.ndarray, nodes: np.ndarray) -> np.ndarray:
    positions = scenario.positions(classes)[scenario.labels[nodes]]
    return np.bincount(positions[positions >= 0], minlength=len(classes))


class _Together(NamedTuple):
    """Sessions that are classified in one pass."""

    known: Known
    shared: Shared
    sessions: list[int]
    tasks: tuple[Task, ...]
    truth: tuple[Tensor, ...]
    asked: np.ndarray  # (pack, sessions, classes) queries
