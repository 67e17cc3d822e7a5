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
    """Return `methods` as parameters of a test. Those whose kind has come before are marked as slow.

    A kind is what the phases can see of a method: when it learns, from what, and which extra steps it has.
    """
    seen, found = set(), []
    for name in methods:
        method = METHODS[name]
        own = tuple(issubclass(method, part) for part in PARTS)
        kind = (
            method.meta_training,
            method.session_learning,
            method.freezes_encoder,
            method.traits.oracle,
            own,
        )
        found.append(pytest.param(name, marks=pytest.mark.slow if kind in seen else ()))
        seen.add(kind)
    return found
