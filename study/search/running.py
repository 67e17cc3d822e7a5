"""Run the samples of all searches in one Ray Tune run, so that no slot is idle.

``history`` proposes the samples and finds their results. Samples that are ready at the same time share a
pack, if their settings allow that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Any

from hagmeta.common.records.records import Record
from hagmeta.config.run_config import RunConfig
from study.planning.packing import Packing
from study.planning.plan import Trial
from study.running.queue import Retries, Supply
from study.running.trial import TrialSpec
from study.running.tuning import Recorder, StudyRunner
from study.search.history import Sample, SearchHistory
from study.search.trial import run_sample
from study.store.store import Store
from study.terminal.progress import StudyProgress


def run_searches(
    histories: Sequence[SearchHistory],
    runner: StudyRunner,
    store: Store,
    packing: Packing,
    progress: StudyProgress,
) -> None:
    """Run all missing samples; `histories` receive their results and `store` their records."""
    dealer = Dealer(histories, packing, progress, runner.spec_of, runner.retries)
    runner.supplied(run_sample, dealer, _SampleRecorder(store, dealer, progress))


class Dealer(Supply):
    """Gives Tune packs of samples of several searches, lowest numbers first, and returns their results.

    The values of a sample do not depend on the samples in its pack, nor on when they run.
    """

    def __init__(
        self,
        histories: Sequence[SearchHistory],
        packing: Packing,
        progress: StudyProgress,
        spec_of: Callable[[Trial], TrialSpec],
        retries: int = 0,
    ) -> None:
        super().__init__(metric="val_accuracy", mode="max")
        # Each sample may run in a pack and, if that fails, alone, both with all retries.
        self._most = sum(2 * (1 + retries) * len(history.missing) for history in histories)
        self._retries = Retries(retries)
        self._histories, self._packing = histories, packing
        self._progress, self._spec_of = progress, spec_of
        self._running: dict[str, tuple[SearchHistory, list[Sample]]] = {}  # by the trial's id in Tune

    @property
    def most(self) -> int:
        """The largest number of trials that this supply can give."""
        return self._most

    def trial(self, trial_id: str) -> Trial:
        """Return a trial that runs, by its id in Tune."""
        history, pack = self._running[trial_id]
        return _trial(pack, history.cell.seeds)

    def suggest(self, trial_id: str) -> Any:
        """Return the next pack to run, or None while all samples wait for running ones."""
        for history in sorted(self._unfinished(), key=_lowest):
            self._update(history)
            if pack := self._next_pack(history):
                history.waiting = [sample for sample in history.waiting if sample not in pack]
                self._running[trial_id] = history, pack
                return {"spec": self._spec_of(_trial(pack, history.cell.seeds))}
        return None if self._running or self._unfinished() else self.FINISHED

    def _unfinished(self) -> list[SearchHistory]:
        return [history for history in self._histories if history.undrawn or history.waiting]

    def _update(self, history: SearchHistory) -> None:
        """Update a history and show what it found."""
        config, news = history.cell.config, history.update()
        for objective in news.found:
            self._progress.found(objective)
        if news.failed:
            self._progress.failed_before(config, news.failed)
        if news.stored:
            self._progress.finished_before(config, news.stored)

    def _next_pack(self, history: SearchHistory) -> list[Sample]:
        """Return samples of a search that run together: the first that can run, and others that suit it."""
        busy = {key for _, pack in self._running.values() for sample in pack for key in sample.keys}
        pack: list[Sample] = []
        room = self._size()
        for sample in sorted(history.waiting, key=lambda sample: sample.number):
            if sample.keys & busy:  # drawn twice: it gets the scores of the first
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
        ready = sum(_ready(history) for history in self._histories)
        return replace(self._packing, lanes=free).size(ready, mixed=True)

    def finished(self, trial_id: str) -> None:
        """Take the scores of a finished pack from the store."""
        history, pack = self._running.pop(trial_id)
        for sample in pack:
            sample.scores |= history.stored(sample.config, sample.seeds)
            if not sample.missing(sample.seeds):
                history.waiting.append(sample)
                continue
            why = history.why_diverged(sample.config, sample.seeds)
            history.fail(sample.number, why or "its records have no validation scores", hopeless=bool(why))
        self._update(history)

    def failed(self, trial_id: str, error: str | None, *, by_user: bool = False) -> Sequence[Trial]:
        """Keep why a pack failed, or deal its samples again: one by one, if they shared it."""
        history, pack = self._running[trial_id]
        again = self._retries.after(self.trial(trial_id), error, by_user=by_user)
        del self._running[trial_id]
        if again:
            alone = len(pack) > 1
            history.waiting += [replace(sample, alone=alone or sample.alone) for sample in pack]
        else:
            for sample in pack:
                history.fail(sample.number, error or "its worker died")
        return again

    def running(self, trial_id: str) -> tuple[RunConfig, dict[str, Any]]:
        """Return what predicts the time of a run, and the values of the sample if it runs alone."""
        history, pack = self._running[trial_id]
        values = history.values[pack[0].number] if len(pack) == 1 else {}
        return history.cell.config, values


def _lowest(history: SearchHistory) -> int:
    """Return the lowest number among the samples of a search that can start."""
    return min([*(sample.number for sample in history.waiting), *list(history.undrawn)[:1]])


def _ready(history: SearchHistory) -> int:
    """Return the number of runs of a search that could start now."""
    ready = sum(1 for _ in takewhile(history.is_ready, history.undrawn))
    return ready * len(history.cell.seeds) + sum(len(sample.seeds) for sample in history.waiting)


def _trial(pack: Sequence[Sample], seeds: Sequence[int]) -> Trial:
    """Return the trial of a pack, in which runs with the same seed are neighbours."""
    return Trial(tuple((each.config, seed) for seed in seeds for each in pack if seed in each.seeds))


class _SampleRecorder(Recorder):
    def __init__(self, store: Store, dealer: Dealer, progress: StudyProgress) -> None:
        super().__init__(store, dealer, progress)
        self._dealer = dealer

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        config, values = self._dealer.running(trial.trial_id)
        self._progress.started(trial.trial_id, self._dealer.trial(trial.trial_id), values, config)

    def _figures(self, records: Sequence[Record]) -> list[float]:
        return []  # the dealer shows what samples found
