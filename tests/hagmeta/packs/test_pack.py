"""A run's numbers depend on its configuration and seed, not on when or beside whom it ran."""

from __future__ import annotations

import platform
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from hagmeta.common.errors import UserError
from hagmeta.config.run_config import RunConfig, resolve
from hagmeta.datasets import UNLABELLED
from hagmeta.datasets.base import Dataset
from hagmeta.packs.pack import Pack
from hagmeta.packs.values import hold, like
from hagmeta.scenarios.splits import make_split
from hagmeta.testing import results

Small = Tiny = Callable[..., RunConfig]
DEVICES = [
    torch.device("cpu"),
    pytest.param(
        torch.device("cuda"),
        marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    ),
]


@pytest.mark.parametrize("method", ["hag-meta", "er-gnn"])
def test_a_run_under_released_is_the_same_alone_and_in_a_pack(
    tiny_graph: Dataset, tiny: Tiny, method: str
) -> None:
    config = tiny(method=method, protocol="released", pretrain_epochs=3, episodes=2)
    assert results(config, [7, 1, 3, 0], tiny_graph)[3] == results(config, [3], tiny_graph)[3]


def test_a_run_is_the_same_in_a_pack_of_ten(tiny_graph: Dataset, tiny: Tiny) -> None:
    config = tiny(pretrain_epochs=3, episodes=4, validate_every=2)
    pack = [9, 8, 7, 6, 5, 4, 3, 2, 1, 0]
    assert results(config, pack, tiny_graph)[3] == results(config, [3], tiny_graph)[3]


def test_seeds_of_a_pack_may_have_other_base_classes(tiny_graph: Dataset, tiny: Tiny) -> None:
    # Of classes that are equally large each seed takes its own.
    labels = np.arange(tiny_graph.num_nodes) % tiny_graph.num_classes
    labels[-1] = UNLABELLED  # their number is prime
    tied = replace(tiny_graph, labels=labels)
    config = tiny(method="sgc-lda", episodes=2)
    bases = [set(make_split(tied, resolve(config), seed).base) for seed in (0, 3)]
    assert bases[0] != bases[1]
    assert results(config, [0, 3], tied)[3] == results(config, [3], tied)[3]


def test_seeds_stop_early_one_by_one(tiny_graph: Dataset, tiny: Tiny) -> None:
    # A seed that stops keeps its best while the pack goes on for the others.
    config = tiny(pretrain_epochs=10, episodes=30, validate_every=2, patience=2)
    pack = results(config, [0, 1, 2], tiny_graph)
    assert all(results(config, [seed], tiny_graph)[seed] == pack[seed] for seed in (0, 2))


def test_learning_beats_chance(dataset: Dataset, small: Small) -> None:
    records = results(small(episodes=20, pretrain_epochs=40, validate_every=20), [0, 1], dataset)
    for record in records.values():
        assert record["accuracy"][0] > 3 / 9
        assert record["accuracy"][-1] > 3 / 13


def test_a_method_with_buffers_is_refused() -> None:
    with pytest.raises(
        UserError, match=r"BatchNorm1d registers the buffer running_mean; methods keep no buffers"
    ):
        Pack([torch.nn.BatchNorm1d(2)], torch.device("cpu"))


class Mixing(torch.nn.Module):
    """Uses a number in every way in which methods do."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(5, 3, generator=torch.Generator().manual_seed(0)))
        hold(self, {"share": share})

    def forward(self, share: float | None, rows: Tensor) -> Tensor:
        by: Any = self.share if share is None else share
        mixed = (1 - by) * (rows @ self.weight) + by * rows[:, :3].div(by)
        return like(by**2, mixed) * mixed.mean() + mixed.abs() ** (torch.zeros_like(mixed) + by)


def test_what_a_hook_returns_must_fit_a_parameter() -> None:
    pack = Pack([nn.Linear(3, 2), nn.Linear(3, 2)], torch.device("cpu"))
    with pytest.raises(UserError, match=r"unknown parameter of a hook 'wieght'. Did you mean"):
        pack.assign({"wieght": torch.zeros(2, 2, 3)})
    with pytest.raises(UserError, match=r"a hook returned weight with shape \(3, 2\); expected \(2, 3\)"):
        pack.assign({"weight": torch.zeros(2, 3, 2)})


def test_a_number_of_each_member_is_rounded_as_a_float_is() -> None:
    shares, rows = (0.1, 0.7, 1 / 3), torch.randn(3, 40, 5, generator=torch.Generator().manual_seed(1))
    together = Pack([Mixing(share) for share in shares], torch.device("cpu")).run(None, (), rows)  # type: ignore[arg-type]
    for share, alone, found in zip(shares, rows, together, strict=True):
        assert found.dtype == torch.float32 and torch.equal(found, Mixing(0.5)(share, alone))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("own", [{}, {"other": (np.array([0.1, 0.3, 0.1]), 0.0)}])
def test_members_with_other_rates_learn_as_packs_of_one_rate_do(
    own: dict[str, Any], device: torch.device
) -> None:
    rates, decays = np.array([0.1, 0.1, 0.02]), np.array([0.0, 0.5, 0.5])

    def learnt(rate: Any, decay: Any, own: dict[str, Any]) -> dict[str, Tensor]:
        modules = []
        for seed in range(3):
            torch.manual_seed(seed)
            modules.append(
                torch.nn.ModuleDict({"one": torch.nn.Linear(4, 8), "other": torch.nn.Linear(8, 4)})
            )
        pack = Pack(modules, device)
        optimizer = pack.optimizer(rate, decay, own)
        for step in range(3):
            for name, value in pack.parameters.items():
                # A parameter without a gradient stays as it is, and its steps are not counted.
                value.grad = None if name == "one.bias" and step == 1 else (value + step).detach().sin()
            optimizer.step()
            if step == 1:
                state = optimizer.state_dict()
                optimizer = pack.optimizer(rate, decay, own)
                optimizer.load_state_dict(state)
        return pack.parameters

    mixed = learnt(rates, decays, own)
    # On x86, the last elements of an array may be rounded differently: they are not vectorised.
    exact = device.type == "cpu" and platform.machine() != "x86_64"
    tolerance = 0.0 if exact else 1e-6 if device.type == "cpu" else 1e-5
    for member in range(3):
        alone = {prefix: tuple(np.broadcast_to(r, 3)[member] for r in of) for prefix, of in own.items()}
        expected = learnt(rates[member], decays[member], alone)
        for name, value in mixed.items():
            pair = value.select(-2, member), expected[name].select(-2, member)
            torch.testing.assert_close(*pair, rtol=tolerance, atol=tolerance, msg=f"{name} of {member}")
