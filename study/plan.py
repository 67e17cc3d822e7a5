"""Plan a study: find the runs that are missing in the store and group them into packs of seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from hagmeta.common.records import RunKey
from hagmeta.config import RunConfig

LAST = -1  # the last session, for configurations with different numbers of sessions


@dataclass(frozen=True)
class Trial:
    """One resolved configuration and a pack of seeds."""

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
    """All runs of a study, and the trials for those that are missing."""

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
    """Plan the trials that are missing.

    Args:
        configs: Resolved configurations; equal ones count once.
        seeds: The seeds of each configuration.
        done: Runs that are finished.
        pack: Seeds per trial; None for the size that `pack_size` chooses.
        lanes: How many trials run at once.
    """
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
    """Return the seeds per trial: at most 10, and few enough that no lane is idle.

    Larger packs are cheaper per seed, but an idle lane costs more.
    """
    return max(1, min(10, -(-missing // lanes)))


def session_number(config: RunConfig, session: int) -> int:
    """Return the number of a session of a resolved configuration; LAST is its last one."""
    assert config.sessions
    return config.sessions if session == LAST else session
