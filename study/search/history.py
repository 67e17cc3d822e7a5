"""Keep the searches of a launch, one per configuration: propose samples and store their results.

Samples are numbered, and the first one has the default values. The values of any other sample depend only on
the search, its number, and the results of samples with lower numbers. So a search that was killed continues
with the same samples, and searches that run at the same time do not affect each other. Test labels are not
used.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
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

from hagmeta.common.differences import differing
from hagmeta.config import IDENTITY, RunConfig, resolve
from study import data
from study.naming import short_names, value_text
from study.plan import Trial
from study.space import Dimension, Space
from study.store import Store

STARTUP = 10  # samples drawn at random, before results count
AT_ONCE = 4  # samples of one search that run at once; a sample waits for all but the last 3 before it
# Memory grows with these.
WIDTHS = ("hidden", "embedding", "query_shot", "inner_steps", "smoothing", "self_training")


@dataclass(frozen=True)
class SearchCell:
    """One search, identified by all its fields: with other ranges or seeds it is another search."""

    given: RunConfig
    seeds: tuple[int, ...]
    dimensions: tuple[Dimension, ...]
    objective: str
    title: str = field(compare=False)  # for people
    graph: str = ""  # the fingerprint of the data, if another graph of this name was searched before

    @cached_property
    def config(self) -> RunConfig:
        return resolve(self.given)

    @cached_property
    def name(self) -> str:
        """The unique, readable name of the study in Optuna's storage."""
        ranges = [(item.key, item.kind, item.values) for item in self.dimensions]
        whole = [self._fixed, self.config.revisions(), self.seeds, ranges, self.objective, self.defaults]
        identity = hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()[:16]
        words = re.sub(r"[^A-Za-z0-9.]+", "-", f"{self.config.dataset}-{self.config.method}").strip("-")
        return f"{words[-80:]}-{identity}" + (f"-{self.graph[:8]}" if self.graph else "")

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
        return resolve(replace(self.given, **values))

    @cached_property
    def usual(self) -> Trial:
        """The trial that represents a sample before its values are known."""
        return Trial(self.config, self.seeds)

    def largest(self) -> Trial:
        """Return the trial that needs the most memory."""
        widest = {item.key: max(item.values) for item in self.dimensions if item.key in WIDTHS}
        return Trial(self.sample(widest), self.seeds)

    @cached_property
    def defaults(self) -> dict[str, Any]:
        """The values of the first sample: the defaults, as far as they are in the ranges."""
        values = {item: getattr(self.config, item.key) for item in self.dimensions}
        return {item.key: value for item, value in values.items() if item.holds(value)}

    @cached_property
    def distributions(self) -> dict[str, BaseDistribution]:
        return {dimension.key: _distribution(dimension) for dimension in self.dimensions}


