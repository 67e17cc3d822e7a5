"""Find configurations that differ from a centre in one setting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.data.labels import SWITCHES
from analysis.data.results import Panel
from analysis.designs.factorials import Factorial


@dataclass(frozen=True)
class Star:
    """A configuration, and for each setting the configurations that differ only in that setting."""

    centre: str  # configuration hashes
    arms: dict[str, list[str]]

    @property
    def neighbours(self) -> int:
        return sum(map(len, self.arms.values()))


def star_of_most_arms(panel: Panel, found: Sequence[Factorial]) -> Star:
    """Return the star around the configuration with most neighbours; `found` are the panel's factorials."""
    stars = _Stars(panel, found)
    return stars.around(int(np.argmax([stars.neighbours(centre).sum() for centre in range(stars.count)])))


def one_at_a_time(panel: Panel, found: Sequence[Factorial]) -> dict[str, list[str]]:
    """Return labels by the single setting (not the method) in which each differs from the reference.

    `found` are the panel's factorials, whose tables already show the switches.
    """
    labels = panel.runs.drop_duplicates("config_hash").set_index("config_hash")["label"]
    centre = list(labels).index(panel.reference)
    return {key: list(labels[arm]) for key, arm in _Stars(panel, found).around(centre).arms.items()}


class _Stars:
    """The configurations of a panel by number; each can be the centre of a star."""

    def __init__(self, panel: Panel, found: Sequence[Factorial]) -> None:
        configs = panel.runs.drop_duplicates("config_hash")
        self.count = len(configs)
        self._hashes = configs["config_hash"].to_numpy()
        self._keys = ["method", *(key for key in panel.varied() if key != "method")]
        # (keys, configurations): equal numbers mean equal settings; absent settings are equal
        self._values = np.stack([pd.factorize(configs[key].map(str))[0] for key in self._keys])
        elsewhere = {"method", *(SWITCHES if found else ()), *(key for each in found for key in each.factors)}
        self._arms = np.array([key not in elsewhere for key in self._keys])

    def around(self, centre: int) -> Star:
        """Return the star of one configuration; it may have no arms."""
        near, apart = self.neighbours(centre), self._apart(centre)
        arms = {
            key: list(self._hashes[near & differs]) for key, differs in zip(self._keys, apart, strict=True)
        }
        return Star(str(self._hashes[centre]), {key: arm for key, arm in arms.items() if arm})

    def neighbours(self, centre: int) -> np.ndarray:
        """Return (configurations,): whether each differs in exactly one setting, and that one is an arm."""
        apart = self._apart(centre)
        return (apart.sum(axis=0) == 1) & apart[self._arms].any(axis=0)

    def _apart(self, centre: int) -> np.ndarray:
        return self._values != self._values[:, [centre]]  # (keys, configurations)
