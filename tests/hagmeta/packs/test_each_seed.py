"""Steps that run for one seed of a pack after the other."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from hagmeta.packs.each_seed import each_seed, padded
from hagmeta.packs.pack import Pack
from hagmeta.packs.plain import PlainPack


class Module(nn.Module):
    def __init__(self, seed: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((3, 2), float(seed)))

    def outer(self, factor: float, values: Tensor) -> tuple[Tensor, ...]:
        sums, (counts, rows) = self.inner(factor, (values, None), 2 * values[:, 0])
        return sums, counts, rows

    @each_seed
    def inner(
        self, factor: float, values: tuple[Tensor, None], first: Tensor
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        rows = first.nonzero().squeeze(-1)  # its length depends on the seed, which `vmap` does not allow
        sums = factor * values[0][rows].sum(0) @ self.weight
        return sums, (torch.tensor(float(len(rows))), padded(1 + rows, len(first)))

    def forward(self, step: Any, *arguments: Any) -> Any:
        return step(self, *arguments) if callable(step) else getattr(self, step)(*arguments)


def test_a_step_sees_one_seed_with_its_own_parameters() -> None:
    values = torch.tensor([[[1.0, 2, 3], [0, 5, 6]], [[1, 1, 1], [2, 2, 2]]])
    sums, counts, rows = Pack([Module(1), Module(10)], torch.device("cpu")).run("outer", (0.5,), values)
    assert sums.tolist() == [[3, 3], [45, 45]]
    assert counts.tolist() == [1, 2]
    assert rows.tolist() == [[1, 0], [1, 2]]
    assert not sums.requires_grad
    alone, _, _ = PlainPack([Module(10)], torch.device("cpu")).run("outer", (0.5,), values[1:])
    assert alone.tolist() == [[45, 45]]
