"""What a pack sees and knows in training and in each session."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse
import torch

from hagmeta.methods import METHODS
from hagmeta.methods.base import MetaTraining, SessionLearning
from hagmeta.methods.parts import CachesFeatures, KnowsTrueMeans
from hagmeta.packs.pack import Pack
from hagmeta.phases.settings import PhaseSettings
from hagmeta.phases.views import Views
from hagmeta.protocol import Protocol
from hagmeta.protocol.scenario import Scenario, Stream
from hagmeta.sparse.graph import ClassMeans, Graph, View


@dataclass(frozen=True)
class Knowledge:
    """What is visible and known during training or one session."""

    view: View
    class_means: ClassMeans
    averaged_over: tuple[tuple[np.ndarray, np.ndarray], ...]  # per seed: nodes, and their given labels
    graph: Graph  # with inputs propagated once for this view, if that saves time
    all_averaged: bool = False  # all classes are known by averages, not only those known at the start


@dataclass(frozen=True)
class KnowledgeSource:
    """Creates `Knowledge` from the nodes and labels that the protocol allows."""

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
        method = METHODS[self.settings.method]
        given = issubclass(method, KnowsTrueMeans) and method.knows_true_means(self.settings)
        return given and self.protocol.has_oracles

    def training(self) -> Knowledge:
        """Return what is known in meta-training, without any label of novel-test or held-out classes."""
        training = METHODS[self.settings.method].training_of(self.settings)
        everything = training is MetaTraining.SUPERVISED or self.knows_true_means
        known = [
            self.protocol.known_in_training(s, s.trained if everything else s.validation.known)
            for s in self.scenarios
        ]
        steps = 0 if training is MetaTraining.NONE else self.settings.episodes
        return self._knowledge([s.validation for s in self.scenarios], 0, known, steps=steps)

    def session(self, streams: Sequence[Stream], session: int, *, learns: bool = True) -> Knowledge:
        """Return what is known in `session` of `streams`, one per seed. `learns`: gradient steps follow."""
        pairs = list(zip(self.scenarios, streams, strict=True))
        if self.oracle:
            met = [w.train_nodes_met(s, session) for w, s in pairs]
            return self.known_by(streams, session, met, learns=learns)
        known = [self.protocol.known_in_session(w, s, session) for w, s in pairs]
        if self.knows_true_means:
            arrived = [w.train_nodes_arrived(s, session) for w, s in pairs]
            known = [np.concatenate(both) for both in zip(known, arrived, strict=True)]
        return self._knowledge(streams, session, known, steps=self._session_steps if learns else 0)

    def known_by(
        self,
        streams: Sequence[Stream],
        session: int,
        nodes: list[np.ndarray],
        labels: list[np.ndarray] | None = None,
        *,
        learns: bool = True,
    ) -> Knowledge:
        """Return what is known in `session` if every class is the average over some of `nodes`.

        `labels` are the given labels of the nodes, which may be wrong.
        """
        steps = self._session_steps if learns else 0
        return self._knowledge(streams, session, nodes, labels, all_averaged=True, steps=steps)

    @property
    def _session_steps(self) -> int:
        """The steps on the view of a session. Predictions count as one."""
        if self.protocol.scores_while_learning:
            return 1
        method = METHODS[self.settings.method]
        learns = method.session_learning is not SessionLearning.NONE
        return 1 + (self.settings.finetune_steps if learns else 0)

    @torch.no_grad()
    def propagated(self, pack: Pack, knowledge: Knowledge) -> Knowledge:
        """Return `knowledge` with cached features, if the method has features that no step changes."""
        if not issubclass(METHODS[self.settings.method], CachesFeatures):
            return knowledge
        propagated = pack.run("propagate", (knowledge.graph,), knowledge.view)
        return replace(knowledge, view=knowledge.view._replace(propagated=(propagated,)))

    def _knowledge(
        self,
        streams: Sequence[Stream],
        session: int,
        known_by: list[np.ndarray],
        labels: list[np.ndarray] | None = None,
        all_averaged: bool = False,
        *,
        steps: int,
    ) -> Knowledge:
        pairs = zip(self.scenarios, streams, strict=True)
        seen = [self.protocol.visible(scenario, stream, session) for scenario, stream in pairs]
        if labels is None:
            labels = [s.labels[nodes] for s, nodes in zip(self.scenarios, known_by, strict=True)]
        members = [self._members(*each) for each in zip(self.scenarios, known_by, labels, strict=True)]
        means = self.graph.class_means(members, np.stack(seen))
        averaged_over = tuple(zip(known_by, labels, strict=True))
        view = self.views.view(self.scenarios, seen)
        graph = self.views.graph_of(self.scenarios, seen, view, 0 if self._is_frozen else steps)
        return Knowledge(view, means, averaged_over, graph, all_averaged)

    @property
    def _is_frozen(self) -> bool:
        """Whether no step runs the encoder, because it never changes."""
        return METHODS[self.settings.method].freezes_encoder

    def _members(self, scenario: Scenario, nodes: np.ndarray, labels: np.ndarray) -> scipy.sparse.csr_matrix:
        """Return averaging weights (classes, nodes) over `nodes`, each assigned to its label."""
        share = 1 / np.bincount(labels, minlength=scenario.num_classes).clip(min=1)
        values = share[labels].astype(np.float32)
        shape = (scenario.num_classes, self.graph.num_nodes)
        return scipy.sparse.csr_matrix((values, (labels, nodes)), shape=shape)
