"""The nodes that a replaying method keeps of the classes that it has met."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from hagmeta.packs.pack import Pack
from hagmeta.phases.context import Setting, Stage
from hagmeta.protocol.splits import TRAIN
from hagmeta.protocol.streams import Stream, World


class Memory:
    """At most ``memory`` nodes a class, chosen by the method among those by which it learnt the class."""

    def __init__(self, stage: Stage, streams: Sequence[Stream]) -> None:
        self.stage, self.streams = stage, streams
        self.kept: list[list[np.ndarray]] = [[] for _ in streams]  # by seed and session: (classes, nodes)

    @torch.no_grad()
    def keep(self, pack: Pack, setting: Setting, session: int) -> None:
        """Choose among the nodes of the classes that a session brought, after it."""
        stage, streams = self.stage, self.streams
        scene = stage.scene(setting, len(streams[0].known), session)
        described = pack.run("describe", (scene,), setting.view, stage.task(streams, session))
        assert stage.config.k_shot
        size = stage.config.memory if session == 0 else min(stage.config.memory, stage.config.k_shot)
        for seed, (world, stream) in enumerate(zip(stage.worlds, streams, strict=True)):
            candidates = _candidates(world, stream, session)
            nodes = torch.from_numpy(np.concatenate(candidates)).to(stage.device)
            ends = np.cumsum([len(of_class) for of_class in candidates])[:-1]
            embeddings, logits = (np.split(x[seed, nodes].cpu().numpy(), ends) for x in described)
            chosen = stage.method.select(stage.config, embeddings, logits, size)
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


def _candidates(world: World, stream: Stream, session: int) -> list[np.ndarray]:
    """The labelled nodes of each class that a session brought: train nodes at first, then supports."""
    if session:
        return list(stream.support[session - 1])
    return [world.nodes_of(np.array([c]), TRAIN) for c in stream.known]
