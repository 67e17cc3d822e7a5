"""What a reader has to know about an embedded graph: where it comes from, how it was built, what it lacks."""

from __future__ import annotations

from dataclasses import dataclass

OF_ALL = (  # limits of all embedded graphs
    "Our method was developed with all embedded graphs, so its results on them are optimistic.",
    "Edges have no direction, and nodes have no names.",
)


@dataclass(frozen=True, kw_only=True)
class DataCard:
    """Facts about an embedded graph that its arrays do not tell.

    The documentation and the Croissant files of `tools/datasets/croissant.py` are made from it.
    """

    source: str  # with its version
    url: str
    cite: str
    licence: str  # an SPDX expression, or words if there is no licence
    licence_urls: tuple[str, ...]
    nodes: str
    classes: str
    edges: str
    features: str
    findings: tuple[str, ...]  # measurements on all labels, and what was decided with them
    biases: tuple[str, ...]
    limits: tuple[str, ...]
