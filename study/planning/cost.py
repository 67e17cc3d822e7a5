"""Estimate roughly how long a run takes: to tell minutes from days, and to start long trials first."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from hagmeta import datasets
from hagmeta.config.run_config import RunConfig, resolve
from hagmeta.methods import METHODS, MetaTraining
from hagmeta.scenarios import PROTOCOLS
from study.planning.plan import Trial

# For one seed in a pack, on one core of a small machine: per training step, and per edge in it.
SECONDS_PER_STEP = 0.012
SECONDS_PER_EDGE = 2.2e-7
SECONDS_PER_TRIAL = 5.0  # to start a worker, load the data and pre-train
STOPPED_EARLY = 0.6  # share of the episodes that run before early stopping


@lru_cache(maxsize=100_000)
def rough_seconds(config: RunConfig) -> float:
    """Return the seconds of one core for one run of `config`."""
    config = resolve(config)
    assert config.sessions
    edges = datasets.describe(config.dataset, Path()).edges or 100_000
    method = METHODS[config.method]
    training = config.episodes * (STOPPED_EARLY if PROTOCOLS[config.protocol].validates else 1.0)
    trains = method.training_of(config) is not MetaTraining.NONE
    tuning = config.finetune_steps if config.applies("finetune_steps") else 0
    steps = trains * training + config.sessions * (tuning + 1)
    return steps * method.passes(config) * (SECONDS_PER_STEP + SECONDS_PER_EDGE * edges)


def trial_seconds(trial: Trial) -> float:
    """Return the seconds of a trial with all its runs."""
    return SECONDS_PER_TRIAL + sum(rough_seconds(config) for config, _ in trial.members)


def total_seconds(configs: Iterable[RunConfig], seeds: int) -> float:
    """Return the seconds of all runs of `configs`, each with this number of `seeds`."""
    return seeds * sum(rough_seconds(config) for config in configs)
