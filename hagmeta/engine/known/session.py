"""What a pack sees and knows in training and in each session."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse
import torch

from hagmeta.config.settings import PhaseSettings
from hagmeta.engine.known.views import Views
from hagmeta.methods import METHODS
from hagmeta.methods.base import MetaTraining, SessionLearning
from hagmeta.packs.pack import Pack, once_each
from hagmeta.scenarios import Protocol
from hagmeta.scenarios.scenario import Scenario, Stream
from hagmeta.sparse.graph import ClassMeans, Graph, View


@dataclass(frozen=True)
class Known:
    """What is visible and known during training or one session."""

    view: View
    class_means: ClassMeans
    averaged_over: tuple[tuple[np.ndarray, np.ndarray], ...]  # per seed: nodes, and their given labels
    graph: Graph  # with inputs propagated once for this view, if that saves time
    all_averaged: bool = False  # all classes are known by averages, not only those known at the start


@dataclass(frozen=True)
class KnownAt:
    """Creates `Known` from the nodes and labels that the protocol allows."""

    graph: Graph
    scenarios: Sequence[Scenario]
    settings: PhaseSettings
    protocol: Protocol
    views: Views

    @property
    def oracle(self) -> bool:
        """Whether the method knows the train labels of every class seen so far."""
        return METHODS[self.settings.method].traits.oracle and self.protocol.has_oracles

    @property
    def knows_true_means(self) -> bool:
        """Whether class means are over all train nodes, even for classes known by supports."""
        given = METHODS[self.settings.method].knows_true_means(self.settings)
        return given and self.protocol.has_oracles

    def training(self) -> Known:
        """Return what is known in meta-training, without any label of novel-test or held-out classes."""
        training = METHODS[self.settings.method].training_of(self.settings)
        everything = training is MetaTraining.SUPERVISED or self.knows_true_means
        known = once_each(
            lambda s: self.protocol.known_in_training(s, s.trained if everything else s.validation.known),
            self.scenarios,
        )
        steps = 0 if training is MetaTraining.NONE else self.settings.episodes
        return self._known([s.validation for s in self.scenarios], 0, known, steps=steps)

    def session(self, streams: Sequence[Stream], session: int, *, learns: bool = True) -> Known:
        """Return what is known in `session` of `streams`, one per seed. `learns`: gradient steps follow."""

        def known(scenario: Scenario, stream: Stream) -> np.ndarray:
            nodes = self.protocol.known_in_session(scenario, stream, session)
            if not self.knows_true_means:
                return nodes
            return np.concatenate([nodes, scenario.train_nodes_arrived(stream, session)])

        if self.oracle:
            met = once_each(lambda w, s: w.train_nodes_met(s, session), self.scenarios, streams)
            return self.known_by(streams, session, met, learns=learns)
        steps = self._session_steps if learns else 0
        return self._known(streams, session, once_each(known, self.scenarios, streams), steps=steps)

    def known_by(
        self,
        streams: Sequence[Stream],
        session: int,
        nodes: list[np.ndarray],
        labels: list[np.ndarray] | None = None,
        *,
        learns: bool = True,
    ) -> Known:
        """Return what is known in `session` if every class is the average over some of `nodes`.

        `labels` are the given labels of the nodes, which may be wrong.
        """
        steps = self._session_steps if learns else 0
        return self._known(streams, session, nodes, labels, all_averaged=True, steps=steps)

    @property
    def _session_steps(self) -> int:
        """The steps on the view of a session. Predictions count as one."""
        if self.protocol.scores_while_learning:
            return 1
        method = METHODS[self.settings.method]
        learns = method.session_learning is not SessionLearning.NONE
        return 1 + (self.settings.finetune_steps if learns else 0)

    @torch.no_grad()
    def with_fixed_features(self, pack: Pack, known: Known) -> Known:
        """Return `known` with the features that no step changes, if the method has some."""
        if not METHODS[self.settings.method].has("fixed_features"):
            return known
        features = pack.run("fixed_features", (known.graph,), known.view)
        return replace(known, view=known.view._replace(fixed_features=(features,)))

    def _known(
        self,
        streams: Sequence[Stream],
        session: int,
        known_by: list[np.ndarray],
        labels: list[np.ndarray] | None = None,
        all_averaged: bool = False,
        *,
        steps: int,
    ) -> Known:
        seen = once_each(lambda w, s: self.protocol.visible(w, s, session), self.scenarios, streams)
        if labels is None:
            labels = once_each(lambda scenario, nodes: scenario.labels[nodes], self.scenarios, known_by)
        members = once_each(self._averaging_weights, self.scenarios, known_by, labels)
        means = self.graph.class_means(members, np.stack(seen))
        averaged_over = tuple(zip(known_by, labels, strict=True))
        view = self.views.view(self.scenarios, seen)
        graph = self.views.graph_of(self.scenarios, seen, view, 0 if self._is_frozen else steps)
        return Known(view, means, averaged_over, graph, all_averaged)

    @property
    def _is_frozen(self) -> bool:
        """Whether no step runs the encoder, because it never changes."""
        return METHODS[self.settings.method].freezes_encoder

    def _averaging_weights(
        self, scenario: Scenario, nodes: np.ndarray, labels: np.ndarray
    ) -> scipy.sparse.csr_matrix:
        """Return averaging weights (classes, nodes) over `nodes`, each assigned to its label."""
        share = 1 / np.bincount(labels, minlength=scenario.num_classes).clip(min=1)
        values = share[labels].astype(np.float32)
        shape = (scenario.num_classes, self.graph.num_nodes)
        return scipy.sparse.csr_matrix((values, (labels, nodes)), shape=shape)
