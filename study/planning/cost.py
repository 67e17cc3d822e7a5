"""Estimate how long runs take: roughly before a study, then from the runs that are finished."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from statistics import median

from hagmeta import datasets
from hagmeta.common.durations import in_words
from hagmeta.common.records.records import Record
from hagmeta.config.run_config import RunConfig, resolve
from hagmeta.methods import METHODS, MetaTraining
from hagmeta.scenarios import PROTOCOLS
from study.planning.plan import Trial
from study.planning.resources import Kind, kind

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


class TimeLeft:
    """Estimates the time left from the seconds of finished runs, of this launch and of earlier ones.

    Runs are compared within a dataset and method: between them, rough guesses can be far off.
    """

    def __init__(self, records: Iterable[Record] = ()) -> None:
        self._paces: dict[Kind, list[float]] = {}  # measured seconds per guessed second
        for record in records:
            self.learn(record)

    def learn(self, record: Record) -> None:
        """Take how long a run took. Each run has an equal share of the time of its pack."""
        config = RunConfig.of(record["config"])
        seconds = sum(record["seconds"].values())
        self._paces.setdefault(kind(config), []).append(seconds / rough_seconds(config))

    def of(self, runs: Mapping[RunConfig, int]) -> float | None:
        """Return the seconds of runs one after the other; None if none of some kind has finished yet."""
        if any(kind(config) not in self._paces for config in runs):
            return None
        # The median ignores the first run, which warms up.
        paces = {config: median(self._paces[kind(config)]) for config in runs}
        return sum(count * paces[config] * rough_seconds(config) for config, count in runs.items())

    def of_all(
        self,
        running: Sequence[tuple[Mapping[RunConfig, int], float]],
        waiting: Mapping[RunConfig, int],
        lanes: int,
    ) -> tuple[float, bool] | None:
        """Return the seconds until the last trial ends, and whether they are only a lower bound.

        Args:
            running: The runs of each trial that runs, and the seconds for which it has run.
            waiting: The runs that have not started.
            lanes: How many trials run at once.
        """
        guesses = [(self.of(runs), elapsed) for runs, elapsed in running]
        left = [None if seconds is None else max(0.0, seconds - elapsed) for seconds, elapsed in guesses]
        left += [self.of({config: count}) for config, count in waiting.items() if count > 0]
        known = [seconds for seconds in left if seconds is not None]
        if not sum(known):
            return None
        longest = max(known[: len(running)], default=0.0)
        return max(sum(known) / lanes, longest), len(known) < len(left)


def rough_text(runs: Mapping[RunConfig, int], measured: TimeLeft) -> str:
    """Return a rough time for runs on one core, by finished runs of the same kind where there are some."""
    parts = (measured.of({config: count}) or count * rough_seconds(config) for config, count in runs.items())
    return f"about {in_words(sum(parts))} on one CPU core, roughly"


def counts(trials: Iterable[Trial]) -> Counter[RunConfig]:
    """Return the number of runs of each configuration."""
    return Counter(config for trial in trials for config, _ in trial.members)
