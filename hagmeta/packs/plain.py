"""The pack of plain mode: one seed, whose module is called directly, so that you can step through it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from hagmeta.packs.pack import Pack, Parameters, Step


class PlainPack(Pack):
    """A pack of one seed without ``vmap``. Its parameters are those of the module, without a pack axis.

    Arguments and results of ``run`` and ``assign`` still have a leading pack axis of size one. Callers need
    not distinguish the two kinds of packs.
    """

    def __init__(self, modules: Sequence[nn.Module], device: torch.device) -> None:
        if len(modules) != 1:
            raise ValueError(f"plain mode runs one seed at a time, not {len(modules)}")
        self.size, self.device, self.trained = 1, device, set()
        self.template = modules[0].to(device)
        self.parameters: Parameters = dict(self.template.named_parameters())

    def run(self, step: Step, shared: tuple[Any, ...], *seedwise: Any) -> Any:
        arguments = tree_map(_alone, seedwise)
        return tree_map(_packed, self.template(step, *shared, *arguments))

    def keep(self, state: Parameters, chosen: np.ndarray) -> None:
        if chosen.item():
            state.update(self.snapshot())

    @torch.no_grad()
    def assign(self, values: Parameters) -> None:
        for name, value in values.items():
            self.parameters[name].copy_(_alone(value))

    def _leading(self, value: Tensor) -> Tensor:
        return _packed(value)

    def states(self) -> list[Parameters]:
        return [self.snapshot()]


def _alone(value: Tensor) -> Tensor:
    """Remove the pack axis, which must have size one."""
    (alone,) = value.unbind()
    return alone


def _packed(value: Tensor) -> Tensor:
    return value.unsqueeze(0)
