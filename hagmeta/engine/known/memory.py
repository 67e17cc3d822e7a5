"""The nodes that a replay method keeps of earlier classes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from hagmeta.engine.context import Context
from hagmeta.engine.known.session import Known
from hagmeta.packs.pack import Pack
from hagmeta.scenarios.scenario import Scenario, Stream


class Memory:
    """At most `memory` nodes per class, chosen by the method from the labelled nodes of the class.

    It never holds more nodes than the protocol allows to read again, which may be none.
    """

    def __init__(self, context: Context, streams: Sequence[Stream]) -> None:
        self.context, self.streams = context, streams
        memory, most = context.settings.memory, context.protocol.most_rehearsed
        self.most = memory if most is None else min(memory, most)
        self.kept: list[list[np.ndarray]] = [[] for _ in streams]  # per seed and session: (classes, nodes)

    @torch.no_grad()
    def keep(self, pack: Pack, known: Known, session: int) -> None:
        """Choose nodes of the classes that arrived in `session`, after its steps."""
        context, streams = self.context, self.streams
        if not self.most:
            for kept, stream in zip(self.kept, streams, strict=True):
                kept.append(np.empty((len(stream.arriving[session]), 0), dtype=np.int64))
            return
        shared = context.tasks.shared(known, streams[0].sizes(session))
        described = pack.run("describe", (shared,), known.view, context.tasks.session(streams, session))
        assert context.settings.k_shot
        size = self.most if session == 0 else min(self.most, context.settings.k_shot)
        for seed, (scenario, stream) in enumerate(zip(context.scenarios, streams, strict=True)):
            candidates = self._candidates(scenario, stream, session)
            nodes = torch.from_numpy(np.concatenate(candidates)).to(context.runtime.device)
            ends = np.cumsum([len(of_class) for of_class in candidates])[:-1]
            embeddings, logits = (np.split(x[seed, nodes].cpu().numpy(), ends) for x in described)
            chosen = context.method.exemplars(context.settings, embeddings, logits, size)
            # A class with fewer nodes keeps all and repeats the first ones: rows must have equal length.
            rows = [np.resize(nodes[picks], size) for nodes, picks in zip(candidates, chosen, strict=True)]
            self.kept[seed].append(np.stack(rows))

    def nodes(self) -> list[np.ndarray]:
        """Return all kept nodes, one array per seed, in order of class arrival."""
        return [np.concatenate([rows.ravel() for rows in kept]) for kept in self.kept]

    def targets(self) -> np.ndarray:
        """Return the class positions of the kept nodes, which are the same for every seed."""
        counts = np.concatenate([np.full(len(rows), rows.shape[1]) for rows in self.kept[0]])
        return np.repeat(np.arange(len(counts)), counts)

    def labels(self, session: int) -> list[np.ndarray]:
        """Return the given labels of the kept nodes, one array per seed. Mislabelled supports keep theirs."""
        return [stream.met(session)[self.targets()] for stream in self.streams]

    def _candidates(self, scenario: Scenario, stream: Stream, session: int) -> list[np.ndarray]:
        """Return the labelled nodes of each class of `session`: train nodes in session 0, supports later."""
        if session:
            return [np.array(list(dict.fromkeys(row.tolist()))) for row in stream.support[session]]
        return [self.context.protocol.labelled(scenario, np.array([c])) for c in stream.known]
