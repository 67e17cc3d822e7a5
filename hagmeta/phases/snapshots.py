"""Embeddings of the queries of a session, stored for later inspection."""

from __future__ import annotations

import io
from collections.abc import Sequence

import numpy as np
import torch

from hagmeta.packs.pack import Pack, stack_padded
from hagmeta.phases.context import Context
from hagmeta.phases.knowledge import Knowledge
from hagmeta.protocol.scenario import Stream


class Snapshots:
    """Embeddings of every seed of a pack after one session, in evaluation mode."""

    def __init__(self, session: int) -> None:
        self.session = session
        self.arrays: list[dict[str, np.ndarray]] = []  # one dict per seed

    def load(self, state: list[dict[str, torch.Tensor]]) -> None:
        """Restore the embeddings of an interrupted run."""
        self.arrays = [{name: array.numpy() for name, array in arrays.items()} for arrays in state]

    @torch.no_grad()
    def take(
        self, context: Context, pack: Pack, knowledge: Knowledge, streams: Sequence[Stream], session: int
    ) -> None:
        """Store the embeddings if `session` is the chosen one. It is called after every session.

        The stored labels are for inspection; nothing learns from them.
        """
        if session != self.session:
            return
        assert context.settings.classes
        apart = context.settings.classes[1] > 0  # novel-train classes are not base classes
        queries = [stream.queries[session] for stream in streams]
        shared = context.tasks.shared(knowledge, len(streams[0].known), session)
        nodes = stack_padded(queries).to(context.runtime.device)
        embedded = pack.run("embeddings", (shared,), knowledge.view, nodes).cpu().numpy()
        for scenario, stream, query, rows in zip(context.scenarios, streams, queries, embedded, strict=True):
            labels = scenario.labels[query]
            self.arrays.append(
                {
                    "nodes": query,
                    "embeddings": rows[: len(query)].astype(np.float32),
                    "labels": labels,
                    "base": np.isin(labels, scenario.split.base if apart else stream.known),
                    "arrived": _arrival(labels, stream),
                }
            )


def to_bytes(arrays: dict[str, np.ndarray]) -> bytes:
    """Return `arrays` as the bytes of an ``.npz`` file."""
    content = io.BytesIO()
    np.savez_compressed(content, **arrays)  # type: ignore[arg-type]
    return content.getvalue()


def _arrival(labels: np.ndarray, stream: Stream) -> np.ndarray:
    """Return the session in which the class of each label arrived."""
    arrived = np.zeros(len(labels), dtype=np.int64)
    for session, classes in enumerate(stream.arriving, start=1):
        arrived[np.isin(labels, classes)] = session
    return arrived
