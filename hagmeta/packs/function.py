"""Functions with gradients of their own, as cheap to call as torch allows."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, ClassVar

import torch
from torch import Tensor


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
        moved = []
        for argument, rank, axis in zip(arguments, cls.ranks, in_dims[1:], strict=True):
            if isinstance(argument, Tensor) and rank is not None:
                if axis is None:
                    argument, axis = argument.expand(info.batch_size, *argument.shape), 0
                argument = argument.movedim(axis, _seed_axis(shared, rank))
            moved.append(argument)
        result = cls.apply(shared, *moved)
        if isinstance(result, tuple):
            return result, tuple(_seed_axis(shared, each.dim() - 1) for each in result)
        return result, _seed_axis(shared, result.dim() - 1)


def also_alone(*ranks: int | None) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Let a function of packs also compute one seed alone, as a pack of one.

    Args:
        *ranks: The dimensions for one seed of each argument after the first, see ``SeedBatched``.
    """
    place = next(place for place, rank in enumerate(ranks) if rank is not None)

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def computed(shared: Any, *arguments: Any) -> Any:
            if arguments[place].dim() > ranks[place]:
                return function(shared, *arguments)
            packed = [
                argument.unsqueeze(_seed_axis(shared, rank))
                if isinstance(argument, Tensor) and rank is not None
                else argument
                for argument, rank in zip(arguments, ranks, strict=True)
            ]
            result = function(shared, *packed)
            if isinstance(result, tuple):
                return tuple(each.squeeze(_seed_axis(shared, each.dim() - 1)) for each in result)
            return result.squeeze(_seed_axis(shared, result.dim() - 1))

        return computed

    return decorate


def _seed_axis(shared: Any, rank: int) -> int:
    return shared.seed_axis if rank > 1 else 0
