"""How a pack runs: its device, CUDA graphs, and optimizer steps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from torch import nn

from hagmeta.config.settings import PhaseSettings
from hagmeta.engine.options import RunOptions
from hagmeta.methods import METHODS
from hagmeta.methods.base import OwnSteps
from hagmeta.packs.capture import Capture, Steps, ahead
from hagmeta.packs.pack import Pack, Rates
from hagmeta.packs.plain import PlainPack

Item = TypeVar("Item")


@dataclass(frozen=True)
class Runtime:
    """Creates the objects that run the modules of a pack."""

    options: RunOptions
    settings: PhaseSettings
    members: Sequence[PhaseSettings] = ()  # the settings of each member, if they differ

    @property
    def device(self) -> torch.device:
        return self.options.device

    @property
    def plain(self) -> bool:
        return self.options.mode == "plain"

    def values(self, name: str) -> np.ndarray:
        """Return a setting of each member (pack,), or (1,) if all members have the same settings."""
        return np.array([getattr(member, name) for member in self.members or [self.settings]])

    def pack(self, modules: Sequence[nn.Module]) -> Pack:
        """Return a pack that runs `modules`, one per seed."""
        return (PlainPack if self.plain else Pack)(modules, self.device)

    def capture(self) -> Capture:
        """Return an object that captures and replays the computations of a phase, if possible."""
        return Capture(self.device, eager=self.options.mode != "captured")

    def steps(self, pack: Pack, rate: Rates, capture: Capture) -> Steps:
        """Return the optimizer steps of a pack, with the common learning rate `rate`, or one per member."""
        method, decay = METHODS[self.settings.method], self.values("weight_decay")
        summed, own = method.sums_gradients(self.settings), self._own_steps(rate)
        return Steps(pack, rate, decay, capture, summed, own)

    def _own_steps(self, rate: Rates) -> dict[str, tuple[Rates, Rates]]:
        """Return learning rates and weight decays by prefix, for parameters that do not use the common."""
        members = self.members or [self.settings]
        owned = [METHODS[self.settings.method].own_steps(member) for member in members]
        found: dict[str, tuple[Rates, Rates]] = {}
        for prefix in dict.fromkeys(prefix for own in owned for prefix in own):
            own_rates, decays = [], []
            for member, own, common in zip(members, owned, np.broadcast_to(rate, len(members)), strict=True):
                of_member = own.get(prefix, OwnSteps(None, None))
                own_rate, decay = of_member.rate, of_member.weight_decay
                own_rates.append(common if own_rate is None else common * own_rate / member.learning_rate)
                decays.append(member.weight_decay if decay is None else decay)
            found[prefix] = np.array(own_rates), np.array(decays)
        return found

    def ahead(self, items: Iterable[Item]) -> Iterator[Item]:
        """Yield `items`, drawn in advance if that saves time."""
        return iter(items) if self.plain else ahead(items, self.device)
