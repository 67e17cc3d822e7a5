"""The searches of a launch, one a configuration: what each is, what it proposes, and what it has found.

A sample has a number. The first has the defaults. The values of another follow from the search, from its
number, and from what samples with lower numbers have found: a search that was killed goes on as if it had not
been, and one that runs beside others proposes what it would alone. Test labels play no part.
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
from study.plan import Trial
from study.space import Dimension, Space
from study.store import Store

STARTUP = 10  # samples drawn at random, before what was found counts
AT_ONCE = 4  # a later sample is drawn when all but so many before it have ended: so many run side by side
# Memory grows with these.
WIDTHS = ("hidden", "embedding", "query_shot", "inner_steps", "smoothing", "self_training")


@dataclass(frozen=True)
class SearchCell:
    """One search. All of it is its identity: with other ranges or seeds it is another."""

    given: RunConfig
    seeds: tuple[int, ...]
    dimensions: tuple[Dimension, ...]
    objective: str
    title: str = field(compare=False)  # for people
    graph: str = ""  # the data's fingerprint, where a search on another graph of this name is there already

    @cached_property
    def config(self) -> RunConfig:
        return resolve(self.given)

    @cached_property
    def name(self) -> str:
        """Of its study in Optuna's storage: readable, and no other's."""
        ranges = [(item.key, item.kind, item.values) for item in self.dimensions]
        whole = [self._fixed, self.config.revisions(), self.seeds, ranges, self.objective, self.defaults]
        identity = hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()[:16]
        words = re.sub(r"[^A-Za-z0-9.]+", "-", f"{self.config.dataset}-{self.config.method}").strip("-")
        return f"{words[-80:]}-{identity}" + (f"-{self.graph[:8]}" if self.graph else "")

    @property
    def question(self) -> str:
        """What is searched for: other ranges, seeds or samples are another answer to it."""
        told = {key: self._fixed[key] for key in (*IDENTITY, *self.config.given()) if key in self._fixed}
        return json.dumps(told, sort_keys=True)

    @cached_property
    def _fixed(self) -> dict[str, Any]:
        """The settings that no sample changes."""
        open_to_it = {*(dimension.key for dimension in self.dimensions), *self.config.unhashed()}
        return {key: value for key, value in self.config.canonical().items() if key not in open_to_it}

    def sample(self, values: dict[str, Any]) -> RunConfig:
        """The configuration with these values."""
        return resolve(replace(self.given, **values))

    @cached_property
    def usual(self) -> Trial:
        """What a sample is taken for before its values are known."""
        return Trial(self.config, self.seeds)

    def largest(self) -> Trial:
        """What a sample must have room for."""
        widest = {item.key: max(item.values) for item in self.dimensions if item.key in WIDTHS}
        return Trial(self.sample(widest), self.seeds)

    @cached_property
    def defaults(self) -> dict[str, Any]:
        """What is tried first: the values without a search, as far as they are in the ranges."""
        values = {item: getattr(self.config, item.key) for item in self.dimensions}
        return {item.key: value for item, value in values.items() if item.holds(value)}

    @cached_property
    def distributions(self) -> dict[str, BaseDistribution]:
        return {dimension.key: _distribution(dimension) for dimension in self.dimensions}


class SearchHistory:
    """What a search has found: in Optuna's storage, sample by sample as they end."""

    def __init__(self, cell: SearchCell, samples: int, study: optuna.Study | None) -> None:
        self.cell, self._samples, self._study = cell, samples, study
        known = study.get_trials(states=[TrialState.COMPLETE]) if study else []
        by_number = {trial.user_attrs["sample"]: trial for trial in known}
        self.found: dict[int, FrozenTrial] = {n: by_number[n] for n in range(samples) if n in by_number}
        self.values = {number: trial.params for number, trial in self.found.items()}  # and of those running
        self.failed: dict[int, str] = {}  # in this launch, and why: the next one tries again

    @property
    def missing(self) -> list[int]:
        """Samples that have not ended well."""
        return [number for number in range(self._samples) if number not in self.found]

    def is_ready(self, number: int) -> bool:
        """Whether a sample can be drawn: all that it goes by have ended."""
        before = range(number - AT_ONCE + 1) if number >= STARTUP else range(0)
        return all(each in self.found or each in self.failed for each in before)

    def draw(self, number: int) -> dict[str, Any]:
        """The values of a sample, those before it having been drawn."""
        seed = hashlib.sha256(f"{self.cell.name}/{number}".encode()).digest()
        sampler = optuna.samplers.TPESampler(
            seed=int.from_bytes(seed[:4]), n_startup_trials=STARTUP - AT_ONCE + 1, constant_liar=True
        )
        past = optuna.create_study(direction="maximize", sampler=sampler)
        for earlier in range(number):
            if earlier > number - AT_ONCE:  # it may still run, and counts as if it did
                past.add_trial(self._trial(self.values[earlier], state=TrialState.RUNNING))
            elif earlier in self.found:
                past.add_trial(self._trial(self.values[earlier], value=self.found[earlier].value))
        if not number:
            past.enqueue_trial(self.cell.defaults)
        self.values[number] = past.ask(self.cell.distributions).params
        return self.values[number]

    def tell(self, number: int, value: float) -> None:
        """A sample ended well."""
        trial = self._trial(self.values[number], value=value, user_attrs={"sample": number})
        self._keep(trial)
        self.found[number] = trial

    def tell_failure(self, number: int, reason: str) -> None:
        self._keep(self._trial(self.values[number], state=TrialState.FAIL, user_attrs={"sample": number}))
        self.failed[number] = reason

    def best(self) -> tuple[RunConfig, float] | None:
        """The sample with the highest objective, the first of equals; None where none ended well."""
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
    """Of the search for each configuration, from the study's ``optuna.db``, which is made or left unmade."""
    assert space.search is not None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    path = store.folder.resolve() / "optuna.db"
    storage = optuna.storages.RDBStorage(f"sqlite:///{path}") if make or path.exists() else None
    there = optuna.get_all_study_names(storage) if storage else []
    whole = [config.canonical() for config in space.resolved]
    told = dict.fromkeys(["dataset", "method", *_differing_within_datasets(whole)])
    histories = []
    for config, settings in zip(space.configs, whole, strict=True):
        title = " ".join(str(settings[key]) for key in told if key in settings)
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
    """The settings that tell the searches on a dataset apart; what it decides itself does not."""
    for dataset in dict.fromkeys(config["dataset"] for config in configs):
        yield from differing([config for config in configs if config["dataset"] == dataset])


def _dimensions(space: Space, config: RunConfig) -> tuple[Dimension, ...]:
    """What is sampled for a configuration, on its data: features that are no counts have one way to enter."""
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
