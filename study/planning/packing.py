"""Decide how many runs share a pack. This module imports nothing that takes time."""

from __future__ import annotations

from dataclasses import dataclass

LAST = -1  # the last session, for configurations with different numbers of sessions
MOST_SEEDS = 10  # of one configuration in a pack
# Members of a pack with several configurations. Larger packs are cheaper per member up to about these sizes.
MOST_ON_CPU = 16
MOST_ON_GPU = 64


@dataclass(frozen=True)
class Packing:
    """How many runs a trial may have.

    Attributes:
        seeds: Seeds of one configuration per trial, and no mixing. None to mix configurations.
        members: Runs per trial. None for a size that leaves no lane idle.
        most: The largest size for a mixed pack, if `members` is None.
        lanes: How many trials to keep busy before packs grow.
    """

    seeds: int | None = None
    members: int | None = None
    most: int = MOST_ON_CPU
    lanes: int = 1

    @property
    def mixes(self) -> bool:
        """Whether configurations may share a trial."""
        return self.seeds is None

    @property
    def largest(self) -> int:
        """The largest number of runs in a trial of several configurations."""
        return self.members or self.most

    def size(self, missing: int, *, mixed: bool) -> int:
        """Return the runs per trial.

        Larger packs are cheaper per run, but an idle lane costs more.

        Args:
            missing: The number of runs to share out.
            mixed: Whether they are of several configurations.
        """
        most = self.most if mixed else MOST_SEEDS
        return self.seeds or self.members or max(1, min(most, -(-missing // self.lanes)))
