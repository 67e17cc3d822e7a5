"""Functions with gradients of their own, as cheap to call as torch allows."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, ClassVar

import torch


class Function(torch.autograd.Function):
    """Base class of our ``torch.autograd.Function`` classes; keeps the signature of ``forward``.

    Torch asks for it at every call. Without this class, that takes a tenth of a run on a small graph.
    """

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        cls.forward.__signature__ = inspect.signature(cls.forward)  # type: ignore[attr-defined]


class SeedBatched(Function):
    """Base class of functions that compute all seeds of a pack at once.

    The first argument is shared by all seeds. Its ``seed_axis`` is the axis of seeds in values (rows, width)
    of a pack. Tensors with fewer dimensions have it at 0.
    """

    ranks: ClassVar[tuple[int | None, ...]]  # dimensions of each other argument for one seed; None: no tensor

    def __init_subclass__(cls, **keywords: Any) -> None:
        cls.forward = staticmethod(also_alone(*cls.ranks)(cls.forward))  # type: ignore[method-assign]
        super().__init_subclass__(**keywords)

    @staticmethod
    def forward(shared: Any, *arguments: Any) -> Any:
        """Compute a pack. Tensors of arguments and results have an axis of seeds."""
        raise NotImplementedError

    @classmethod
    def vmap(cls, info: Any, in_dims: tuple[Any, ...], shared: Any, *arguments: Any) -> tuple[Any, Any]:
        """Move the axis of seeds of each argument. A tensor without one is the same for all seeds."""
        result = cls.apply(shared, *_packed(shared, cls.ranks, arguments, in_dims[1:], info.batch_size))
        return result, _axes(shared, result)


def also_alone(*ranks: int | None) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Let a function of packs also compute one seed alone, as a pack of one.

    Args:
        *ranks: The dimensions for one seed of each argument after the first, see ``SeedBatched``.
    """
    place, rank = next((place, rank) for place, rank in enumerate(ranks) if rank is not None)
    nowhere = (None,) * len(ranks)

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def computed(shared: Any, *arguments: Any) -> Any:
            if arguments[place].dim() > rank:
                return function(shared, *arguments)
            result = function(shared, *_packed(shared, ranks, arguments, nowhere, 1))
            axes = _axes(shared, result)
            if isinstance(result, tuple):
                return tuple(each.squeeze(axis) for each, axis in zip(result, axes, strict=True))
            return result.squeeze(axes)

        return computed

    return decorate


def _packed(
    shared: Any, ranks: Sequence[int | None], arguments: Sequence[Any], axes: Sequence[Any], size: int
) -> list[Any]:
    """Return the arguments of a pack of ``size`` seeds. ``axes`` are those of seeds, or None."""
    packed = []
    for argument, rank, axis in zip(arguments, ranks, axes, strict=True):
        if argument is not None and rank is not None:
            if axis is None:
                argument, axis = argument.expand(size, *argument.shape), 0
            argument = argument.movedim(axis, _seed_axis(shared, rank))
        packed.append(argument)
    return packed


def _axes(shared: Any, result: Any) -> Any:
    """Return the axis of seeds of a result, or of each of a tuple."""
    if isinstance(result, tuple):
        return tuple(_seed_axis(shared, each.dim() - 1) for each in result)
    return _seed_axis(shared, result.dim() - 1)


def _seed_axis(shared: Any, rank: int) -> int:
    return shared.seed_axis if rank > 1 else 0
