"""A pack: the parameters of several seeds, stacked, and run as one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

Parameters = dict[str, Tensor]  # by name
Step = str | Callable[..., Any]  # of a module: the name of one of its steps, or a function of the module


class Pack:
    """Runs a module that is written for one seed for all of them; seeds never touch each other.

    The pack axis of a parameter is its second to last, beside the columns: that is how ten seeds'
    products with a sparse matrix are one product, without a copy.
    """

    def __init__(self, modules: Sequence[nn.Module], device: torch.device) -> None:
        self.size, self.device = len(modules), device
        self.template = modules[0]
        stacked, buffers = stack_module_state(list(modules))
        assert not buffers, "methods keep no buffers"
        self.parameters: Parameters = {
            name: value.detach().to(device).movedim(0, -2).contiguous().requires_grad_(value.requires_grad)
            for name, value in stacked.items()
        }
        self._axes = {name: value.dim() - 2 for name, value in self.parameters.items()}

    def run(self, step: Step, shared: tuple[Any, ...], *seedwise: Any) -> Any:
        """``module.step(*shared, *seedwise)``, with a leading pack axis on ``seedwise`` and the result."""

        def one(parameters: Parameters, *arguments: Any) -> Any:
            return functional_call(self.template, parameters, (step, *shared, *arguments))

        return vmap(one, in_dims=(self._axes, *[0] * len(seedwise)))(self.parameters, *seedwise)

    def optimizer(
        self, rate: float, weight_decay: float, own: Mapping[str, tuple[float, float]] | None = None
    ) -> torch.optim.Optimizer:
        """Adam is elementwise: one optimizer serves the pack, each seed as if it were alone.

        ``own`` has the rate and weight decay of parameters whose names begin so.
        """
        learning = {name: value for name, value in self.parameters.items() if value.requires_grad}
        on_gpu = all(value.is_cuda for value in learning.values())
        apart: list[dict[str, Any]] = [
            {
                "params": [learning.pop(name) for name in tuple(learning) if name.startswith(prefix)],
                "lr": own_rate,
                "weight_decay": own_decay,
            }
            for prefix, (own_rate, own_decay) in (own or {}).items()
        ]
        return torch.optim.Adam(
            [{"params": list(learning.values())}, *apart],
            lr=rate,
            weight_decay=weight_decay,
            fused=True,
            capturable=on_gpu,
        )

    def snapshot(self) -> Parameters:
        return {name: value.detach().clone() for name, value in self.parameters.items()}

    @torch.no_grad()
    def restore(self, state: Parameters) -> None:
        for name, value in self.parameters.items():
            value.copy_(state[name])

    def keep(self, state: Parameters, chosen: np.ndarray) -> None:
        """Bring an older snapshot up to date, for those of the seeds that are chosen (pack,)."""
        seeds = torch.from_numpy(chosen).unsqueeze(-1).to(self.device)
        for name, value in self.parameters.items():
            torch.where(seeds, value.detach(), state[name], out=state[name])

    @torch.no_grad()
    def assign(self, values: Parameters) -> None:
        """Replace some parameters, given with a leading pack axis, as ``run`` returns them."""
        for name, value in values.items():
            self.parameters[name].copy_(value.movedim(0, -2))

    def states(self) -> list[Parameters]:
        """Each seed's own parameters."""
        return [
            {name: value.select(-2, index).detach().clone() for name, value in self.parameters.items()}
            for index in range(self.size)
        ]


class EarlyStopping:
    """Keeps every seed's best parameters; a seed that has stopped no longer changes its best."""

    def __init__(self, pack: Pack, patience: int) -> None:
        self._pack, self._patience = pack, patience
        self.best = np.full(pack.size, -np.inf)
        self._waited = np.zeros(pack.size, dtype=int)
        self._state = pack.snapshot()

    @property
    def finished(self) -> bool:
        return bool((self._waited >= self._patience).all())

    def update(self, score: np.ndarray) -> None:
        """Take in one validation score a seed."""
        better = (score > self.best) & (self._waited < self._patience)
        self.best = np.where(better, score, self.best)
        self._waited = np.where(better, 0, self._waited + (self._waited < self._patience))
        if better.any():
            self._pack.keep(self._state, better)

    def state(self) -> dict[str, Any]:
        return {"best": self.best, "waited": self._waited, "parameters": self._state}

    def load(self, state: dict[str, Any]) -> None:
        """Go on from such a state."""
        self.best, self._waited = state["best"].numpy(), state["waited"].numpy()
        self._state = {name: state["parameters"][name].to(self._pack.device) for name in self._state}

    def restore_best(self) -> None:
        self._pack.restore(self._state)


def stack(arrays: Iterable[np.ndarray]) -> Tensor:
    """One array a seed to one tensor with a leading pack axis, on the host."""
    return torch.from_numpy(np.stack(list(arrays)))


def stack_padded(arrays: Sequence[np.ndarray], filling: int | None = None) -> Tensor:
    """As ``stack``, for rows of unequal length; the shorter end in their first element, or in ``filling``."""
    longest = max(len(array) for array in arrays)
    fillings = [a[0] if filling is None else filling for a in arrays]
    pairs = zip(arrays, fillings, strict=True)
    return stack(np.pad(a, (0, longest - len(a)), constant_values=value) for a, value in pairs)


Progress = Callable[[str, int, int, dict[str, float]], None]


def no_progress(phase: str, done: int, total: int, values: dict[str, float]) -> None:
    """For callers that watch nothing."""
