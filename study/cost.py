"""How long a run takes, roughly: enough to say minutes or days, and to start long trials first."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from hagmeta import datasets
from hagmeta.config import RunConfig, resolve
from hagmeta.methods import METHODS, MetaTraining
from hagmeta.protocol import PROTOCOLS
from study.plan import Trial

# Of one core of a small machine, for one seed in a pack: of each training step, and of each edge in it.
SECONDS_A_STEP = 0.012
SECONDS_AN_EDGE = 2.2e-7
SECONDS_A_TRIAL = 5.0  # to start a worker, read the data and pre-train
STOPPED_EARLY = 0.6  # the share of the episodes that a run needs before early stopping ends it


@lru_cache(maxsize=100_000)
def rough_seconds(config: RunConfig) -> float:
    """Seconds of one core for one run of a configuration."""
    config = resolve(config)
    assert config.sessions
    edges = datasets.describe(config.dataset, Path()).edges or 100_000
    method = METHODS[config.method]
    training = config.episodes * (STOPPED_EARLY if PROTOCOLS[config.protocol].validates else 1.0)
    trains = method.training_of(config) is not MetaTraining.NONE
    tuning = config.finetune_steps if config.applies("finetune_steps") else 0
    steps = trains * training + config.sessions * (tuning + 1)
    return steps * method.passes(config) * (SECONDS_A_STEP + SECONDS_AN_EDGE * edges)


def trial_seconds(trial: Trial) -> float:
    """Of its whole pack, however little each seed needs."""
    return SECONDS_A_TRIAL + rough_seconds(trial.config) * len(trial.seeds)


def in_words(seconds: float) -> str:
    """A duration to one figure or two."""
    for unit, size in (("day", 86400), ("hour", 3600), ("minute", 60), ("second", 1)):
        if seconds >= 1.5 * size or unit == "second":
            count = f"{seconds / size:.0f}"
            return f"{count} {unit}{'' if count == '1' else 's'}"
    raise AssertionError


def total_seconds(configs: Iterable[RunConfig], seeds: int) -> float:
    """Of all runs together."""
    return seeds * sum(rough_seconds(config) for config in configs)
