"""Decide how many CPUs and GPUs each trial uses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hagmeta.common.errors import UserError
from hagmeta.config.run_config import RunConfig

MOST_TRIALS_PER_GPU = 8
SLACK = 1.3  # times the bound of the memory
CONTEXT_BYTES = 0.6e9  # used by CUDA in each process, in addition to torch

Kind = tuple[str, str]  # dataset and method; trials of a kind use the same share of a GPU


@dataclass(frozen=True)
class Resources:
    """CPUs and GPUs per trial, and the number of trials at once."""

    cpus: float
    gpus: float  # the smallest share of a trial
    slots: int
    shares: Mapping[Kind, float] = field(default_factory=dict)  # by kind, if they differ

    def gpu_share(self, config: RunConfig) -> float:
        """Return the share of a GPU for a trial of `config`."""
        return self.shares.get(kind(config), self.gpus)

    def __str__(self) -> str:
        most = max(self.shares.values(), default=self.gpus)
        gpus = f"{self.gpus:.3g} to {most:.3g}" if most > self.gpus else f"{self.gpus:.3g}"
        at_once = f"{'up to ' if most > self.gpus else ''}{self.slots} at once"
        return f"{self.cpus:g} CPU{f', {gpus} GPU' if self.gpus else ''} per trial, {at_once}"


def kind(config: RunConfig) -> Kind:
    """Return the dataset and method of `config`, which determine most of the memory that it needs."""
    return config.dataset, config.method


def choose_resources(
    cluster: Mapping[str, float], shares: float | Mapping[Kind, float], cpus: float | None, most: int | None
) -> Resources:
    """Return what each trial uses of a cluster.

    By default a trial uses one CPU: parallel trials use cores better than threads within one trial.

    Args:
        cluster: The resources of the cluster.
        shares: The share of a GPU per trial: one for all (0 for none), or one per kind.
        cpus: CPUs per trial; None for 1.
        most: The largest number of trials at once; None for as many as fit.
    """
    cpus = 1 if cpus is None else cpus
    least = min(shares.values()) if isinstance(shares, Mapping) else shares
    slots = int(cluster.get("CPU", 1) // cpus) if cpus else 10**6
    if least:
        slots = min(slots, int(cluster.get("GPU", 0) / least + 1e-6))
    # `most` counts even if it does not fit yet: a cluster may grow on demand.
    return Resources(cpus, least, max(1, most or slots), shares if isinstance(shares, Mapping) else {})


def check_possible(machine: Mapping[str, float], cpus: float | None, gpus: float | None) -> None:
    """Refuse more CPUs or GPUs per trial than this machine has: such trials would wait forever."""
    for option, asked, name in (("--cpus-per-trial", cpus, "CPU"), ("--gpus-per-trial", gpus, "GPU")):
        there = machine.get(name, 0)
        if asked and asked > there:
            raise UserError(
                f"{option} is {asked:g}, but Ray finds {there:g} {name}s on this machine; lower it."
            )


def count_lanes(
    cluster: Mapping[str, float], share: float | None, cpus: float | None, most: int | None
) -> int:
    """Return how many trials to keep busy before packs grow.

    These are the trials that fit on CPUs, or one per GPU, where ten seeds cost little more than one.

    Args:
        cluster: The resources of the cluster.
        share: The share of a GPU per trial; None if it is not known yet.
        cpus: CPUs per trial; None for 1.
        most: The largest number of trials at once; None for as many as fit.
    """
    gpus = int(cluster.get("GPU", 0))
    if share is None and gpus:
        return gpus
    slots = choose_resources(cluster, share or 0.0, cpus, most).slots
    return max(1, round(slots * share)) if share else slots


def uses_gpu(cluster: Mapping[str, float], share: float | None) -> bool:
    """Return whether trials run on GPUs, given their share of one; None if it is not known yet."""
    return bool(cluster.get("GPU") if share is None else share)


def share_of(bytes_per_trial: float, gpu_bytes: float) -> float:
    """Return 1/n of a GPU per trial, where n trials fit into its memory with some slack."""
    needed = SLACK * bytes_per_trial + CONTEXT_BYTES
    return 1 / max(1, min(MOST_TRIALS_PER_GPU, int(gpu_bytes // needed)))
