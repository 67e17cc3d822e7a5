"""Keep the searches of a launch, one per configuration: propose samples and score them by their records.

Samples are numbered. The first one has the default values, and the starting points of the search follow. The
values of any other sample depend only on the search, its number, and the results of samples with lower
numbers. So a search that was killed continues with the same samples: it proposes them again and finds their
records. Searches that run at the same time do not affect each other. Test labels are not used.

Samples can be proposed in groups, so that each group can run as one pack. The first sample of a group is
drawn as without groups. The others have the same values of all settings that cannot differ within a pack.
All samples of a group are drawn before any of them has a result.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import re
from collections import deque
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cached_property
from typing import Any

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.trial import FrozenTrial, TrialState, create_trial

from hagmeta.common.errors import UserError
from hagmeta.common.records.differences import differing
from hagmeta.common.records.records import RunKey
from hagmeta.common.settings.left_out import hashed_as
from hagmeta.config.run_config import (
    IDENTITY,
    RunConfig,
    may_differ,
    pack_key,
    resolve,
    scopes_of,
    settings_of,
)
from study.planning import data
from study.planning.plan import Trial
from study.search.objective import Score, by_seed, is_scored, objective, score_of
from study.space.spaces import Dimension, Point, Space
from study.store.store import Store
from study.terminal.naming import short_names, value_text

STARTUP = 10  # samples drawn at random, before results count
# Samples of one search that run at once: a sample waits for all but the last 3 before it. Groups run one
# after the other if two of them would have more samples.
AT_ONCE = 4
TRIES = 10  # to draw a sample that differs from the others of its group
# Memory grows with these.
WIDTHS = ("hidden", "embedding", "query_shot", "inner_steps", "smoothing", "prior", "self_training")


@dataclass(frozen=True)
class SearchCell:
    """One search, identified by all its fields: with other ranges or seeds it is another search."""

    given: RunConfig
    seeds: tuple[int, ...]
    dimensions: tuple[Dimension, ...]
    objective: str
    title: str = field(compare=False)  # for people
    group: int = 1
    start: tuple[Point, ...] = ()  # as the space has them, for every search

    @cached_property
    def config(self) -> RunConfig:
        return resolve(self.given)

    @cached_property
    def name(self) -> str:
        """The unique, readable name of the search, which its file has."""
        ranges = [(hashed_as(item.key), item.kind, item.values) for item in self.dimensions]
        whole: list[Any] = [_hashed(self._fixed), self.config.revisions(), self.seeds, ranges, self.objective]
        whole += [_hashed(self.defaults)]
        whole += [self.group] if self.group != 1 else []
        whole += [{"start": [*map(_hashed, self.given_samples[1:])]}] if self.given_samples[1:] else []
        identity = hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()[:16]
        words = re.sub(r"[^A-Za-z0-9.]+", "-", f"{self.config.dataset}-{self.config.method}").strip("-")
        return f"{words[-80:]}-{identity}"

    @property
    def question(self) -> str:
        """The settings that define the task of the search; ranges, seeds and samples are not part of it."""
        asked = {key: self._fixed[key] for key in (*IDENTITY, *self.config.given()) if key in self._fixed}
        return json.dumps(asked, sort_keys=True)

    @cached_property
    def _fixed(self) -> dict[str, Any]:
        """The settings that no sample changes."""
        open_to_it = {*(dimension.key for dimension in self.dimensions), *self.config.unhashed()}
        return {key: value for key, value in self.config.canonical().items() if key not in open_to_it}

    def sample(self, values: dict[str, Any]) -> RunConfig:
        """Return the configuration with these `values`."""
        return resolve(self.given.replace(**values))

    def largest(self, most: int) -> Trial:
        """Return the trial that needs the most memory.

        Args:
            most: The largest number of runs in a trial of several samples.
        """
        widest = {item.key: max(item.values) for item in self.dimensions if item.key in WIDTHS}
        ready = -(-STARTUP // self.group) * self.group  # samples at the beginning: whole groups
        members = max(len(self.seeds), min(most, ready * len(self.seeds)))
        return Trial.of(self.sample(widest), range(members))

    @cached_property
    def defaults(self) -> dict[str, Any]:
        """The values of the first sample: the defaults, as far as they are in the ranges."""
        values = {item: getattr(self.config, item.key) for item in self.dimensions}
        return {item.key: value for item, value in values.items() if item.holds(value)}

    @cached_property
    def given_samples(self) -> list[Point]:
        """The values of the first samples: the defaults, and the starting points that differ here.

        A search takes those settings of a point that it samples. A point is left out if it describes the
        same runs as the defaults or an earlier point.
        """
        sampled = {item.key for item in self.dimensions}
        found: dict[RunConfig, Point] = {}
        for point in ({}, *self.start):
            own = {key: value for key, value in point.items() if key in sampled}
            values = self.defaults | own
            found.setdefault(self.sample(values), values)
        return list(found.values())

    def in_pack_with(self, values: Mapping[str, Any]) -> tuple[Dimension, ...]:
        """Return the dimensions of samples that can share a pack with the sample of these `values`.

        If there are fewer such samples than a group has, return all dimensions.

        Args:
            values: Values that are valid together.
        """
        config = self.sample(dict(values))
        differ, settings = may_differ(config), settings_of(type(config))
        found = []
        for item in self.dimensions:
            value, branches = values[item.key], settings[item.key].metadata["branches"]
            if item.key not in differ or value in branches:
                item = Dimension(item.key, "choice", (value,))
            elif item.kind == "choice":
                item = replace(item, values=tuple(each for each in item.values if each not in branches))
            found.append(item)
        different = math.prod(len(item.values) if item.kind == "choice" else self.group for item in found)
        return tuple(found) if different >= self.group else self.dimensions


@dataclass(eq=False)
class Sample:
    """A drawn sample without a result."""

    number: int
    config: RunConfig
    scores: dict[int, Score] = field(default_factory=dict)  # by seed
    seeds: tuple[int, ...] = ()  # to run
    alone: bool = False  # because a pack with other samples has failed

    @property
    def keys(self) -> set[RunKey]:
        return {(self.config.hash(), seed) for seed in self.seeds}

    def missing(self, seeds: Sequence[int]) -> tuple[int, ...]:
        """Return those of `seeds` that have no score."""
        return tuple(seed for seed in seeds if seed not in self.scores)

    @property
    def kind(self) -> Hashable:
        """Samples of one search and kind may share a pack."""
        return self.number if self.alone else (pack_key(self.config),)


@dataclass
class News:
    """What `SearchHistory.update` has found."""

    found: list[float] = field(default_factory=list)  # the objective of each sample that is complete
    stored: int = 0  # runs whose records were there
    failed: int = 0  # runs that failed samples will not have


class SearchHistory:
    """The samples of a search and their results, rebuilt from the records of the study."""

    def __init__(self, cell: SearchCell, samples: int, store: Store) -> None:
        self.cell, self._store = cell, store
        self.found: dict[int, FrozenTrial] = {}
        self.failed: dict[int, str] = {}  # the reasons
        self.hopeless: set[int] = set()  # those that fail at every launch; the others are tried again
        self.values: dict[int, dict[str, Any]] = {}  # of all drawn samples
        self.waiting: list[Sample] = []  # those that do not run
        self.undrawn = deque(range(samples))
        self._samples = samples
        self._took: dict[RunKey, float] = {}  # seconds of runs

    @property
    def runs(self) -> int:
        """The number of runs with a record, without those of samples that run."""
        return len(self.found) * len(self.cell.seeds) + self._begun

    @property
    def runs_left(self) -> int:
        """The number of runs that samples without a result may need."""
        return len(self.missing) * len(self.cell.seeds) - self._begun

    @property
    def _begun(self) -> int:
        return sum(len(sample.scores) for sample in self.waiting)

    @property
    def missing(self) -> list[int]:
        """The numbers of samples that have no result and have not failed."""
        return [number for number in range(self._samples) if not self._have_ended((number,))]

    def update(self) -> News:
        """Draw the samples that are ready, and end those whose runs are all stored.

        Records in the store count, such as those of an equal sample, or of a launch that was killed.
        """
        news = News()
        self.waiting.sort(key=lambda sample: sample.number)  # a sample may wait for one with a lower number
        self.waiting = [sample for sample in self.waiting if not self._ends(sample, news)]
        while self.undrawn and self.is_ready(self.undrawn[0]):
            number = self.undrawn.popleft()
            try:
                sample = Sample(number, self.cell.sample(self.draw(number)))
            except UserError as error:  # the values are not valid together
                self.fail(number, str(error), hopeless=True)
                news.failed += len(self.cell.seeds)
                continue
            if not self._ends(sample, news):
                self.waiting.append(sample)
        return news

    def _ends(self, sample: Sample, news: News) -> bool:
        """Find the seeds that a sample still has to run; return whether there are none, as it has ended."""
        stored = self.stored(sample.config, sample.missing(self.cell.seeds))
        sample.scores |= stored
        news.stored += len(stored)
        sample.seeds = sample.missing(self.cell.seeds)
        if why := self.why_diverged(sample.config, sample.seeds):
            self.fail(sample.number, why, hopeless=True)
            news.failed += len(sample.seeds)
            return True
        if not sample.seeds:
            scores = [sample.scores[seed] for seed in self.cell.seeds]
            self.tell(sample.number, scores)
            took = timedelta(seconds=sum(self._took[sample.config.hash(), seed] for seed in self.cell.seeds))
            trial = self.found[sample.number]
            assert trial.datetime_complete
            trial.datetime_start = trial.datetime_complete - took  # so that its duration is that of its runs
            news.found.append(objective(scores))
        return not sample.seeds

    def fail(self, number: int, reason: str, *, hopeless: bool = False) -> None:
        """Keep why a sample failed, and whether it would fail again in another launch."""
        self.failed[number] = reason
        self.hopeless |= {number} if hopeless else set()

    def why_diverged(self, config: RunConfig, seeds: Sequence[int]) -> str:
        """Return why a run of a configuration diverged; nothing if none did."""
        keys = [(config.hash(), seed) for seed in seeds]
        return next((why for key in keys if (why := self._store.why_diverged(key))), "")

    def stored(self, config: RunConfig, seeds: Sequence[int]) -> dict[int, Score]:
        """Return the scores of those runs of a configuration that have a record."""
        records = {seed: self._store.find((config.hash(), seed)) for seed in seeds}
        scored = {seed: record for seed, record in records.items() if record and is_scored(record)}
        for seed, record in scored.items():
            self._took[config.hash(), seed] = sum(record["seconds"].values())
        return {seed: score_of(record) for seed, record in scored.items()}

    def is_ready(self, number: int) -> bool:
        """Return whether a sample can be drawn, because all samples that it depends on have ended."""
        return self._have_ended(self._known(number))

    def _known(self, number: int) -> range:
        """Return the samples whose results the values of a sample depend on; none for random samples."""
        group = self.cell.group
        first = number - number % group
        ahead = max(1, AT_ONCE // group) - 1  # groups before this one that may still be running
        return range(first - ahead * group) if first >= STARTUP else range(0)

    def _have_ended(self, numbers: Iterable[int]) -> bool:
        return all(each in self.found or each in self.failed for each in numbers)

    def draw(self, number: int) -> dict[str, Any]:
        """Return the values of a sample; all samples before it must have been drawn."""
        # Without group and start, so that random samples are the same with and without them.
        alike = replace(self.cell, group=1, start=())
        seed = hashlib.sha256(f"{alike.name}/{number}".encode()).digest()
        sampler = optuna.samplers.TPESampler(
            seed=int.from_bytes(seed[:4]), n_startup_trials=STARTUP - AT_ONCE + 1, constant_liar=True
        )
        past = optuna.create_study(direction="maximize", sampler=sampler)
        dimensions, known = self._dimensions(number), self._known(number)
        for earlier in range(number):
            if earlier not in known:  # it may still be running, and always counts as running
                past.add_trial(_for_sampler(self._trial(earlier, dimensions, state=TrialState.RUNNING)))
            elif earlier in self.found:
                past.add_trial(
                    _for_sampler(self._trial(earlier, dimensions, value=self.found[earlier].value))
                )
        if number < len(self.cell.given_samples):
            past.enqueue_trial(_hashed(self.cell.given_samples[number]))
        group = self._before_in_group(number)
        for _ in range(TRIES):
            asked = past.ask(_hashed(distributions(dimensions))).params
            self.values[number] = {item.key: asked[hashed_as(item.key)] for item in dimensions}
            if self.values[number] not in group:
                break
        return self.values[number]

    def _before_in_group(self, number: int) -> list[dict[str, Any]]:
        return [self.values[earlier] for earlier in range(number - number % self.cell.group, number)]

    def _dimensions(self, number: int) -> tuple[Dimension, ...]:
        """Return the dimensions of a sample: all of them, unless it follows another one of its group."""
        if number < len(self.cell.given_samples):
            return self.cell.dimensions
        for values in self._before_in_group(number):
            with contextlib.suppress(UserError):  # not valid together: then the next sample is the first
                return self.cell.in_pack_with(values)
        return self.cell.dimensions

    def tell(self, number: int, scores: Sequence[Score]) -> None:
        """Keep the scores of a complete sample, one per seed."""
        self.found[number] = self._trial(
            number, self.cell.dimensions, value=objective(scores), intermediate_values=by_seed(scores)
        )

    def trials(self) -> dict[int, FrozenTrial]:
        """Return the samples that have ended, by number, as trials of Optuna."""
        failed = {
            number: self._trial(number, self.cell.dimensions, state=TrialState.FAIL) for number in self.failed
        }
        return dict(sorted((self.found | failed).items()))

    def best(self) -> tuple[RunConfig, float] | None:
        """Return the sample with the highest objective, the first among equals; None if all failed."""
        if not self.found:
            return None
        objectives = {number: float(self.found[number].value or 0) for number in sorted(self.found)}
        best = max(objectives, key=lambda number: objectives[number])
        return self.cell.sample(self.values[best]), objectives[best]

    def _trial(self, number: int, dimensions: Sequence[Dimension], **how: Any) -> FrozenTrial:
        """Return a sample for Optuna, with its values inside these `dimensions`."""
        values = self.values[number]
        inside = [item for item in dimensions if item.holds(values[item.key])]
        params = {item.key: values[item.key] for item in inside}
        return create_trial(
            params=params, distributions=distributions(inside), user_attrs={"sample": number}, **how
        )


def _for_sampler(trial: FrozenTrial) -> FrozenTrial:
    """Return a sample by the names that settings have in hashes: what Optuna proposes depends on names."""
    trial.params, trial.distributions = _hashed(trial.params), _hashed(trial.distributions)
    return trial


def _hashed(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return `values` by the names that settings have in hashes."""
    return {hashed_as(name): value for name, value in values.items()}


