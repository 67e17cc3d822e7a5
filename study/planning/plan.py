"""Plan a study: find the runs that are missing in the store and group them into packs."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from hagmeta.common.records.records import RunKey, StudyFolder
from hagmeta.config.run_config import RunConfig, pack_key
from study.planning.packing import LAST, Packing
from study.store.store import Scan

Member = tuple[RunConfig, int]  # a resolved configuration and a seed: one run


@dataclass(frozen=True)
class Trial:
    """Runs that share a pack: members of one configuration, or of several that may share a pack."""

    members: tuple[Member, ...]

    @classmethod
    def of(cls, config: RunConfig, seeds: Sequence[int]) -> Trial:
        """Return the trial of one configuration with these seeds."""
        return cls(tuple((config, seed) for seed in seeds))

    @property
    def config(self) -> RunConfig:
        """The first configuration. The others have the same dataset, method, shapes and steps."""
        return self.members[0][0]

    @cached_property
    def configs(self) -> tuple[RunConfig, ...]:
        """The configurations, each once."""
        return tuple({config.hash(): config for config, _ in self.members}.values())

    @cached_property
    def seeds(self) -> tuple[int, ...]:
        """The seeds, each once."""
        return tuple(dict.fromkeys(seed for _, seed in self.members))

    @property
    def name(self) -> str:
        """A name that is unique in a plan, because no other trial has the first member."""
        more = f"+{len(self.members) - 1}" if len(self.configs) > 1 else ""
        return f"{self.config.hash()}_{self.members[0][1]}-{self.members[-1][1]}{more}"

    @property
    def keys(self) -> list[RunKey]:
        return [(config.hash(), seed) for config, seed in self.members]

    def apart(self) -> list[Trial]:
        """Return one trial per configuration."""
        members: dict[str, list[Member]] = {}
        for config, seed in self.members:
            members.setdefault(config.hash(), []).append((config, seed))
        return [Trial(tuple(own)) for own in members.values()]


@dataclass(frozen=True)
class Plan:
    """All runs of a study, and the trials for those that are missing."""

    configs: tuple[RunConfig, ...]
    seeds: tuple[int, ...]
    trials: tuple[Trial, ...]
    done: frozenset[RunKey] = frozenset()  # the runs that do not run: they are finished, or they diverged

    @property
    def total(self) -> int:
        return len(self.configs) * len(self.seeds)

    @property
    def missing(self) -> int:
        return sum(len(trial.members) for trial in self.trials)

    @cached_property
    def keys(self) -> set[RunKey]:
        return {(config.hash(), seed) for config in self.configs for seed in self.seeds}


def make_plan(
    configs: Sequence[RunConfig], seeds: Sequence[int], done: Collection[RunKey], packing: Packing
) -> Plan:
    """Plan the trials that are missing.

    Args:
        configs: Resolved configurations; equal ones count once.
        seeds: The seeds of each configuration.
        done: Runs that do not run, because they are finished or diverged.
        packing: How to group runs into trials.
    """
    unique = tuple({config.hash(): config for config in configs}.values())
    groups: dict[Hashable, list[Member]] = {}
    missing = 0
    for config in unique:
        key = pack_key(config) if packing.mixes else config.hash()
        left = [(config, seed) for seed in seeds if (config.hash(), seed) not in done]
        groups.setdefault(key, []).extend(left)
        missing += len(left)
    trials = [trial for group in groups.values() for trial in _packs(group, missing, seeds, packing)]
    return Plan(unique, tuple(seeds), tuple(trials), frozenset(done))


def _packs(group: list[Member], missing: int, seeds: Sequence[int], packing: Packing) -> Iterator[Trial]:
    """Yield the packs of runs that may share one, of nearly equal sizes.

    Members with the same seed share their views, so they are in the same pack where possible.
    """
    mixed = len({config.hash() for config, _ in group}) > 1
    size = packing.size(missing, mixed=mixed)
    if mixed:
        place = {seed: number for number, seed in enumerate(seeds)}
        group = sorted(group, key=lambda member: place[member[1]])
        trials = -(-len(group) // size)
        size = -(-len(group) // trials)
    for start in range(0, len(group), size):
        yield Trial(tuple(group[start : start + size]))


def finished(
    scan: Scan, configs: Sequence[RunConfig], store: StudyFolder, snapshot: int | None
) -> set[RunKey]:
    """Return the runs that need not run: those that are complete, and those that diverged.

    With a `snapshot` session, a complete run also has the embeddings of that session.
    """
    if snapshot is None:
        return scan.done | scan.diverged
    sessions = {config.hash(): session_number(config, snapshot) for config in configs}
    there = {
        key for key in scan.done if key[0] in sessions and store.embeddings_of(key, sessions[key[0]]).exists()
    }
    return there | scan.diverged


def session_number(config: RunConfig, session: int) -> int:
    """Return the number of a session of a resolved configuration; LAST is its last one."""
    assert config.sessions
    return config.sessions if session == LAST else session
