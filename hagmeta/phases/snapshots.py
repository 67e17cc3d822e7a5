"""Embeddings of a session's queries, kept so that they can be looked at afterwards."""

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
    """Of every seed of a pack, after one session, in evaluation mode."""

    def __init__(self, session: int) -> None:
        self.session = session
        self.arrays: list[dict[str, np.ndarray]] = []  # one a seed

    def load(self, state: list[dict[str, torch.Tensor]]) -> None:
        """Those that a run had taken before it was cut off."""
        self.arrays = [{name: array.numpy() for name, array in arrays.items()} for arrays in state]

    @torch.no_grad()
    def take(
        self, context: Context, pack: Pack, knowledge: Knowledge, streams: Sequence[Stream], session: int
    ) -> None:
        """Called after every session; keeps one. Labels are for whoever looks at it: nothing learns here."""
        if session != self.session:
            return
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
                    "base": np.isin(labels, scenario.split.base),
                    "arrived": _arrival(labels, stream),
                }
            )


def to_bytes(arrays: dict[str, np.ndarray]) -> bytes:
    """As an ``.npz`` file."""
    content = io.BytesIO()
    np.savez_compressed(content, **arrays)  # type: ignore[arg-type]
    return content.getvalue()


def _arrival(labels: np.ndarray, stream: Stream) -> np.ndarray:
    """The session in which each label's class came."""
    arrived = np.zeros(len(labels), dtype=np.int64)
    for session, classes in enumerate(stream.arriving, start=1):
        arrived[np.isin(labels, classes)] = session
    return arrived
