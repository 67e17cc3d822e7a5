from __future__ import annotations

import gc
import signal
import sys
from collections.abc import Iterator

import pytest

REGISTRIES = {
    "hagmeta.methods": "METHODS",
    "hagmeta.layers.encoders.registry": "ENCODERS",
    "hagmeta.scenarios": "PROTOCOLS",
    "hagmeta.scenarios.metrics": "METRICS",
    "hagmeta.datasets": "DATASETS",
}

gc.disable()  # until all tests are collected: what imports make stays, so looking at it only takes time


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True)
def no_plug_in_stays() -> Iterator[None]:
    """What a test loads from outside is gone after it: the registries have our own entries again."""
    yield
    for module, name in REGISTRIES.items():
        if module in sys.modules:
            registry = getattr(sys.modules[module], name)
            for identity in [each for each in registry if "@" in each]:
                del registry[identity]
    if "hagmeta.common.plugins.plugins" in sys.modules:
        sys.modules["hagmeta.common.plugins.plugins"]._loaded.clear()


@pytest.fixture(autouse=True, scope="session")
def signals_are_not_ignored() -> None:
    """As in a terminal, wherever the tests run: studies ignore what nohup or a background job does."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
