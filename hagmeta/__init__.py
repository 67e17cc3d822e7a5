"""Graph few-shot class-incremental learning: ``hagmeta.run(hagmeta.RunConfig(...), seeds)``.

What is named here is imported when it is asked for: the small modules of ``hagmeta.common`` need no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hagmeta.config import RunConfig, resolve
    from hagmeta.pipeline import run

__all__ = ["RunConfig", "resolve", "run"]
_HOMES = {"RunConfig": "hagmeta.config", "resolve": "hagmeta.config", "run": "hagmeta.pipeline"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'hagmeta' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
