"""Run the samples of all searches in one Ray Tune run, so that no slot is idle.

``history`` proposes the samples and keeps their results. Samples that are ready at the same time share a
pack, if their settings allow that.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Any

from ray import tune

from hagmeta.common.errors import UserError
from hagmeta.common.records import Record, RunKey
from hagmeta.config import RunConfig, pack_key
from hagmeta.datasets.base import Dataset
from study.packing import Packing
from study.plan import Trial
from study.progress import StudyProgress
from study.resources import Resources
from study.search.history import SearchHistory
from study.search.objective import Score, is_scored, score_of
from study.store import Store
from study.trial import TrialSpec, members_of, run_sample
from study.tuning import Recorder, Supply, make_spec, run_tuner


def run_searches(
    histories: Sequence[SearchHistory],
    store: Store,
    resources: Resources,
    packing: Packing,
    progress: StudyProgress,
    *,
    retries: int,
    time_budget: float | None,
    eager: bool = False,
    lent: Mapping[str, Dataset] | None = None,
    loggers: Sequence[tune.Callback] = (),
) -> None:
    """Run all missing samples; `histories` receive their results and `store` their records."""

    def spec_of(trial: Trial) -> TrialSpec:
        return make_spec(trial, store, resources, None, eager=eager)

    dealer = Dealer(histories, store, packing, progress, spec_of)
    # Each stage of a sample is a trial at most, and so is a sample whose pack has failed.
    most = sum(len(history.missing) * (history.most_stages + 1) for history in histories)
    run_tuner(
        run_sample,
        dealer,
        most,
        store,
        resources,
        [_SampleRecorder(store, dealer, progress), *loggers],
        retries=retries,
        time_budget=time_budget,
        lent=lent,
    )


@dataclass(eq=False)
class Sample:
    """A drawn sample without a result."""

    number: int
    config: RunConfig
    scores: dict[int, Score] = field(default_factory=dict)  # by seed
    seeds: tuple[int, ...] = ()  # to run next; none while it waits for a rival
    alone: bool = False  # because a pack with other samples has failed

    @property
    def keys(self) -> set[RunKey]:
        return {(self.config.hash(), seed) for seed in self.seeds}

    @property
    def kind(self) -> Hashable:
        """Samples of one search and kind may share a pack."""
        return self.number if self.alone else (pack_key(self.config),)


@dataclass
class Queue:
    """The samples of one search that do not run."""

    history: SearchHistory
    missing: deque[int]  # not drawn yet
    waiting: list[Sample] = field(default_factory=list)

    @property
    def lowest(self) -> int:
        numbers = [sample.number for sample in self.waiting]
        return min([*numbers, self.missing[0]] if self.missing else numbers)

    @property
    def ready(self) -> int:
        """The number of runs that could start now."""
        ready = sum(1 for _ in takewhile(self.history.is_ready, self.missing))
        return ready * len(self.history.cell.seeds) + sum(len(sample.seeds) for sample in self.waiting)


class Dealer(Supply):
    """Gives Tune packs of samples of several searches, lowest numbers first, and returns their results.

    The values of a sample do not depend on the samples in its pack, nor on when they run.
    """

    def __init__(
        self,
        histories: Sequence[SearchHistory],
        store: Store,
        packing: Packing,
        progress: StudyProgress,
        spec_of: Callable[[Trial], TrialSpec],
    ) -> None:
        super().__init__(metric="val_accuracy", mode="max")
        self._store, self._packing, self._progress, self._spec_of = store, packing, progress, spec_of
        self._queues = [Queue(history, deque(history.missing)) for history in histories]
        self._running: dict[str, tuple[Queue, list[Sample]]] = {}  # by the trial's id in Tune

    def suggest(self, trial_id: str) -> Any:
        """Return the next pack to run, or None while all samples wait for running ones."""
        unfinished = [queue for queue in self._queues if queue.missing or queue.waiting]
        for queue in sorted(unfinished, key=lambda queue: queue.lowest):
            self._fill(queue)
            if pack := self._next_pack(queue):
                queue.waiting = [sample for sample in queue.waiting if sample not in pack]
                self._running[trial_id] = queue, pack
                return {"spec": self._spec_of(_trial(pack, queue.history.cell.seeds))}
        left = self._running or any(queue.missing or queue.waiting for queue in self._queues)
        return None if left else self.FINISHED

    def _fill(self, queue: Queue) -> None:
        """Draw the samples of a search that are ready; end those that need no run."""
        history = queue.history
        queue.waiting = [sample for sample in queue.waiting if self._goes_on(history, sample)]
        while queue.missing and history.is_ready(queue.missing[0]):
            number = queue.missing.popleft()
            try:
                sample = Sample(number, history.cell.sample(history.draw(number)))
            except UserError as error:  # the values are not valid together
                history.tell_failure(number, str(error))
                self._progress.has_failed("", history.cell.unit, len(history.cell.seeds))
                continue
            if self._goes_on(history, sample):
                queue.waiting.append(sample)

    def _goes_on(self, history: SearchHistory, sample: Sample) -> bool:
        """Find the seeds that a sample runs next; return False if it has ended.

        Scores in the store count, such as those of an equal sample, or of a launch that was killed.
        """
        unit, stored = history.cell.unit, 0
        while seeds := history.go_on(sample.number, sample.scores):
            kept = self._kept(sample.config, seeds)
            if not kept:
                break
            sample.scores |= kept
            stored += len(kept)
        sample.seeds = seeds or ()
        if sample.number in history.found:
            self._progress.found(history.found[sample.number].value or 0.0)
        elif sample.number in history.pruned:
            self._progress.was_pruned(unit, len(history.cell.seeds) - len(sample.scores))
        if stored:
            self._progress.finished_before(unit, times=stored)
        return seeds != ()

    def _kept(self, config: RunConfig, seeds: Sequence[int]) -> dict[int, Score]:
        found = {seed: self._store.find((config.hash(), seed)) for seed in seeds}
        return {seed: score_of(record) for seed, record in found.items() if record and is_scored(record)}

    def _next_pack(self, queue: Queue) -> list[Sample]:
        """Return samples of a search that run together: the first that can run, and others that suit it."""
        busy = {key for _, pack in self._running.values() for sample in pack for key in sample.keys}
        pack: list[Sample] = []
        room = self._size()
        for sample in sorted(queue.waiting, key=lambda sample: sample.number):
            if not sample.seeds or sample.keys & busy:  # drawn twice: it gets the scores of the first
                continue
            suits = self._packing.mixes and len(sample.seeds) <= room
            if not pack or (suits and sample.kind == pack[0].kind):
                pack.append(sample)
                busy |= sample.keys
                room -= len(sample.seeds)
        return pack

    def _size(self) -> int:
        """Return how many runs of several samples may share a pack, with no lane idle."""
        free = max(1, self._packing.lanes - len(self._running))
        ready = sum(queue.ready for queue in self._queues)
        return replace(self._packing, lanes=free).size(ready, mixed=True)

    def finished(self, trial_id: str) -> None:
        """Take the scores of a finished pack from the store, and find out how its samples go on."""
        queue, pack = self._running.pop(trial_id)
        for sample in pack:
            sample.scores |= self._kept(sample.config, sample.seeds)
            if not sample.scores.keys() >= set(sample.seeds):
                queue.history.tell_failure(sample.number, "its records have no validation scores")
            elif self._goes_on(queue.history, sample):
                queue.waiting.append(sample)

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """Store how a pack failed; samples that ran out of time count as not drawn."""
        queue, pack = self._running.pop(trial_id, (None, []))
        if queue is None or not (error or (result and "failed" in result)):
            return
        if len(pack) > 1:  # one of them may have failed alone
            queue.waiting += [replace(sample, alone=True) for sample in pack]
        else:
            history, [sample] = queue.history, pack
            history.tell_failure(sample.number, (result or {}).get("failed", "its run failed"))
            later = len(history.cell.seeds) - len(sample.scores) - len(sample.seeds)
            if later:  # of the stages that it does not reach
                self._progress.has_failed("", history.cell.unit, later)

    def running(self, trial_id: str) -> tuple[Trial, dict[str, Any]]:
        """Return the trial that predicts the time of a run, and the values of the sample if it runs alone."""
        queue, pack = self._running[trial_id]
        values = queue.history.values[pack[0].number] if len(pack) == 1 else {}
        return queue.history.cell.unit, values


def _trial(pack: Sequence[Sample], seeds: Sequence[int]) -> Trial:
    """Return the trial of a pack, in which runs with the same seed are neighbours."""
    return Trial(tuple((each.config, seed) for seed in seeds for each in pack if seed in each.seeds))


class _SampleRecorder(Recorder):
    def __init__(self, store: Store, dealer: Dealer, progress: StudyProgress) -> None:
        super().__init__(store, (), progress)
        self._dealer = dealer

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        unit, values = self._dealer.running(trial.trial_id)
        self._progress.started(trial.trial_id, self._of(trial), values, unit)

    def _run_apart(self, trial: Any, ours: Trial) -> None:
        self._progress.stopped(trial.trial_id)  # the dealer deals them again

    def _figures(self, trial: Any, records: Sequence[Record]) -> list[float]:
        self._dealer.finished(trial.trial_id)
        return []

    def _of(self, trial: Any) -> Trial:
        return Trial(tuple(members_of(trial.config["spec"])))
