"""The nodes that a replaying method keeps of the classes that it has met."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from hagmeta.methods.parts import Replays
from hagmeta.packs.pack import Pack
from hagmeta.phases.context import Context
from hagmeta.phases.knowledge import Knowledge
from hagmeta.protocol.scenario import Scenario, Stream


class Memory:
    """At most ``memory`` nodes a class, chosen by the method among those by which it learnt the class.

    Nor more than the protocol lets be read again, which may be none.
    """

    def __init__(self, context: Context, streams: Sequence[Stream]) -> None:
        self.context, self.streams = context, streams
        memory, most = context.settings.memory, context.protocol.most_rehearsed
        self.most = memory if most is None else min(memory, most)
        self.kept: list[list[np.ndarray]] = [[] for _ in streams]  # by seed and session: (classes, nodes)

    @torch.no_grad()
    def keep(self, pack: Pack, knowledge: Knowledge, session: int) -> None:
        """Choose among the nodes of the classes that a session brought, after it."""
        context, streams = self.context, self.streams
        assert issubclass(context.method, Replays)
        if not self.most:
            new = context.tasks.n_way if session else len(streams[0].known)
            for kept in self.kept:
                kept.append(np.empty((new, 0), dtype=np.int64))
            return
        shared = context.tasks.shared(knowledge, len(streams[0].known), session)
        described = pack.run("describe", (shared,), knowledge.view, context.tasks.session(streams, session))
        assert context.settings.k_shot
        size = self.most if session == 0 else min(self.most, context.settings.k_shot)
        for seed, (scenario, stream) in enumerate(zip(context.scenarios, streams, strict=True)):
            candidates = self._candidates(scenario, stream, session)
            nodes = torch.from_numpy(np.concatenate(candidates)).to(context.runtime.device)
            ends = np.cumsum([len(of_class) for of_class in candidates])[:-1]
            embeddings, logits = (np.split(x[seed, nodes].cpu().numpy(), ends) for x in described)
            chosen = context.method.select(context.settings, embeddings, logits, size)
            # A class with fewer nodes keeps them all, and the first of them twice: rows are of one length.
            rows = [np.resize(nodes[picks], size) for nodes, picks in zip(candidates, chosen, strict=True)]
            self.kept[seed].append(np.stack(rows))

    def nodes(self) -> list[np.ndarray]:
        """All that is kept, one array a seed, in the order in which the classes were met."""
        return [np.concatenate([rows.ravel() for rows in kept]) for kept in self.kept]

    def targets(self) -> np.ndarray:
        """The positions of their classes, which are the same for every seed."""
        counts = np.concatenate([np.full(len(rows), rows.shape[1]) for rows in self.kept[0]])
        return np.repeat(np.arange(len(counts)), counts)

    def labels(self, session: int) -> list[np.ndarray]:
        """The classes that they were given as, one array a seed: of a mislabelled support not its own."""
        return [stream.met(session)[self.targets()] for stream in self.streams]

    def _candidates(self, scenario: Scenario, stream: Stream, session: int) -> list[np.ndarray]:
        """The labelled nodes of each class that a session brought: train nodes at first, then supports."""
        if session:
            return list(stream.support[session - 1])
        return [self.context.protocol.labelled(scenario, np.array([c])) for c in stream.known]
