"""Where a pack plays: one graph, a world a seed, and the tasks that a method is given there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse
import torch

from hagmeta.config import RunConfig
from hagmeta.methods import METHODS
from hagmeta.methods.base import MetaTraining, Method, Scene, Task
from hagmeta.packs.capture import Capture
from hagmeta.packs.pack import Pack, stack, stack_padded
from hagmeta.protocol.episodes import PseudoStream
from hagmeta.protocol.splits import TRAIN
from hagmeta.protocol.streams import Stream, World
from hagmeta.sparse.graph import ClassMeans, Graph, View

Arrays = Sequence[np.ndarray] | np.ndarray  # one a seed


@dataclass(frozen=True)
class Setting:
    """What is seen and known for a while: through training, or in one session."""

    view: View
    class_means: ClassMeans
    complete: bool = False  # the means are of every class met, not only of those known at the start


@dataclass(frozen=True)
class Stage:
    """Makes the settings, scenes and tasks of a pack."""

    graph: Graph
    worlds: Sequence[World]
    config: RunConfig
    n_way: int
    eager: bool = False  # on a GPU, nothing is captured

    @property
    def device(self) -> torch.device:
        return self.graph.device

    def capture(self) -> Capture:
        """What runs the computations of a phase."""
        return Capture(self.device, eager=self.eager)

    @property
    def seeds(self) -> list[int]:
        return [world.seed for world in self.worlds]

    @property
    def method(self) -> type[Method]:
        return METHODS[self.config.method]

    @property
    def meta_training(self) -> MetaTraining:
        return self.method.meta_training if self.config.gpil else MetaTraining.NONE

    @property
    def pseudo_sessions(self) -> int:
        """Sessions of a pseudo-stream."""
        return len(self.worlds[0].meta_classes) // self.n_way

    @property
    def released(self) -> bool:
        return self.config.protocol == "released"

    def training(self) -> Setting:
        """The setting of meta-training: neither novel-test nor held-out classes are seen."""
        if self.released:
            known = [w.all_nodes_of(w.test.known) for w in self.worlds]
        elif self.meta_training is MetaTraining.SUPERVISED:
            known = [w.nodes_of(w.trained, TRAIN) for w in self.worlds]
        else:
            known = [w.nodes_of(w.validation.known, TRAIN) for w in self.worlds]
        return self._setting([w.validation.visible(0) for w in self.worlds], known)

    @torch.no_grad()
    def propagated(self, pack: Pack, setting: Setting) -> Setting:
        """The same, with what a frozen encoder makes of it: so many steps need one pass over the graph."""
        if not self.method.freezes:
            return setting
        propagated = pack.run("propagate", (self.graph,), setting.view)
        return replace(setting, view=setting.view._replace(propagated=(propagated,)))

    def session(self, streams: Sequence[Stream], session: int) -> Setting:
        """The setting of a session: a class known by many is known by its train nodes.

        Under `released` every class met is known by all its nodes, as the authors' code has it.
        """
        pairs = list(zip(self.worlds, streams, strict=True))
        if self.released:
            known = [w.all_nodes_of(s.met(session)) for w, s in pairs]
        elif self.method.oracle:
            return self.known_by(streams, session, [w.train_nodes_met(s, session) for w, s in pairs])
        else:
            known = [w.nodes_of(s.known, TRAIN) for w, s in pairs]
        return self._setting([s.visible(session) for s in streams], known)

    def known_by(self, streams: Sequence[Stream], session: int, nodes: list[np.ndarray]) -> Setting:
        """The setting of a session in which every class met is known by some of these nodes."""
        return self._setting([s.visible(session) for s in streams], nodes, complete=True)

    def _setting(
        self, visible: list[np.ndarray], known_by: list[np.ndarray], complete: bool = False
    ) -> Setting:
        seen = np.stack(visible)
        members = [self._members(world, nodes) for world, nodes in zip(self.worlds, known_by, strict=True)]
        return Setting(self.graph.view(seen), self.graph.class_means(members, seen), complete)

    def _members(self, world: World, nodes: np.ndarray) -> scipy.sparse.csr_matrix:
        """Averages (classes, nodes) over some nodes, each counted with its class."""
        labels = world.labels[nodes]
        share = 1 / np.bincount(labels, minlength=world.num_classes).clip(min=1)
        values = share[labels].astype(np.float32)
        shape = (world.num_classes, self.graph.num_nodes)
        return scipy.sparse.csr_matrix((values, (labels, nodes)), shape=shape)

    def scene(self, setting: Setting, known: int, later: int) -> Scene:
        """A scene of ``known`` classes at the start and ``later`` tasks of N classes since.

        Of the known classes the base ones are one task and the others tasks of N, the last perhaps smaller.
        """
        base = len(self.worlds[0].split.base)
        whole, rest = divmod(known - base, self.n_way)
        sizes = (base, *[self.n_way] * whole, *([rest] if rest else []), *[self.n_way] * later)
        return Scene(self.graph, setting.class_means, sizes)

    def episode(self, drawn: Sequence[PseudoStream], session: int) -> tuple[Task, np.ndarray]:
        """A pseudo-stream's task, session by session, and the targets of its queries."""
        base, merged = self.worlds[0].split.base, session * self.n_way
        met = merged + self.n_way
        # Under `released` a merged class is known by all its nodes, otherwise by its cached supports.
        first_few = merged if self.released else 0
        task = self.stacked(
            classes=[np.concatenate([base, s.order[:met]]) for s in drawn],
            many=[np.concatenate([base, s.order[:first_few]]) for s in drawn],
            support=[s.support[first_few:met] for s in drawn],
            query=[s.query[session, : len(base) + met].ravel() for s in drawn],
        )
        return task, np.repeat(np.arange(len(base) + met), drawn[0].query.shape[-1])

    def task(self, streams: Sequence[Stream], session: int, complete: bool = False) -> Task:
        """What is known after a session of a stream, and its queries; ``complete`` as the setting is."""
        known = [s.met(session) if complete else s.known for s in streams]
        supports = [s.support[: 0 if complete else session] for s in streams]
        return Task(
            classes=stack(s.met(session) for s in streams),
            many=stack(known),
            support=stack(s.reshape(-1, s.shape[-1]) for s in supports),
            query=stack_padded([s.queries[session] for s in streams]),
        ).on(self.device)

    def stacked(self, classes: Arrays, many: Arrays, support: Arrays, query: Arrays) -> Task:
        """A task from one array a seed of each of its parts; it lies on the host, where it was drawn."""
        return Task(stack(classes), stack(many), stack(support), stack(query))
