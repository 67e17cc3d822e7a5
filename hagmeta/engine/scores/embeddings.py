"""Embeddings of the queries of a session, for later inspection."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from hagmeta.engine.context import Context
from hagmeta.engine.known.session import Known
from hagmeta.packs.pack import Pack, stack_padded
from hagmeta.scenarios.scenario import Stream


@torch.no_grad()
def query_embeddings(
    context: Context, pack: Pack, known: Known, streams: Sequence[Stream], session: int
) -> list[dict[str, np.ndarray]]:
    """Return the embeddings of the queries of `session` for each seed, in evaluation mode.

    The labels are for inspection; nothing learns from them.
    """
    assert context.settings.classes
    apart = context.settings.classes[1] > 0  # novel-train classes are not base classes
    queries = [stream.queries[session] for stream in streams]
    shared = context.tasks.shared(known, streams[0].sizes(session))
    nodes = stack_padded(queries).to(context.runtime.device)
    embedded = pack.run("embeddings", (shared,), known.view, nodes).cpu().numpy()
    found = []
    for scenario, stream, query, rows in zip(context.scenarios, streams, queries, embedded, strict=True):
        labels = scenario.labels[query]
        found.append(
            {
                "nodes": query,
                "embeddings": rows[: len(query)].astype(np.float32),
                "labels": labels,
                "base": np.isin(labels, scenario.split.base if apart else stream.known),
                "arrived": _arrival(labels, stream),
            }
        )
    return found


def to_bytes(arrays: dict[str, Any]) -> bytes:
    """Return `arrays` as the bytes of an ``.npz`` file."""
    content = io.BytesIO()
    np.savez_compressed(content, **arrays)
    return content.getvalue()


def _arrival(labels: np.ndarray, stream: Stream) -> np.ndarray:
    """Return the session in which the class of each label arrived."""
    arrived = np.zeros(len(labels), dtype=np.int64)
    for session, classes in enumerate(stream.arriving):
        arrived[np.isin(labels, classes)] = session
    return arrived
