from __future__ import annotations

import inspect
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import grad, vmap

import hagmeta.engine.run  # noqa: F401  imports all functions
from hagmeta.packs.function import Function, SeedBatched


def below(kind: type) -> Iterator[type]:
    for each in kind.__subclasses__():
        yield each
        yield from below(each)


def test_no_function_of_ours_has_its_signature_read_at_every_call() -> None:
    ours = [each for each in below(torch.autograd.Function) if each.__module__.startswith("hagmeta.")]
    assert len(ours) > 15 and all(issubclass(each, Function) for each in ours)
    for each in set(ours) - {Function}:
        assert inspect.signature(each.forward) is inspect.signature(each.forward)  # type: ignore[attr-defined]


class Weighted(SeedBatched):
    """Multiplies values (rows, width) by weights (rows,) and by a factor, or None."""

    ranks = (1, 2, 0)

    @staticmethod
    def forward(layout: Any, weights: Tensor, values: Tensor, factor: Tensor | None) -> Tensor:
        assert values.shape[layout.seed_axis] == len(weights) == layout.pack
        weights = weights.movedim(0, layout.seed_axis).unsqueeze(-1)
        return (
            values * weights * (1 if factor is None else factor.view(-1, 1, 1).movedim(0, layout.seed_axis))
        )

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.layout = inputs[0]
        ctx.save_for_backward(inputs[1], inputs[3])

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[None, None, Tensor, None]:
        weights, factor = ctx.saved_tensors
        return None, None, Weighted.apply(ctx.layout, weights, slope, factor), None


@pytest.mark.parametrize("axis", [0, 1])
def test_one_rule_moves_seeds_of_values_and_gradients(axis: int) -> None:
    layout = SimpleNamespace(seed_axis=axis, pack=3)
    weights, values, factor = torch.randn(3, 4), torch.randn(4, 3, 2), torch.randn(3)
    expected = weights.unsqueeze(-1) * values.movedim(1, 0)
    axes = (0, 1, 0)

    def product(weights: Tensor, values: Tensor, factor: Tensor | None = None) -> Tensor:
        result: Tensor = Weighted.apply(layout, weights, values, factor)
        return result

    def energy(weights: Tensor, values: Tensor, factor: Tensor) -> Tensor:
        return product(weights, values, factor).square().sum() / 2

    torch.testing.assert_close(vmap(product, in_dims=axes[:2])(weights, values), expected)
    scaled = factor.view(3, 1, 1)
    torch.testing.assert_close(vmap(product, in_dims=axes)(weights, values, factor), scaled * expected)
    same = vmap(product, in_dims=(0, 1, None))(weights, values, factor[0])
    torch.testing.assert_close(same, factor[0] * expected)
    slopes = scaled.square() * weights.unsqueeze(-1) * expected
    inside = vmap(grad(energy, argnums=1), in_dims=axes)(weights, values, factor)
    torch.testing.assert_close(inside, slopes)
    variable = values.clone().requires_grad_()
    vmap(energy, in_dims=axes)(weights, variable, factor).sum().backward()
    torch.testing.assert_close(variable.grad, slopes.movedim(0, 1))


@pytest.mark.parametrize("axis", [0, 1])
def test_one_seed_alone_is_a_pack_of_one(axis: int) -> None:
    layout = SimpleNamespace(seed_axis=axis, pack=1)
    weights, values = torch.randn(4), torch.randn(4, 2, requires_grad=True)
    product = Weighted.apply(layout, weights, values, torch.tensor(2.0))
    torch.testing.assert_close(product, 2 * weights.unsqueeze(-1) * values)
    product.sum().backward()
    torch.testing.assert_close(values.grad, 2 * weights.unsqueeze(-1).expand(4, 2))
