"""What is left to run: all runs of a space less those in the store, in packs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from hagmeta.common.records import RunKey
from hagmeta.config import RunConfig

LAST = -1  # the last session, of a configuration with any number of them


@dataclass(frozen=True)
class Trial:
    """One configuration, resolved, for a pack of seeds."""

    config: RunConfig
    seeds: tuple[int, ...]

    @property
    def name(self) -> str:
        return f"{self.config.hash()}_{self.seeds[0]}-{self.seeds[-1]}"

    @property
    def keys(self) -> list[RunKey]:
        return [(self.config.hash(), seed) for seed in self.seeds]


@dataclass(frozen=True)
class Plan:
    """All runs, and the trials that make those still missing."""

    configs: tuple[RunConfig, ...]
    seeds: tuple[int, ...]
    trials: tuple[Trial, ...]

    @property
    def total(self) -> int:
        return len(self.configs) * len(self.seeds)

    @property
    def missing(self) -> int:
        return sum(len(trial.seeds) for trial in self.trials)

    @cached_property
    def keys(self) -> set[RunKey]:
        return {(config.hash(), seed) for config in self.configs for seed in self.seeds}


def make_plan(
    configs: Sequence[RunConfig], seeds: Sequence[int], done: set[RunKey], pack: int | None, lanes: int
) -> Plan:
    """Packs of ``pack`` seeds; by default as large as leaves no lane without a trial, ten at most."""
    unique = tuple({config.hash(): config for config in configs}.values())
    missing = [(config, [seed for seed in seeds if (config.hash(), seed) not in done]) for config in unique]
    size = pack or pack_size(sum(len(left) for _, left in missing), lanes)
    trials = [
        Trial(config, tuple(left[start : start + size]))
        for config, left in missing
        for start in range(0, len(left), size)
    ]
    return Plan(unique, tuple(seeds), tuple(trials))


def pack_size(missing: int, lanes: int) -> int:
    """Large packs cost least a seed, but a lane that stands idle costs more."""
    return max(1, min(10, -(-missing // lanes)))


def session_number(config: RunConfig, session: int) -> int:
    """A session of a resolved configuration; LAST is its last."""
    assert config.sessions
    return config.sessions if session == LAST else session
