"""How much of the machines a trial takes."""

from __future__ import annotations

from dataclasses import dataclass

from hagmeta.datasets import DatasetInfo

MOST_TRIALS_A_GPU = 8


@dataclass(frozen=True)
class Resources:
    """One trial's share, and how many run at once."""

    cpus: float
    gpus: float
    slots: int

    @property
    def lanes(self) -> int:
        """What is filled before packs grow: on a GPU ten seeds cost little more than one."""
        return max(1, round(self.slots * self.gpus)) if self.gpus else self.slots

    def __str__(self) -> str:
        gpus = f", {self.gpus:g} GPU" if self.gpus else ""
        return f"{self.cpus:g} CPU{gpus} a trial, {self.slots} at once"


def choose_resources(
    cluster: dict[str, float],
    infos: list[DatasetInfo],
    seeds: int,
    cpus: float | None,
    gpus: float | None,
    most: int | None,
    gpu_memory: float = 16e9,
) -> Resources:
    """Shares for the largest dataset of a study, from what the cluster has.

    On CPUs a trial takes one: trials side by side use cores better than threads within one do.
    """
    have_cpus, have_gpus = cluster.get("CPU", 1), cluster.get("GPU", 0)
    if gpus is None:
        together = max(1, min(MOST_TRIALS_A_GPU, int(gpu_memory * 0.8 // gpu_bytes(infos, seeds))))
        gpus = 1 / together if have_gpus else 0
    if cpus is None:
        cpus = 1
    slots = int(have_cpus // cpus) if cpus else 10**6
    if gpus:
        slots = min(slots, int(have_gpus / gpus + 1e-6))
    # What is asked for counts: a cluster that grows on demand has little before it is asked.
    return Resources(cpus, gpus, max(1, most or slots))


def gpu_bytes(infos: list[DatasetInfo], seeds: int) -> float:
    """A generous guess: the graph, and a dozen hidden layers of every seed."""
    largest = max((info.nodes or 50_000) + (info.edges or 500_000) / 10 for info in infos)
    return 0.5e9 + largest * 32 * 4 * 24 * min(seeds, 10)
