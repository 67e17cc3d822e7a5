"""Estimate how long a study still takes, from how long its finished trials took."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from study.planning.cost import trial_seconds
from study.planning.plan import Trial
from study.planning.resources import Kind, kind


@dataclass(frozen=True)
class Job:
    """The kind of a trial and its guessed cost, which predict its duration."""

    kind: Kind  # durations are compared within a kind only: across kinds, guesses can be far off
    cost: float  # guessed seconds, to compare trials of one kind

    @classmethod
    def of(cls, trial: Trial) -> Job:
        return cls(kind(trial.config), trial_seconds(trial))


@dataclass(frozen=True)
class Estimate:
    """Seconds left; a lower bound if no trial of some kind has finished yet."""

    seconds: float
    complete: bool

    def __str__(self) -> str:
        return "about" if self.complete else "at least"


class TimeLeft:
    """Estimates the time left from finished trials; a kind is unknown until one of its trials is finished.

    A trial may do several equal jobs, as a pack of samples of a search does.
    """

    def __init__(self, trials: Iterable[Trial]) -> None:
        self._unfinished = Counter(map(Job.of, trials))
        self._paces: dict[Kind, list[float]] = {}  # measured seconds per guessed second

    def add(self, trials: Iterable[Trial]) -> None:
        """Count more trials as unfinished."""
        self._unfinished.update(map(Job.of, trials))

    def ended(self, job: Job, seconds: float | None, count: int = 1) -> None:
        """Count `count` jobs as ended; ``seconds`` is None if they did not run to their end."""
        self._unfinished[job] -= count
        if seconds is not None:
            self._paces.setdefault(job.kind, []).append(seconds / (count * job.cost))

    def of(self, job: Job, elapsed: float = 0.0, count: int = 1) -> float | None:
        """Return the seconds that a trial still needs, or None. The median ignores the first warm-up."""
        paces = self._paces.get(job.kind)
        return None if paces is None else max(0.0, median(paces) * count * job.cost - elapsed)

    def of_all(self, running: Sequence[tuple[Job, int, float]], lanes: int) -> Estimate | None:
        """Estimate the seconds until the last trial ends.

        Args:
            running: The job of each running trial, how many it does, and the seconds that it has run.
            lanes: How many trials run at once.
        """
        now: Counter[Job] = Counter()
        for job, count, _ in running:
            now[job] += count
        waiting = self._unfinished - now
        left = [self.of(job, elapsed, count) for job, count, elapsed in running]
        to_come = {job: self.of(job) for job in waiting}
        known = [seconds for seconds in (*left, *to_come.values()) if seconds is not None]
        work = sum(seconds for seconds in left if seconds is not None)
        work += sum(number * (to_come[job] or 0.0) for job, number in waiting.items())
        if not work:
            return None
        return Estimate(max(work / lanes, *known), complete=len(known) == len(left) + len(to_come))
