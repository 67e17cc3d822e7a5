"""Decide which trial runs next, and which of those that failed run again."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ray.tune.search import Searcher

from hagmeta.common.records.records import RunKey
from hagmeta.engine.run import encoder_key
from study.planning.cost import trial_seconds
from study.planning.plan import Trial
from study.running.trial import TrialSpec

MOST_LOOKED_AT = 50  # waiting trials, to find one that need not wait for an encoder

Encoder = tuple[object, int]  # the settings that it depends on, and a seed


class Supply(Searcher):
    """Gives Tune its trials one at a time; Tune would copy a whole grid for each trial."""

    _running: Mapping[str, Any]  # by the ids of trials in Tune

    def __getstate__(self) -> dict[str, Any]:
        """Return nothing: Tune pickles searchers to restore a study, but our files do that."""
        return {}

    def save(self, checkpoint_path: str) -> None:
        """Do nothing, for the same reason."""

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """Ignore the result; the recorder has it."""

    @property
    @abstractmethod
    def most(self) -> int:
        """The largest number of trials that this supply can give."""

    def is_running(self, trial_id: str) -> bool:
        """Return whether a trial has neither finished nor failed."""
        return trial_id in self._running

    @abstractmethod
    def trial(self, trial_id: str) -> Trial:
        """Return a trial that runs, by its id in Tune."""

    def trained_by(self, trial_id: str) -> str | None:
        """Return the id of the trial that trains the encoder for which a trial waits; None if unknown."""
        return None

    def has_reported(self, trial_id: str, phase: str) -> None:
        """Take the phase that a trial has reached."""

    @abstractmethod
    def finished(self, trial_id: str) -> None:
        """Take a trial whose records are in the store."""

    @abstractmethod
    def failed(self, trial_id: str, error: str | None, *, by_user: bool = False) -> Sequence[Trial]:
        """Take a trial that failed, and return the trials that run instead of it.

        Args:
            trial_id: Its id in Tune.
            error: The exception in one line; None if its worker died.
            by_user: Whether the error is in the user's input, which no retry changes.
        """


class Retries:
    """Decides which trials run again: none after the same exception twice, because it would fail again."""

    def __init__(self, retries: int) -> None:
        self._retries = retries
        self._failures: Counter[str] = Counter()  # by the name of the trial
        self._errors: dict[RunKey, str] = {}  # the last of each run

    def after(self, trial: Trial, error: str | None, *, by_user: bool = False) -> list[Trial]:
        """Return what to run after a failure: the trial, its configurations one by one, or nothing."""
        self._failures[trial.name] += 1
        repeated = error is not None and all(self._errors.get(key) == error for key in trial.keys)
        self._errors |= {key: error for key in trial.keys if error is not None}
        if len(trial.configs) > 1 and (error is not None or self._failures[trial.name] > self._retries):
            return trial.apart()  # one that fails takes no other one with it
        if by_user or repeated or self._failures[trial.name] > self._retries:
            return []
        return [trial]


class Queue(Supply):
    """Gives Tune the trials of a plan, the longest first. Those that failed run again after the others.

    A trial that needs an encoder which a running trial still trains waits, if others are ready.
    """

    def __init__(
        self, trials: Sequence[Trial], spec_of: Callable[[Trial], TrialSpec], retries: int = 0
    ) -> None:
        super().__init__()
        # A long trial that starts last keeps one worker busy while the others idle.
        self._waiting = sorted(trials, key=trial_seconds, reverse=True)
        self._spec_of, self._retries = spec_of, Retries(retries)
        self._running: dict[str, Trial] = {}
        self._pretraining: dict[str, frozenset[Encoder]] = {}  # the encoders of running trials, by id
        self._most = sum((1 + retries) * (1 + len(trial.configs)) for trial in trials)

    @property
    def most(self) -> int:
        """The largest number of trials: each with all retries, and then its configurations."""
        return self._most

    def suggest(self, trial_id: str) -> Any:
        """Return the next trial; None while a running one may have to run again."""
        if not self._waiting:
            return None if self._running else self.FINISHED
        busy = frozenset[Encoder]().union(*self._pretraining.values())
        first = enumerate(self._waiting[:MOST_LOOKED_AT])
        place = next((place for place, each in first if busy.isdisjoint(encoders(each))), 0)
        trial = self._waiting.pop(place)
        self._running[trial_id], self._pretraining[trial_id] = trial, encoders(trial)
        return {"spec": self._spec_of(trial)}

    def trial(self, trial_id: str) -> Trial:
        """Return a trial that runs, by its id in Tune."""
        return self._running[trial_id]

    def has_reported(self, trial_id: str, phase: str) -> None:
        """Take the phase that a trial has reached: after pre-training, its encoders are in the cache."""
        if phase not in ("pre-train", "wait"):
            self._pretraining.pop(trial_id, None)

    def trained_by(self, trial_id: str) -> str | None:
        """Return the id of the trial that trains the encoder for which a trial waits; None if unknown."""
        own = encoders(self._running[trial_id])
        others = (other for other, theirs in self._pretraining.items() if other != trial_id and own & theirs)
        return next(others, None)

    def finished(self, trial_id: str) -> None:
        """Take a trial whose records are in the store."""
        self._running.pop(trial_id, None)
        self._pretraining.pop(trial_id, None)

    def failed(self, trial_id: str, error: str | None, *, by_user: bool = False) -> Sequence[Trial]:
        """Take a trial that failed, and return the trials that run instead of it, after the others."""
        again = self._retries.after(self._running[trial_id], error, by_user=by_user)
        self.finished(trial_id)
        self._waiting += again
        return again


def encoders(trial: Trial) -> frozenset[Encoder]:
    """Return the encoders that a trial pre-trains, or takes from the cache."""
    pairs = ((encoder_key(config), seed) for config, seed in trial.members)
    return frozenset((key, seed) for key, seed in pairs if key is not None)
