from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.func import vmap

from hagmeta.packs.randomness import dropout, dropout_scale, fold, keys, relu_dropout, seeded, stream, uniform

CPU = torch.device("cpu")
RATE = 0.3
THRESHOLD = 77  # of 256, which RATE is rounded to
SCALE = 256 / (256 - THRESHOLD)


def key_of(seed: int) -> Tensor:
    return keys([seed], "test")[0]


def test_a_stream_depends_on_seed_and_purpose_alone() -> None:
    names = [(seed, purpose) for seed in (0, 1, 2**40) for purpose in ("split", "stream", "episodes")]
    first = {name: tuple(stream(*name).integers(2**62, size=4)) for name in names}
    assert {name: tuple(stream(*name).integers(2**62, size=4)) for name in reversed(names)} == first
    assert len(set(first.values())) == len(names)


def test_keys_of_a_pack_are_those_of_its_seeds() -> None:
    together = keys([4, 0, 9], "dropout")
    assert together.tolist() == [keys([seed], "dropout").item() for seed in (4, 0, 9)]
    assert len({*together.tolist(), *keys([4, 0, 9], "other").tolist()}) == 6


def test_seeded_draws_the_same_parameters_and_leaves_torch_s_generator_alone() -> None:
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    one, same, other, elsewhere = (
        seeded(seed, purpose, lambda: nn.Linear(4, 4)).weight
        for seed, purpose in ((1, "a"), (1, "a"), (2, "a"), (1, "b"))
    )
    assert torch.equal(torch.rand(3), expected)
    assert torch.equal(one, same)
    assert not torch.equal(one, other) and not torch.equal(one, elsewhere)


def test_dropout_keeps_its_share_and_scales_it() -> None:
    values = torch.ones(20_000, 50)
    dropped = dropout(values, RATE, key_of(0))
    assert set(dropped.unique().tolist()) == {0.0, torch.tensor(SCALE).item()}
    share = (dropped > 0).double().mean().item()
    # Five standard deviations of the share of a million independent draws: less than one 256th.
    assert share == pytest.approx(1 / SCALE, abs=5 * np.sqrt(RATE * (1 - RATE) / values.numel()))


@pytest.mark.parametrize("width", [1, 5, 8, 19])  # eight draws come from one word
@pytest.mark.parametrize("axis", [0, 1])
def test_a_seed_s_mask_is_the_same_alone_and_anywhere_in_a_pack(width: int, axis: int) -> None:
    values = torch.randn(40, width, generator=torch.Generator().manual_seed(0))
    alone = dropout(values, RATE, key_of(3))
    for pack in ([3], [3, 1], [0, 3], [5, 2, 3, 9]):
        together = vmap(lambda v, k: dropout(v, RATE, k), in_dims=(axis, 0))(
            torch.stack([values] * len(pack), dim=axis), keys(pack, "test")
        )
        assert torch.equal(together[pack.index(3)], alone)


def test_the_gradient_of_dropout_is_its_mask() -> None:
    values = torch.randn(40, 11, generator=torch.Generator().manual_seed(0)).requires_grad_()
    (gradient,) = torch.autograd.grad(dropout(values, RATE, key_of(0)).sum(), values)
    assert torch.equal(gradient, dropout(torch.ones_like(values), RATE, key_of(0)))


def derivatives(function: Callable[[Tensor, Tensor], Tensor], values: Tensor, bias: Tensor) -> list[Tensor]:
    """Value, gradients of the sum of its cubes, and second derivatives along those gradients."""
    inputs = [values.clone().requires_grad_(), bias.clone().requires_grad_()]
    result = function(*inputs)
    gradients = torch.autograd.grad((result**3).sum(), inputs, create_graph=True)
    seconds = torch.autograd.grad(sum(g.square().sum() for g in gradients), inputs)
    return [result, *gradients, *seconds]


@pytest.mark.parametrize("key", [None, key_of(0)])
def test_relu_dropout_is_dropout_of_relu_with_all_its_derivatives(key: Tensor | None) -> None:
    generator = torch.Generator().manual_seed(0)
    values, bias = torch.randn(50, 13, generator=generator), torch.randn(13, generator=generator)
    mask, scale = dropout(torch.ones_like(values), RATE, key), dropout_scale(RATE, key)
    ours = derivatives(lambda v, b: relu_dropout(v * scale, b * scale, RATE, key), values, bias)
    plain = derivatives(lambda v, b: torch.relu(v + b) * mask, values, bias)
    for one, other in zip(ours, plain, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-2)


def test_uniform_numbers_fill_the_unit_interval_and_do_not_depend_on_the_pack() -> None:
    pack = keys([4, 0], "test")
    both = vmap(lambda key: uniform(key, 20000))(pack)
    assert torch.equal(both[1], uniform(pack[1], 20000))
    for numbers in both.numpy():
        share = np.histogram(numbers, bins=10, range=(0, 1))[0] / len(numbers)
        np.testing.assert_allclose(share, 0.1, atol=0.01)
    assert abs(np.corrcoef(both)[0, 1]) < 0.03


def test_folded_keys_draw_unrelated_masks() -> None:
    key, shape = key_of(0), (500, 40)
    masks = [dropout(torch.ones(shape), 0.5, fold(key, use)) > 0 for use in range(12)]
    masks.append(dropout(torch.ones(shape), 0.5, key) > 0)
    masks.append(dropout(torch.ones(shape), 0.5, key_of(1)) > 0)
    for number, one in enumerate(masks):
        for other in masks[:number]:
            # Two fair coins agree half of the time; five standard deviations of 20,000 tosses.
            agreement = (one == other).double().mean().item()
            assert agreement == pytest.approx(0.5, abs=5 * 0.5 / np.sqrt(one.numel()))


def test_uses_of_a_step_s_key_are_keys_of_their_own() -> None:
    key = keys([0], "dropout/gpil")[0]
    used = [fold(fold(key, step), use).item() for step in range(100) for use in range(3)]
    assert len(set(used)) == len(used)
