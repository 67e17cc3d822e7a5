"""Run a step for one seed of a pack after the other, where the arrays of all seeds would be too large."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.func import functional_call
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from hagmeta.packs.function import Function


def one_by_one(module: nn.Module, step: str, shared: Any, *seedwise: Any) -> tuple[Tensor, ...]:
    """Return ``module.step(shared, *seedwise)``; inside `vmap`, compute it for one seed after the other.

    Inside the step there is no `vmap`, so shapes may depend on values, and operations may be in place.

    Args:
        module: The module, whose `forward` calls the step.
        step: The name of the step. It returns a tuple of tensors, whose shapes are the same for every seed.
            It is not differentiable.
        shared: An argument that is the same for all seeds.
        *seedwise: Tensors, or nested tuples of tensors.
    """
    own = dict(module.named_parameters()) | dict(module.named_buffers())
    leaves, structure = tree_flatten((own, seedwise))
    result: tuple[Tensor, ...] = _OneByOne.apply(module, step, shared, structure, *leaves)
    return result


class _OneByOne(Function):
    @staticmethod
    def forward(
        module: nn.Module, step: str, shared: Any, structure: TreeSpec, *leaves: Any
    ) -> tuple[Tensor, ...]:
        own, seedwise = tree_unflatten(leaves, structure)
        return tuple(functional_call(module, own, (step, shared, *seedwise)))

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
            found = _OneByOne.apply(*own)
            # Stacking at the end would hold every result twice.
            held = held or [part.new_empty(info.batch_size, *part.shape) for part in found]
            for place, part in zip(held, found, strict=True):
                place[seed] = part
        return tuple(held), (0,) * len(held)
