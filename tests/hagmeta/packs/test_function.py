from __future__ import annotations

import inspect
from collections.abc import Iterator

import torch

import hagmeta.pipeline  # noqa: F401  imports all functions
from hagmeta.packs.function import Function


def below(kind: type) -> Iterator[type]:
    for each in kind.__subclasses__():
        yield each
        yield from below(each)


def test_no_function_of_ours_has_its_signature_read_at_every_call() -> None:
    ours = [each for each in below(torch.autograd.Function) if each.__module__.startswith("hagmeta.")]
    assert len(ours) > 15 and all(issubclass(each, Function) for each in ours)
    for each in set(ours) - {Function}:
        assert inspect.signature(each.forward) is inspect.signature(each.forward)  # type: ignore[attr-defined]
