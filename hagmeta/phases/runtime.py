"""How a pack runs: its device, CUDA graphs, and optimizer steps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import nn

from hagmeta.methods import METHODS
from hagmeta.methods.parts import HasOwnSteps
from hagmeta.packs.capture import Capture, Steps, ahead
from hagmeta.packs.pack import Pack
from hagmeta.packs.plain import PlainPack
from hagmeta.phases.settings import PhaseSettings

Item = TypeVar("Item")


@dataclass(frozen=True)
class Runtime:
    """Creates the objects that run the modules of a pack."""

    device: torch.device
    settings: PhaseSettings
    eager: bool = False  # do not use CUDA graphs
    plain: bool = False  # one seed, without vmap, so that a debugger can step through it

    def pack(self, modules: Sequence[nn.Module]) -> Pack:
        """Return a pack that runs `modules`, one per seed."""
        return (PlainPack if self.plain else Pack)(modules, self.device)

    def capture(self) -> Capture:
        """Return an object that captures and replays the computations of a phase, if possible."""
        return Capture(self.device, eager=self.eager or self.plain)

    def steps(self, pack: Pack, rate: float, capture: Capture) -> Steps:
        """Return the optimizer steps of a pack, with the common learning rate `rate`."""
        method, decay = METHODS[self.settings.method], self.settings.weight_decay
        if not issubclass(method, HasOwnSteps):
            return Steps(pack, rate, decay, capture)
        own = self._own_steps(method, rate)
        return Steps(pack, rate, decay, capture, method.sums_gradients(self.settings), own)

    def _own_steps(self, method: type[HasOwnSteps], rate: float) -> dict[str, tuple[float, float]]:
        """Return learning rate and weight decay by prefix, for parameters that do not use the common ones."""
        settings = self.settings
        return {
            prefix: (
                rate if own.rate is None else rate * own.rate / settings.learning_rate,
                settings.weight_decay if own.weight_decay is None else own.weight_decay,
            )
            for prefix, own in method.own_steps(settings).items()
        }

    def ahead(self, items: Iterable[Item]) -> Iterator[Item]:
        """Yield `items`, drawn in advance if that saves time."""
        return iter(items) if self.plain else ahead(items, self.device)
