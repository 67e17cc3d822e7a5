"""The learning systems, one file each."""

from __future__ import annotations

from hagmeta.config import RunConfig
from hagmeta.errors import choose
from hagmeta.methods.base import Method, Scene, Sizes, Task
from hagmeta.methods.hag_meta import HagMeta

__all__ = ["METHODS", "Method", "Scene", "Sizes", "Task", "make_method"]

METHODS: dict[str, type[Method]] = {"hag-meta": HagMeta}


def make_method(config: RunConfig, sizes: Sizes, seed: int) -> Method:
    """The configured method with the seed's own initial parameters."""
    return METHODS[choose("method", config.method, METHODS)](config, sizes, seed)
