"""Estimate how long a study still takes, from how long its finished trials took."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from study.cost import trial_seconds
from study.plan import Trial
from study.resources import Kind, kind


@dataclass(frozen=True)
class Job:
    """A trial as far as its duration is concerned."""

    kind: Kind  # methods and datasets are not compared: a guess of their costs can be wrong many times over
    cost: float  # a guess, which compares trials of one kind

    @classmethod
    def of(cls, trial: Trial) -> Job:
        return cls(kind(trial.config), trial_seconds(trial))


@dataclass(frozen=True)
class Estimate:
    """Seconds left; at least that many where some of the trials are of a kind that was not measured."""

    seconds: float
    complete: bool

    def __str__(self) -> str:
        return "about" if self.complete else "at least"


class TimeLeft:
    """Learns from each trial that ends; knows nothing of a kind before one of its trials has ended."""

    def __init__(self, trials: Iterable[Trial]) -> None:
        self._unfinished = Counter(map(Job.of, trials))
        self._paces: dict[Kind, list[float]] = {}  # seconds measured for each second guessed

    def ended(self, job: Job, seconds: float | None) -> None:
        """Count a trial as ended; ``seconds`` is None where it did not run, or not to its end."""
        self._unfinished[job] -= 1
        if seconds is not None:
            self._paces.setdefault(job.kind, []).append(seconds / job.cost)

    def of(self, job: Job, elapsed: float = 0.0) -> float | None:
        """Seconds that a trial still takes; None if not known. The median ignores a first trial's warm-up."""
        paces = self._paces.get(job.kind)
        return None if paces is None else max(0.0, median(paces) * job.cost - elapsed)

    def of_all(self, running: Sequence[tuple[Job, float]], lanes: int) -> Estimate | None:
        """Until the last trial ends, with those that are ``running``, each for its seconds, in ``lanes``."""
        waiting = self._unfinished - Counter(job for job, _ in running)
        left = [self.of(job, elapsed) for job, elapsed in running]
        to_come = {job: self.of(job) for job in waiting}
        known = [seconds for seconds in (*left, *to_come.values()) if seconds is not None]
        work = sum(seconds for seconds in left if seconds is not None)
        work += sum(number * (to_come[job] or 0.0) for job, number in waiting.items())
        if not work:
            return None
        return Estimate(max(work / lanes, *known), complete=len(known) == len(left) + len(to_come))
