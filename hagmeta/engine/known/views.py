"""The visible graph of each seed, and the inputs of its first layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from torch import Tensor

from hagmeta.config.settings import PhaseSettings
from hagmeta.datasets.features import Kind
from hagmeta.engine.cache import Cache, shared_inputs
from hagmeta.layers.encoders.registry import ENCODERS
from hagmeta.methods import METHODS
from hagmeta.methods.base import Sizes
from hagmeta.packs.pack import once_each, stack
from hagmeta.scenarios import Protocol
from hagmeta.scenarios.scenario import Scenario
from hagmeta.sparse.graph import Graph, View
from hagmeta.sparse.inputs import Inputs, narrow_inputs, width_of


@dataclass(frozen=True)
class Views:
    """Creates views of a graph, with the inputs of each seed."""

    graph: Graph
    scenarios: Sequence[Scenario]
    settings: PhaseSettings
    protocol: Protocol
    cache: Cache | None = None  # where runs share inputs that are slow to compute
    _last: dict[Any, Graph] = field(default_factory=dict)  # the last result of `graph_of`

    @property
    def sizes(self) -> Sizes:
        """The sizes that a method needs to create its parameters."""
        scenario, n_way = self.scenarios[0], self.settings.n_way
        assert n_way
        return Sizes(
            features=width_of(self.settings.inputs, self.graph.num_features),
            base_classes=len(scenario.split.base),
            n_way=n_way,
            classes=scenario.num_classes,
            narrow=self._narrow_inputs[1],
            nodes=self.graph.num_nodes,
        )

    def seen_first(self, scenario: Scenario) -> np.ndarray:
        """Return which nodes (nodes,) are visible in training. Nodes of held-out classes are not."""
        return self.protocol.visible(scenario, scenario.validation, 0)

    def view(self, scenarios: Sequence[Scenario], visible: Sequence[np.ndarray]) -> View:
        """Return the view of some seeds, given a boolean array (nodes,) for each."""
        inputs, narrow = self.inputs, self.narrow
        if len(scenarios) < len(self.scenarios):
            seeds = [scenario.seed for scenario in self.scenarios]
            places = [seeds.index(scenario.seed) for scenario in scenarios]
            inputs, narrow = (tuple(part[places] for part in parts) for parts in (inputs, narrow))
        pool = once_each(self.protocol.learnable, scenarios, visible)
        if self._refits_words:
            narrow = self._stacked(once_each(lambda seen: self.graph.inputs("tf-idf", seen), pool))
        view = self.graph.view(np.stack(visible))._replace(inputs=inputs, narrow=narrow)
        if self.settings.unlabelled_nodes == "all":
            return view
        return view._replace(pool=(stack(pool).to(view.visible),))

    def graph_of(
        self, scenarios: Sequence[Scenario], visible: Sequence[np.ndarray], view: View, steps: int
    ) -> Graph:
        """Return the graph for some seeds, with inputs propagated once if that saves time.

        Args:
            scenarios: The scenario of each seed.
            visible: A boolean array (nodes,) for each seed.
            view: The view made from them.
            steps: Gradient steps on this view. With 0, inputs are used only if they are there already.
        """
        key = tuple(
            (scenario.seed, seen.tobytes()) for scenario, seen in zip(scenarios, visible, strict=True)
        )
        if key in self._last:
            return self._last[key]
        method = METHODS[self.settings.method]
        kinds = method.propagations(self.settings)
        columns = ENCODERS[self.settings.encoder].first_width(self.settings) * method.passes(self.settings)
        if not kinds or not steps or not self.graph.pays_once(self.settings.inputs, steps, columns):
            return self.graph
        self._last.clear()  # first, because two graphs of a large dataset may not fit into memory
        self._last[key] = self.graph.propagated_once(kinds, view, [s.seed for s in scenarios])
        return self._last[key]

    @cached_property
    def inputs(self) -> tuple[Tensor, ...]:
        """The inputs of the first layer of each seed, computed from nodes visible in training."""
        return self._made(self.settings.inputs)

    @cached_property
    def narrow(self) -> tuple[Tensor, ...]:
        """The reduced inputs of each seed, if the method propagates them."""
        kind = lasting_inputs(self.settings, self.graph.kind, self.graph.num_features)
        if not kind:
            return ()
        return self.inputs if kind == self.settings.inputs else self._made(kind)

    @property
    def _narrow_inputs(self) -> tuple[str, int]:
        return narrow_inputs(self.graph.kind, self.graph.num_features)

    @property
    def _refits_words(self) -> bool:
        return _refits_words(self.settings, self._narrow_inputs[0])

    def _made(self, kind: str) -> tuple[Tensor, ...]:
        if kind == "raw":
            return ()

        def made(scenario: Scenario) -> Inputs:
            fitted_on = self.protocol.learnable(scenario, self.seen_first(scenario))
            return shared_inputs(kind, self.graph, fitted_on, self.cache)

        return self._stacked(once_each(made, self.scenarios))

    def _stacked(self, made: list[Inputs]) -> tuple[Tensor, ...]:
        return tuple(stack(part).to(self.graph.device) for part in zip(*made, strict=True))


def lasting_inputs(settings: PhaseSettings, kind: Kind, num_features: int) -> str:
    """Return which reduced inputs a method propagates, if they are the same in all sessions, or nothing.

    Args:
        settings: The resolved configuration.
        kind: The kind of the features.
        num_features: The number of features.
    """
    method = METHODS[settings.method]
    inputs, columns = narrow_inputs(kind, num_features)
    if _refits_words(settings, inputs):
        return ""
    return inputs if method.narrow_columns(settings, columns) else ""


def _refits_words(settings: PhaseSettings, inputs: str) -> bool:
    """Return whether reduced inputs are computed again from what is visible in each session."""
    return METHODS[settings.method].refits_words(settings) and inputs == "svd"
