"""How much of the machines a trial takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hagmeta.common.errors import UserError
from hagmeta.config import RunConfig

MOST_TRIALS_A_GPU = 8
SLACK = 1.3  # times the memory that was measured
CONTEXT_BYTES = 0.6e9  # what CUDA takes in each process, beside torch's memory

Kind = tuple[str, str]  # dataset and method: trials of a kind take the same share of a GPU


@dataclass(frozen=True)
class Resources:
    """A trial's share, and how many run at once."""

    cpus: float
    gpus: float  # the least that a trial takes
    slots: int
    shares: Mapping[Kind, float] = field(default_factory=dict)  # where kinds differ

    def gpu_share(self, config: RunConfig) -> float:
        return self.shares.get(kind(config), self.gpus)

    def __str__(self) -> str:
        most = max(self.shares.values(), default=self.gpus)
        gpus = f"{self.gpus:.3g} to {most:.3g}" if most > self.gpus else f"{self.gpus:.3g}"
        at_once = f"{'up to ' if most > self.gpus else ''}{self.slots} at once"
        return f"{self.cpus:g} CPU{f', {gpus} GPU' if self.gpus else ''} a trial, {at_once}"


def kind(config: RunConfig) -> Kind:
    """What decides, above all, how much memory a configuration needs."""
    return config.dataset, config.method


def choose_resources(
    cluster: Mapping[str, float], shares: float | Mapping[Kind, float], cpus: float | None, most: int | None
) -> Resources:
    """What trials take of a cluster: the same share of a GPU each, none (0), or each kind its own.

    On CPUs a trial takes one: trials side by side use cores better than threads within one do.
    """
    cpus = 1 if cpus is None else cpus
    least = min(shares.values()) if isinstance(shares, Mapping) else shares
    slots = int(cluster.get("CPU", 1) // cpus) if cpus else 10**6
    if least:
        slots = min(slots, int(cluster.get("GPU", 0) / least + 1e-6))
    # What is asked for counts: a cluster that grows on demand has little before it is asked.
    return Resources(cpus, least, max(1, most or slots), shares if isinstance(shares, Mapping) else {})


def check_possible(machine: Mapping[str, float], cpus: float | None, gpus: float | None) -> None:
    """Refuse what this machine will never have: such trials would wait for ever."""
    for option, asked, name in (("--cpus-per-trial", cpus, "CPU"), ("--gpus-per-trial", gpus, "GPU")):
        there = machine.get(name, 0)
        if asked and asked > there:
            raise UserError(f"{option} is {asked:g}; Ray sees {there:g} {name}s on this machine.")


def count_lanes(
    cluster: Mapping[str, float], share: float | None, cpus: float | None, most: int | None
) -> int:
    """What is filled before packs grow: cores, or GPUs, where ten seeds cost little more than one.

    ``share`` is the part of a GPU that is asked for each trial; None where it is not known yet.
    """
    gpus = int(cluster.get("GPU", 0))
    if share is None and gpus:
        return gpus
    slots = choose_resources(cluster, share or 0.0, cpus, most).slots
    return max(1, round(slots * share)) if share else slots


def share_of(peak_bytes: float, gpu_bytes: float) -> float:
    """1/n of a GPU for a trial, so many at once as its memory holds with some slack."""
    needed = SLACK * peak_bytes + CONTEXT_BYTES
    return 1 / max(1, min(MOST_TRIALS_A_GPU, int(gpu_bytes // needed)))


def fits_anywhere(peak_bytes: float, gpu_bytes: float) -> bool:
    """Whether so many trials that need this much run at once that it need not be known better."""
    return share_of(peak_bytes, gpu_bytes) == 1 / MOST_TRIALS_A_GPU
