"""One method of each kind, for tests of parts that treat all methods of a kind alike."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import pytest

from hagmeta.methods import METHODS
from hagmeta.methods import parts as parts_module
from hagmeta.methods.base import MetaTraining, Method, SessionLearning

PARTS = [part for part in vars(parts_module).values() if isinstance(part, type) and issubclass(part, Method)]


def one_of_each_kind(
    methods: Iterable[str] = METHODS, also: Callable[[str], Iterable[Any]] = lambda name: ()
) -> list[Any]:
    """Return `methods` as parameters of a test. Those that show nothing new to the phases are marked as slow.

    The phases see when a method learns and from what, whether its encoder is frozen, whether it is an oracle,
    and which extra steps it has. Each of these comes at least once in methods that are not slow, and so does
    all that `also` names of a method. These are few: first the method that shows most, then the one that adds
    most to it, and so on.
    """
    shown = {name: _shown(METHODS[name]) | set(also(name)) for name in methods}
    left, quick = set[Any]().union(*shown.values()), set()
    while left:
        most = max(shown, key=lambda name: len(shown[name] & left))
        quick.add(most)
        left -= shown[most]
    return [pytest.param(name, marks=() if name in quick else pytest.mark.slow) for name in shown]


def each_once(methods: Sequence[str], values: Sequence[str], *, fully: Collection[str]) -> list[Any]:
    """Return all pairs of `methods` and `values` as parameters of a test.

    Each method comes with the first value, and those of `fully` with each value. Other pairs are slow.
    """
    return [
        pytest.param(method, value, marks=() if value == values[0] or method in fully else pytest.mark.slow)
        for method in methods
        for value in values
    ]


def _shown(method: type[Method]) -> set[Any]:
    """Return what the phases see of a method."""
    trained, learns = method.meta_training, method.session_learning
    untrained, frozen = trained is MetaTraining.NONE, method.freezes_encoder
    shown: set[Any] = {trained, learns, ("frozen", frozen), ("oracle", method.traits.oracle)}
    shown.add(("frozen but trained", frozen and not untrained))
    shown.add(("never learns", untrained and learns is SessionLearning.NONE))
    return shown | {part for part in PARTS if issubclass(method, part)}
