"""One method of each kind, for tests of parts that treat all methods of a kind alike."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from hagmeta.methods import METHODS
from hagmeta.methods import parts as parts_module
from hagmeta.methods.base import Method

PARTS = [part for part in vars(parts_module).values() if isinstance(part, type) and issubclass(part, Method)]


def one_of_each_kind(methods: Iterable[str] = METHODS) -> list[Any]:
    """Return `methods` as parameters of a test. Those that show nothing new to the phases are marked as slow.

    The phases see when a method learns and from what, whether its encoder is frozen, whether it is an oracle,
    and which extra steps it has. Each of these comes at least once in methods that are not slow.
    """
    seen: set[Any] = set()
    found = []
    for name in methods:
        method = METHODS[name]
        shown = {method.meta_training, method.session_learning}
        shown |= {("frozen", method.freezes_encoder), ("oracle", method.traits.oracle)}
        shown |= {part for part in PARTS if issubclass(method, part)}
        found.append(pytest.param(name, marks=pytest.mark.slow if shown <= seen else ()))
        seen |= shown
    return found
