"""Steps that run for one seed of a pack after the other, where the arrays of all seeds would be too large."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from hagmeta.packs.function import Function

Step = TypeVar("Step", bound=Callable[..., Any])


def each_seed(step: Step) -> Step:
    """Make a function of a module run for one seed of a pack after the other. Alone, it is called as usual.

    Inside it there is no `vmap`, so shapes may depend on values, and operations may be in place. It is not
    differentiable. It returns tensors, or nested tuples of them, whose shapes are the same for every seed:
    `padded` makes them so. The `forward` of the module calls the functions that it is given.
    """

    @wraps(step)
    def run(module: nn.Module, *arguments: Any) -> Any:
        own = dict(module.named_parameters()) | dict(module.named_buffers())
        leaves, structure = tree_flatten((own, arguments))
        returned = _Returned()
        found = _EachSeed.apply(module, step, structure, returned, *leaves)
        return tree_unflatten(found, returned.structure)

    return run  # type: ignore[return-value]


def padded(rows: Tensor, count: int) -> Tensor:
    """Return `rows` with rows of zeros behind them, `count` in all."""
    return F.pad(rows, (0,) * (2 * rows.dim() - 1) + (count - len(rows),))


class _Returned:
    """What a step returned, without its tensors. Torch would copy a list."""

    structure: TreeSpec


class _EachSeed(Function):
    @staticmethod
    def forward(
        module: nn.Module,
        step: Callable[..., Any],
        structure: TreeSpec,
        returned: _Returned,
        *leaves: Any,
    ) -> tuple[Tensor, ...]:
        own, arguments = tree_unflatten(leaves, structure)
        found, returned.structure = tree_flatten(functional_call(module, own, (step, *arguments)))
        return tuple(found)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.mark_non_differentiable(*output)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, ...]:
        return (None,) * len(ctx.needs_input_grad)

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[Any, ...], *arguments: Any
    ) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        held: list[Tensor] = []
        for seed in range(info.batch_size):
            pairs = zip(arguments, in_dims, strict=True)
            own = [value if axis is None else value.select(axis, seed) for value, axis in pairs]
            found = _EachSeed.apply(*own)
            # Stacking at the end would hold every result twice.
            held = held or [part.new_empty(info.batch_size, *part.shape) for part in found]
            for place, part in zip(held, found, strict=True):
                place[seed] = part
        return tuple(held), (0,) * len(held)
