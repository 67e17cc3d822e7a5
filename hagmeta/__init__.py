"""Graph few-shot class-incremental learning, for Python.

    config = hagmeta.RunConfig(method="cec", episodes=100)
    records = hagmeta.run(config, [0, 1], dataset=hagmeta.load("debian"), device=torch.device("cpu"))

What is named here is imported when it is asked for: the small modules of ``hagmeta.common`` need no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hagmeta.config import RunConfig, resolve
    from hagmeta.datasets import NodeDataset
    from hagmeta.pipeline import run

__all__ = ["RunConfig", "load", "resolve", "run"]
_HOMES = {"RunConfig": "hagmeta.config", "resolve": "hagmeta.config", "run": "hagmeta.pipeline"}


def load(name: str) -> NodeDataset:
    """A dataset by its name; what must be downloaded is kept in ``$HAGMETA_HOME``."""
    from hagmeta import datasets
    from hagmeta.common.home import home

    return datasets.load(name, home() / "data")


def __dir__() -> list[str]:
    return sorted([*__all__, "__doc__"])


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'hagmeta' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
