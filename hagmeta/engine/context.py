"""The objects that all phases of a pack share: the graph, one scenario per seed, and helpers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from hagmeta.config.settings import PhaseSettings
from hagmeta.engine.cache import Cache, Fits
from hagmeta.engine.known.session import KnownAt
from hagmeta.engine.known.tasks import TaskMaker
from hagmeta.engine.known.views import Views
from hagmeta.engine.runtime import Runtime
from hagmeta.methods import METHODS
from hagmeta.methods.base import MetaTraining, Method
from hagmeta.scenarios import Protocol, make_protocol
from hagmeta.scenarios.scenario import Scenario
from hagmeta.sparse.graph import Graph


@dataclass(frozen=True)
class Context:
    """The members of a pack, with helpers for execution, known and tasks.

    A member is a configuration and a seed. `settings` are those of the first member; the others differ only
    in numbers that steps read (`Method.differs`).
    """

    graph: Graph
    scenarios: Sequence[Scenario]
    settings: PhaseSettings
    runtime: Runtime
    cache: Cache | None = None  # where runs share inputs that are slow to compute
    fits: Fits | None = None  # of a learner: its inputs are fitted once

    @property
    def seeds(self) -> list[int]:
        return [scenario.seed for scenario in self.scenarios]

    @property
    def members(self) -> Sequence[PhaseSettings]:
        """The settings of each member."""
        return self.runtime.members or [self.settings] * len(self.scenarios)

    @property
    def method(self) -> type[Method]:
        return METHODS[self.settings.method]

    @property
    def meta_training(self) -> MetaTraining:
        """What the configured method learns from before the first session."""
        return self.method.training_of(self.settings)

    @cached_property
    def protocol(self) -> Protocol:
        return make_protocol(self.settings)

    @cached_property
    def known(self) -> KnownAt:
        """The source of what is visible and known in each phase."""
        source = self.fits or self.cache
        views = Views(self.graph, self.scenarios, self.settings, self.protocol, source)
        return KnownAt(self.graph, self.scenarios, self.settings, self.protocol, views)

    @cached_property
    def tasks(self) -> TaskMaker:
        """The maker of the method's tasks."""
        assert self.settings.n_way
        return TaskMaker(self.graph, self.scenarios, self.protocol, self.settings.n_way)
