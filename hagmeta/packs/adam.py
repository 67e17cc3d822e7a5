"""Adam for packs whose members have different learning rates or weight decays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from hagmeta.packs.device import gpu_usable
from hagmeta.packs.optimizers import Adam, Uncompiled

if TYPE_CHECKING or gpu_usable():
    from hagmeta.packs import adam_kernels


class Trained(NamedTuple):
    """Parameters (..., pack, width) that are trained alike, with a learning rate and decay per member."""

    parameters: Sequence[Tensor]
    rate: np.ndarray  # (pack,)
    weight_decay: np.ndarray  # (pack,)

    def of(self, member: int) -> dict[str, float]:
        """Return learning rate and weight decay of a member, as torch names them."""
        return {"lr": float(self.rate[member]), "weight_decay": float(self.weight_decay[member])}


def make_adam(groups: Sequence[Trained]) -> torch.optim.Optimizer:
    """Return an optimizer of some groups of parameters. Adam is elementwise, so members stay independent."""
    on_gpu = any(value.is_cuda for group in groups for value in group.parameters)
    members = range(len(groups[0].rate))
    if all(group.of(member) == group.of(0) for group in groups for member in members):
        alike: list[dict[str, Any]] = [{"params": list(group.parameters), **group.of(0)} for group in groups]
        return Adam(alike, fused=True, capturable=on_gpu)
    return MixedAdamOnGpu(groups) if on_gpu else MixedAdam(groups)


class MixedAdam(Adam):
    """Adam on a CPU with a learning rate and a weight decay per member.

    The fused kernel has one rate for each group of tensors, and it needs contiguous ones. So a step copies
    parameters and gradients to arrays with the pack axis first. Each run of members with equal rates is a
    contiguous part of them, and a group of its own. It is the same kernel as for a pack with equal rates. So
    results are equal bit by bit on ARM. On x86 the last bits can differ, because parts end elsewhere.
    """

    def __init__(self, groups: Sequence[Trained]) -> None:
        runs = _runs(groups)
        self._copies: list[tuple[Tensor, Tensor, list[Tensor]]] = []  # original, copy, parts of the copy
        parts: list[dict[str, Any]] = [{"params": [], **group.of(a)} for group in groups for a, _ in runs]
        for number, group in enumerate(groups):
            for value in group.parameters:
                copied = torch.empty_like(
                    value.detach().movedim(-2, 0), memory_format=torch.contiguous_format
                )
                pieces = [copied[start:end] for start, end in runs]
                self._copies.append((value, copied, pieces))
                for place, piece in enumerate(pieces, start=number * len(runs)):
                    parts[place]["params"].append(piece)
        super().__init__(parts, fused=True)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Take one step of all members. Parameters without a gradient stay as they are."""
        assert closure is None
        for value, copied, pieces in self._copies:
            copied.copy_(value.movedim(-2, 0))
            if value.grad is None:
                gradients: Sequence[Tensor | None] = [None] * len(pieces)
            else:
                gradients = value.grad.movedim(-2, 0).contiguous().split([len(piece) for piece in pieces])
            for piece, gradient in zip(pieces, gradients, strict=True):
                piece.grad = gradient
        super().step()
        for value, copied, _ in self._copies:
            value.copy_(copied.movedim(0, -2))


def _runs(groups: Iterable[Trained]) -> list[tuple[int, int]]:
    """Return first and last plus one of each longest run of members with equal rates."""
    rates = np.stack([part for group in groups for part in (group.rate, group.weight_decay)])
    starts = np.flatnonzero(np.append(True, (rates[:, 1:] != rates[:, :-1]).any(0)))
    return list(zip(starts.tolist(), [*starts[1:].tolist(), rates.shape[1]], strict=True))


class MixedAdamOnGpu(Uncompiled):
    """Adam on a GPU with a learning rate and a weight decay per member, in one kernel per parameter."""

    def __init__(self, groups: Sequence[Trained]) -> None:
        parts = [{"params": list(group.parameters)} for group in groups]
        # `capturable` makes `load_state_dict` put the step counters on the GPU.
        super().__init__(parts, {"capturable": True})
        # Not in the parameter groups, because a restored state would replace them there.
        self._rates = {
            value: tuple(
                torch.tensor(rates, dtype=torch.float32, device=value.device)
                for rates in (group.rate, group.weight_decay)
            )
            for group in groups
            for value in group.parameters
        }

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Take one step of all members. Parameters without a gradient stay as they are."""
        assert closure is None
        learning = [value for value in self._rates if value.grad is not None]
        for value in learning:
            if not self.state[value]:
                self.state[value] = {
                    "step": torch.zeros((), device=value.device),
                    "exp_avg": torch.zeros_like(value),
                    "exp_avg_sq": torch.zeros_like(value),
                }
        torch._foreach_add_([self.state[value]["step"] for value in learning], 1)
        for value in learning:
            assert value.grad is not None
            state = (self.state[value][name] for name in ("step", "exp_avg", "exp_avg_sq"))
            adam_kernels.step(value, value.grad.contiguous(), *state, *self._rates[value])