class SearchHistory:
    """The results of a search, stored by Optuna as soon as each sample ends."""

    def __init__(self, cell: SearchCell, samples: int, study: optuna.Study | None) -> None:
        self.cell, self._samples, self._study = cell, samples, study
        known = study.get_trials(states=[TrialState.COMPLETE]) if study else []
        by_number = {trial.user_attrs["sample"]: trial for trial in known}
        self.found: dict[int, FrozenTrial] = {n: by_number[n] for n in range(samples) if n in by_number}
        self.values = {
            number: trial.params for number, trial in self.found.items()
        }  # also of running samples
        self.failed: dict[int, str] = {}  # the reasons, in this launch; the next launch tries again

    @property
    def missing(self) -> list[int]:
        """The numbers of samples without a result."""
        return [number for number in range(self._samples) if number not in self.found]

    def is_ready(self, number: int) -> bool:
        """Return whether a sample can be drawn, because all samples that it depends on have ended."""
        before = range(number - AT_ONCE + 1) if number >= STARTUP else range(0)
        return all(each in self.found or each in self.failed for each in before)

    def draw(self, number: int) -> dict[str, Any]:
        """Return the values of a sample; all samples before it must have been drawn."""
        seed = hashlib.sha256(f"{self.cell.name}/{number}".encode()).digest()
        sampler = optuna.samplers.TPESampler(
            seed=int.from_bytes(seed[:4]), n_startup_trials=STARTUP - AT_ONCE + 1, constant_liar=True
        )
        past = optuna.create_study(direction="maximize", sampler=sampler)
        for earlier in range(number):
            if earlier > number - AT_ONCE:  # it may still be running, and always counts as running
                past.add_trial(self._trial(self.values[earlier], state=TrialState.RUNNING))
            elif earlier in self.found:
                past.add_trial(self._trial(self.values[earlier], value=self.found[earlier].value))
        if not number:
            past.enqueue_trial(self.cell.defaults)
        self.values[number] = past.ask(self.cell.distributions).params
        return self.values[number]

    def tell(self, number: int, value: float) -> None:
        """Store the objective `value` of a sample."""
        trial = self._trial(self.values[number], value=value, user_attrs={"sample": number})
        self._keep(trial)
        self.found[number] = trial

    def tell_failure(self, number: int, reason: str) -> None:
        """Store that a sample failed, and keep the `reason` for this launch."""
        self._keep(self._trial(self.values[number], state=TrialState.FAIL, user_attrs={"sample": number}))
        self.failed[number] = reason

    def best(self) -> tuple[RunConfig, float] | None:
        """Return the sample with the highest objective, the first among equals; None if all failed."""
        if not self.found:
            return None
        objectives = {number: float(self.found[number].value or 0) for number in sorted(self.found)}
        best = max(objectives, key=lambda number: objectives[number])
        return self.cell.sample(self.values[best]), objectives[best]

    def _keep(self, trial: FrozenTrial) -> None:
        assert self._study is not None
        self._study.add_trial(trial)

    def _trial(self, values: dict[str, Any], **how: Any) -> FrozenTrial:
        return create_trial(params=values, distributions=self.cell.distributions, **how)


def open_histories(space: Space, store: Store, *, make: bool = True) -> list[SearchHistory]:
    """Open the history of the search for each configuration, in the study's ``optuna.db``.

    Args:
        space: The space of the searches.
        store: The folder of the study.
        make: Whether to create what does not exist yet.
    """
    assert space.search is not None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    path = store.folder.resolve() / "optuna.db"
    storage = optuna.storages.RDBStorage(f"sqlite:///{path}") if make or path.exists() else None
    there = optuna.get_all_study_names(storage) if storage else []
    whole = [config.canonical() for config in space.resolved]
    named = dict.fromkeys(["dataset", "method", *_differing_within_datasets(whole)])
    short = short_names(str(settings[key]) for settings in whole for key in ("dataset", "method"))
    histories = []
    for config, settings in zip(space.configs, whole, strict=True):
        title = " ".join(value_text(settings[key], short) for key in named if key in settings)
        cell = SearchCell(config, space.seeds, _dimensions(space, config), space.search.objective, title)
        graph = store.graphs.get(cell.config.dataset, "")
        if storage and graph and cell.name in there:
            other = optuna.load_study(study_name=cell.name, storage=storage).user_attrs.get("data", graph)
            cell = replace(cell, graph=graph if other != graph else "")
        study = None
        if make or cell.name in there:
            study = optuna.create_study(
                storage=storage, study_name=cell.name, direction="maximize", load_if_exists=True
            )
            if graph and make:
                study.set_user_attr("data", graph)
        histories.append(SearchHistory(cell, space.search.samples, study))
    return histories


def _differing_within_datasets(configs: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the settings that differ between searches on the same dataset."""
    for dataset in dict.fromkeys(config["dataset"] for config in configs):
        yield from differing([config for config in configs if config["dataset"] == dataset])


def _dimensions(space: Space, config: RunConfig) -> tuple[Dimension, ...]:
    """Return what a search samples for a configuration; ``inputs`` only varies for count features."""
    found = space.dimensions(config)
    if any(dimension.key == "inputs" for dimension in found) and not data.load(config.dataset).has_counts:
        return tuple(dimension for dimension in found if dimension.key != "inputs")
    return found


def _distribution(dimension: Dimension) -> BaseDistribution:
    if dimension.kind == "choice":
        return CategoricalDistribution(dimension.values)
    low, high = dimension.values
    if dimension.kind == "randint":
        return IntDistribution(low, high)
    return FloatDistribution(low, high, log=dimension.kind == "loguniform")
