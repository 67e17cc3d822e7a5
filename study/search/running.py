"""Run the samples of all searches in one Ray Tune run, so that no slot is idle.

``history`` proposes the samples and keeps their results.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ray import tune

from hagmeta.common.errors import UserError
from hagmeta.common.records import Record
from hagmeta.config import RunConfig
from hagmeta.datasets.base import Dataset
from study.plan import Plan, Trial
from study.progress import StudyProgress
from study.resources import Resources
from study.search.history import SearchHistory
from study.search.objective import is_scored, objective
from study.store import Store
from study.trial import TrialSpec, run_sample
from study.tuning import Recorder, Supply, make_spec, run_tuner


def run_searches(
    histories: Sequence[SearchHistory],
    store: Store,
    resources: Resources,
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

    dealer = Dealer(histories, store, progress, spec_of)
    run_tuner(
        run_sample,
        dealer,
        sum(len(history.missing) for history in histories),
        store,
        resources,
        [_SampleRecorder(store, dealer, progress), *loggers],
        retries=retries,
        time_budget=time_budget,
        lent=lent,
    )


class Dealer(Supply):
    """Gives Tune the samples of several searches, lowest number first, and returns results to each search."""

    def __init__(
        self,
        histories: Sequence[SearchHistory],
        store: Store,
        progress: StudyProgress,
        spec_of: Callable[[Trial], TrialSpec],
    ) -> None:
        super().__init__(metric="val_accuracy", mode="max")
        self._histories, self._store, self._progress, self._spec_of = histories, store, progress, spec_of
        self._missing = [deque(history.missing) for history in histories]
        self._running: dict[str, tuple[SearchHistory, int, Trial]] = {}  # by the trial's id in Tune

    def suggest(self, trial_id: str) -> Any:
        """Return the next sample to run, or None while all of them wait for running samples."""
        while any(self._missing):
            ready = [
                (missing[0], place)
                for place, missing in enumerate(self._missing)
                if missing and self._histories[place].is_ready(missing[0])
            ]
            if not ready:
                return None
            number, place = min(ready)
            history = self._histories[place]
            try:
                trial = Trial(history.cell.sample(history.draw(number)), history.cell.seeds)
            except UserError as error:  # the values are not valid together
                self._missing[place].popleft()
                history.tell_failure(number, str(error))
                self._progress.has_failed(trial_id, history.cell.usual)
                continue
            if any(trial == other for _, _, other in self._running.values()):
                return None  # drawn twice: the second one gets the result of the first
            self._missing[place].popleft()
            if records := self._kept(trial):
                history.tell(number, objective(records))
                self._progress.finished_before(history.cell.usual, [objective(records)])
                continue
            self._running[trial_id] = history, number, trial
            return {"spec": self._spec_of(trial)}
        return self.FINISHED

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """Store how a sample ended; one that ran out of time counts as not drawn."""
        history, number, _ = self._running.pop(trial_id)
        if result and "val_accuracy" in result and not error:
            history.tell(number, result["val_accuracy"])
        elif error or (result and "failed" in result):
            history.tell_failure(number, (result or {}).get("failed", "its run failed"))

    def running(self, trial_id: str) -> tuple[Trial, dict[str, Any]]:
        """Return the trial that predicts the time of a sample, and the values of the sample."""
        history, number, _ = self._running[trial_id]
        return history.cell.usual, history.values[number]

    def _kept(self, trial: Trial) -> list[Record]:
        """Return stored records of this or an equal sample, such as one from a launch that was killed."""
        found = [self._store.find(key) for key in trial.keys]
        records = [record for record in found if record is not None and is_scored(record)]
        return records if len(records) == len(found) else []


class _SampleRecorder(Recorder):
    def __init__(self, store: Store, dealer: Dealer, progress: StudyProgress) -> None:
        super().__init__(store, Plan((), (), ()), progress)
        self._dealer = dealer

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._progress.started(trial.trial_id, *self._dealer.running(trial.trial_id))

    def _figures(self, records: Sequence[Record]) -> list[float]:
        return [objective(records)]

    def _of(self, trial: Any) -> Trial:
        spec = trial.config["spec"]
        return Trial(RunConfig.from_mapping(spec["config"]), tuple(spec["seeds"]))
