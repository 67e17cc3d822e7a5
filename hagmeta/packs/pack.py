"""A pack: the stacked parameters of several seeds, which run as one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from hagmeta.common.errors import UserError, choose
from hagmeta.packs.adam import Trained, make_adam

Made = TypeVar("Made")
Parameters = dict[str, Tensor]  # by name
Rates = float | np.ndarray  # of all members, or one per member (pack,)
Step = str | Callable[..., Any]  # the name of a step of a module, or a function of the module


class Pack:
    """Runs a module, written for one seed, for all seeds at once. Seeds never affect each other.

    The pack axis of a parameter is its second to last, next to the columns. The sparse products of ten seeds
    then become one product without a copy.
    """

    def __init__(self, modules: Sequence[nn.Module], device: torch.device) -> None:
        self.size, self.device = len(modules), device
        self.trained = set[str]()  # names of the parameters that had a gradient step
        self.template = modules[0]
        stacked, buffers = stack_module_state(list(modules))
        stored = self.template.state_dict()
        for name, buffer in buffers.items():
            if name in stored or buffer.dim() > 1:  # `hold` did not make it
                raise UserError(
                    f"{type(self.template).__name__} registers the buffer {name}; methods keep no "
                    "buffers. Use a parameter with requires_grad_(False), or a layer without running "
                    "statistics."
                )
        self._values = {name: buffer.to(device) for name, buffer in buffers.items()}  # (pack,) each
        self.parameters: Parameters = {
            name: _laid_out(value.detach().to(device)).requires_grad_(value.requires_grad)
            for name, value in stacked.items()
        }
        self._axes = {name: value.dim() - 2 for name, value in self.parameters.items()}

    def run(self, step: Step, shared: tuple[Any, ...], *seedwise: Any) -> Any:
        """Return ``module.step(*shared, *seedwise)`` for every seed.

        Args:
            step: The step to run.
            shared: Arguments that are the same for all seeds.
            *seedwise: Arguments with a leading pack axis, as the result has.
        """

        def one(parameters: Parameters, values: Parameters, *arguments: Any) -> Any:
            return functional_call(self.template, (parameters, values), (step, *shared, *arguments))

        in_dims = (self._axes, *[0] * (1 + len(seedwise)))
        return vmap(one, in_dims=in_dims)(self.parameters, self._values, *seedwise)

    def optimizer(
        self, rate: Rates, weight_decay: Rates, own: Mapping[str, tuple[Rates, Rates]] | None = None
    ) -> torch.optim.Optimizer:
        """Return an Adam optimizer for the pack.

        Args:
            rate: The learning rate, or one per member (pack,).
            weight_decay: The weight decay, or one per member (pack,).
            own: Separate learning rates and weight decays by prefix of parameter names.
        """
        learning = {name: value for name, value in self.parameters.items() if value.requires_grad}
        apart = [
            ([learning.pop(name) for name in tuple(learning) if name.startswith(prefix)], *rates)
            for prefix, rates in (own or {}).items()
        ]
        groups = [(list(learning.values()), rate, weight_decay), *apart]
        return make_adam(
            [
                Trained(values, *(np.broadcast_to(each, self.size) for each in rates))
                for values, *rates in groups
            ]
        )

    @torch.no_grad()
    def finite(self) -> np.ndarray:
        """Return whether all trained parameters of each seed are finite (pack,)."""
        trained = [self._leading(value) for value in self.parameters.values() if value.requires_grad]
        found = [value.isfinite().flatten(1).all(1) for value in trained]
        return torch.stack(found).all(0).cpu().numpy() if found else np.full(self.size, True)

    def gradients(self, losses: Tensor) -> Parameters:
        """Return the gradients of losses (pack,) by the trained parameters, with a leading pack axis."""
        learning = {name: value for name, value in self.parameters.items() if value.requires_grad}
        found = torch.autograd.grad(losses.sum(), list(learning.values()), materialize_grads=True)
        return {name: self._leading(slope) for name, slope in zip(learning, found, strict=True)}

    def _leading(self, value: Tensor) -> Tensor:
        return value.movedim(-2, 0)

    def snapshot(self) -> Parameters:
        """Return a copy of all parameters."""
        return {name: value.detach().clone() for name, value in self.parameters.items()}

    @torch.no_grad()
    def restore(self, state: Parameters) -> None:
        """Set all parameters to those of a snapshot."""
        for name, value in self.parameters.items():
            value.copy_(state[name])

    def keep(self, state: Parameters, chosen: np.ndarray) -> None:
        """Update the snapshot ``state`` in place for the ``chosen`` seeds, a mask (pack,)."""
        seeds = torch.from_numpy(chosen).unsqueeze(-1).to(self.device)
        for name, value in self.parameters.items():
            torch.where(seeds, value.detach(), state[name], out=state[name])

    @torch.no_grad()
    def assign(self, values: Parameters) -> None:
        """Replace some parameters. ``values`` have a leading pack axis, as ``run`` returns them."""
        for name, value in values.items():
            held = self.parameters[choose("parameter of a hook", name, self.parameters)]
            expected = held.movedim(-2, 0).shape
            if value.shape != expected:
                shapes = [tuple(shape[1:]) for shape in (value.shape, expected)]
                raise UserError(f"a hook returned {name} with shape {shapes[0]}; expected {shapes[1]}.")
            held.copy_(value.movedim(0, -2))

    def states(self) -> list[Parameters]:
        """Return the parameters of each seed."""
        return [
            {name: value.select(-2, index).detach().clone() for name, value in self.parameters.items()}
            for index in range(self.size)
        ]

    def load(self, states: Sequence[Parameters]) -> None:
        """Set some parameters to those of each seed. Rows of new classes, which they lack, stay the same."""
        now = self.states()
        for name in states[0] if states else ():
            for own, state in zip(now, states, strict=True):
                own[name][tuple(map(slice, state[name].shape))] = state[name].to(self.device)
            self.assign({name: torch.stack([own[name] for own in now])})


def _laid_out(stacked: Tensor) -> Tensor:
    """Move the pack axis next to the columns. In memory, compiled products need each seed by itself."""
    moved = stacked.movedim(0, -2)
    return moved if moved.device.type == "cpu" else moved.contiguous()


class EarlyStopping:
    """Keeps the best parameters of every seed. A stopped seed no longer changes its best."""

    def __init__(self, pack: Pack, patience: int) -> None:
        self._pack, self._patience = pack, patience
        self.best = np.full(pack.size, -np.inf)
        self._waited = np.zeros(pack.size, dtype=int)
        self._state = pack.snapshot()

    @property
    def active(self) -> np.ndarray:
        """Whether each seed is still training (pack,)."""
        return self._waited < self._patience

    @property
    def finished(self) -> bool:
        return not self.active.any()

    def update(self, score: np.ndarray) -> None:
        """Record one validation score per seed."""
        better = (score > self.best) & self.active
        self.best = np.where(better, score, self.best)
        self._waited = np.where(better, 0, self._waited + self.active)
        if better.any():
            self._pack.keep(self._state, better)

    def state(self) -> dict[str, Any]:
        return {"best": self.best, "waited": self._waited, "parameters": self._state}

    def load(self, state: dict[str, Any]) -> None:
        """Continue from ``state``."""
        self.best, self._waited = state["best"].numpy(), state["waited"].numpy()
        self._state = {name: state["parameters"][name].to(self._pack.device) for name in self._state}

    def restore_best(self) -> None:
        self._pack.restore(self._state)


def once_each(make: Callable[..., Made], *columns: Iterable[Any]) -> list[Made]:
    """Return ``make(*row)`` for each row of ``columns``, called once for rows of the same objects.

    Members of a pack with the same seed share their scenario, and therefore everything made from it.
    """
    rows = list(zip(*columns, strict=True))
    made = {tuple(map(id, row)): row for row in rows}
    results = {key: make(*row) for key, row in made.items()}
    return [results[tuple(map(id, row))] for row in rows]


def stack(arrays: Iterable[np.ndarray]) -> Tensor:
    """Stack one array per seed into a host tensor with a leading pack axis."""
    return torch.from_numpy(np.stack(list(arrays)))


def stack_padded(arrays: Sequence[np.ndarray], filling: int | None = None) -> Tensor:
    """Stack rows of different lengths. Pad short rows with their first element, or with ``filling``."""
    longest = max(len(array) for array in arrays)
    fillings = [a[0] if filling is None else filling for a in arrays]
    pairs = zip(arrays, fillings, strict=True)
    return stack(np.pad(a, (0, longest - len(a)), constant_values=value) for a, value in pairs)


Progress = Callable[[str, int, int, dict[str, float]], None]


def no_progress(phase: str, done: int, total: int, values: dict[str, float]) -> None:
    """Ignore progress."""
