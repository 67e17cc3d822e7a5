"""Hyperparameter searches on Ray Tune: the samples of all of them in one run, so that no slot is idle.

What is proposed, and what is kept of it, is in ``history``; this is how the samples get to the machines.
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
    """Run the samples that are missing; what they find is in the histories, their records in the store."""

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
    """Deals samples from several searches in turn, the lowest number first, and tells each what it found."""

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
        self._running: dict[str, tuple[SearchHistory, int, Trial]] = {}  # by Tune's name

    def suggest(self, trial_id: str) -> Any:
        """The next sample to run; None while all that are left wait for others to end."""
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
            except UserError as error:  # values that do not go together
                self._missing[place].popleft()
                history.tell_failure(number, str(error))
                self._progress.has_failed(trial_id, history.cell.usual)
                continue
            if any(trial == other for _, _, other in self._running.values()):
                return None  # drawn twice: the second is told what the first finds
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
        """A sample ended; one that ran out of time is left as if it had not been drawn."""
        history, number, _ = self._running.pop(trial_id)
        if result and "val_accuracy" in result and not error:
            history.tell(number, result["val_accuracy"])
        elif error or (result and "failed" in result):
            history.tell_failure(number, (result or {}).get("failed", "its run failed"))

    def running(self, trial_id: str) -> tuple[Trial, dict[str, Any]]:
        """The trial by which a sample's time is foreseen, and the sample's values."""
        history, number, _ = self._running[trial_id]
        return history.cell.usual, history.values[number]

    def _kept(self, trial: Trial) -> list[Record]:
        """The records of a sample that a kill kept from being told, or of an equal one."""
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
