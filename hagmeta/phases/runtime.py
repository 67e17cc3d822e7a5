"""How a pack runs: on which device, captured or not, and with which steps it learns."""

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
    """Makes what runs the modules of a pack."""

    device: torch.device
    settings: PhaseSettings
    eager: bool = False  # on a GPU, nothing is captured
    plain: bool = False  # one seed, its module called as any other, so that it can be stepped through

    def pack(self, modules: Sequence[nn.Module]) -> Pack:
        """Return what runs ``modules``, one per seed."""
        return (PlainPack if self.plain else Pack)(modules, self.device)

    def capture(self) -> Capture:
        """Return what runs the computations of a phase."""
        return Capture(self.device, eager=self.eager or self.plain)

    def steps(self, pack: Pack, rate: float, capture: Capture) -> Steps:
        """Return the steps that a pack of the method learns by, at the common ``rate``."""
        method, decay = METHODS[self.settings.method], self.settings.weight_decay
        if not issubclass(method, HasOwnSteps):
            return Steps(pack, rate, decay, capture)
        own = self._own_steps(method, rate)
        return Steps(pack, rate, decay, capture, method.sums_gradients(self.settings), own)

    def _own_steps(self, method: type[HasOwnSteps], rate: float) -> dict[str, tuple[float, float]]:
        """Rate and weight decay of parameters with their own, where the common rate is ``rate``."""
        settings = self.settings
        return {
            prefix: (
                rate if own.rate is None else rate * own.rate / settings.learning_rate,
                settings.weight_decay if own.weight_decay is None else own.weight_decay,
            )
            for prefix, own in method.own_steps(settings).items()
        }

    def ahead(self, items: Iterable[Item]) -> Iterator[Item]:
        """Return the same items, drawn before they are needed where that saves time."""
        return iter(items) if self.plain else ahead(items, self.device)