def open_histories(space: Space, store: Store) -> list[SearchHistory]:
    """Return the history of the search for each configuration, as far as the store has its records."""
    assert space.search is not None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    whole = [config.canonical() for config in space.resolved]
    named = dict.fromkeys(["dataset", "method", *_differing_within_datasets(space.resolved)])
    short = short_names(str(settings[key]) for settings in whole for key in ("dataset", "method"))
    histories = []
    for config, settings in zip(space.configs, whole, strict=True):
        cell = SearchCell(
            config,
            space.seeds,
            _dimensions(space, config),
            space.search.objective,
            " ".join(value_text(settings[key], short) for key in named if key in settings),
            group=space.search.group,
            start=space.search.start,
        )
        history = SearchHistory(cell, space.search.samples, store)
        history.update()
        histories.append(history)
    return histories


def _differing_within_datasets(configs: Sequence[RunConfig]) -> Iterator[str]:
    """Yield the settings that differ between searches on the same dataset."""
    for dataset in dict.fromkeys(config.dataset for config in configs):
        same = [config.canonical() for config in configs if config.dataset == dataset]
        yield from differing(same, scopes_of(configs))


def _dimensions(space: Space, config: RunConfig) -> tuple[Dimension, ...]:
    """Return what a search samples for a configuration; ``inputs`` only varies for count features."""
    found = space.dimensions(config)
    if any(dimension.key == "inputs" for dimension in found) and data.load(config.dataset).kind != "counts":
        return tuple(dimension for dimension in found if dimension.key != "inputs")
    return found


def distributions(dimensions: Sequence[Dimension]) -> dict[str, BaseDistribution]:
    """Return the ranges of a search in terms of Optuna."""
    return {dimension.key: _distribution(dimension) for dimension in dimensions}


def _distribution(dimension: Dimension) -> BaseDistribution:
    if dimension.kind == "choice":
        return CategoricalDistribution(dimension.values)
    low, high = dimension.values
    if dimension.kind == "randint":
        return IntDistribution(low, high)
    return FloatDistribution(low, high, log=dimension.kind == "loguniform")
