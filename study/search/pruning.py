"""Stop samples that are significantly worse than the best one, by a paired test over seeds.

A sample runs its seeds in stages. After each stage but the last, Optuna's `WilcoxonPruner` compares it with
the best sample so far. Both have run the same seeds, so the scores are compared in pairs.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence

import optuna
from optuna.exceptions import ExperimentalWarning
from optuna.trial import FrozenTrial, TrialState, create_trial

from study.search.objective import Score, objective

FIRST_STAGE = 4  # with fewer pairs, the p-value of the test cannot be below Optuna's threshold of 0.1
LEAST_SEEDS = 6  # with fewer seeds, no stage can end early


def stages(seeds: int) -> tuple[int, ...]:
    """Return how many seeds have run at the end of each stage; the last stage ends with all of them.

    Each look at least doubles the seeds of the one before. A look that could save few seeds is left out,
    because small packs are expensive.
    """
    ends = []
    end = FIRST_STAGE
    while seeds - end >= end // 2:
        ends.append(end)
        end *= 2
    return (*ends, seeds)


def by_seed(scores: Sequence[Score]) -> dict[int, float]:
    """Return the objective of each seed, by its place among the seeds: the steps that Optuna compares."""
    return {place: objective([score]) for place, score in enumerate(scores)}


def is_worse(scores: Sequence[Score], ended: Iterable[FrozenTrial]) -> bool:
    """Return whether a sample is significantly worse than the best of those that have ended.

    Args:
        scores: Its scores so far, in the order of the seeds.
        ended: Complete samples, with the objective of each seed.
    """
    study, steps = optuna.create_study(direction="maximize"), by_seed(scores)
    for trial in ended:
        # Only the same seeds: the pruner also compares means, and some seeds are harder than others.
        same = {step: trial.intermediate_values[step] for step in steps}
        study.add_trial(create_trial(value=trial.value, intermediate_values=same))
    sample = create_trial(state=TrialState.RUNNING, intermediate_values=steps)
    with warnings.catch_warnings(action="ignore", category=ExperimentalWarning):
        return optuna.pruners.WilcoxonPruner().prune(study, sample)
