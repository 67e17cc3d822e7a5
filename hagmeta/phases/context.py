"""What the phases of a pack share: one graph, a scenario a seed, and the tasks that a method is given."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

import numpy as np
import scipy.sparse
import torch
from torch import Tensor, nn

from hagmeta.methods import METHODS
from hagmeta.methods.base import MetaTraining, Method, Shared, Sizes, Task
from hagmeta.packs.capture import Capture, Steps, ahead
from hagmeta.packs.pack import Pack, stack, stack_padded
from hagmeta.packs.plain import PlainPack
from hagmeta.phases.cache import Cache, shared_inputs
from hagmeta.phases.settings import PhaseSettings
from hagmeta.protocol import Protocol, make_protocol
from hagmeta.protocol.episodes import PseudoStream
from hagmeta.protocol.scenario import Scenario, Stream
from hagmeta.sparse.graph import ClassMeans, Graph, View
from hagmeta.sparse.inputs import Inputs, narrow_kind, width_of

Arrays = Sequence[np.ndarray] | np.ndarray  # one a seed
Item = TypeVar("Item")


@dataclass(frozen=True)
class Knowledge:
    """What is seen and known for a while: through training, or in one session."""

    view: View
    class_means: ClassMeans
    averaged_over: tuple[tuple[np.ndarray, np.ndarray], ...]  # by seed, nodes and the labels they were given
    all_averaged: bool = False  # every class met is known by an average, not only those known at the start


def levelled(earlier: np.ndarray, own: np.ndarray) -> np.ndarray:
    """Supports (classes, shots) of two kinds in one array: repeated to one length, which changes no mean."""
    parts = [rows for rows in (earlier, own) if len(rows)] or [own]
    shots = math.lcm(*(rows.shape[1] for rows in parts))
    return np.concatenate([np.repeat(rows, shots // rows.shape[1], axis=1) for rows in parts])


@dataclass(frozen=True)
class Context:
    """Makes what a pack knows, and its tasks."""

    graph: Graph
    scenarios: Sequence[Scenario]
    settings: PhaseSettings
    eager: bool = False  # on a GPU, nothing is captured
    plain: bool = False  # one seed, its module called as any other, so that it can be stepped through
    cache: Cache | None = None  # where inputs are shared that take long to make

    @property
    def device(self) -> torch.device:
        return self.graph.device

    def pack(self, modules: Sequence[nn.Module]) -> Pack:
        """What runs modules, one a seed."""
        return (PlainPack if self.plain else Pack)(modules, self.device)

    def capture(self) -> Capture:
        """What runs the computations of a phase."""
        return Capture(self.device, eager=self.eager or self.plain)

    def steps(self, pack: Pack, rate: float, capture: Capture) -> Steps:
        """What the method learns by."""
        summed, decay = self.method.sums_gradients(self.settings), self.settings.weight_decay
        return Steps(pack, rate, decay, capture, summed, self._own_steps(rate))

    def _own_steps(self, rate: float) -> dict[str, tuple[float, float]]:
        """Rate and weight decay of parameters with their own, where the common rate is ``rate``."""
        settings = self.settings
        return {
            prefix: (
                rate if own.rate is None else rate * own.rate / settings.learning_rate,
                settings.weight_decay if own.weight_decay is None else own.weight_decay,
            )
            for prefix, own in self.method.own_steps(settings).items()
        }

    def ahead(self, items: Iterable[Item]) -> Iterator[Item]:
        """The same items, drawn before they are needed where that saves time."""
        return iter(items) if self.plain else ahead(items, self.device)

    @property
    def seeds(self) -> list[int]:
        return [scenario.seed for scenario in self.scenarios]

    @property
    def n_way(self) -> int:
        assert self.settings.n_way
        return self.settings.n_way

    @property
    def method(self) -> type[Method]:
        return METHODS[self.settings.method]

    @cached_property
    def protocol(self) -> Protocol:
        return make_protocol(self.settings)

    @property
    def meta_training(self) -> MetaTraining:
        return self.method.training_of(self.settings)

    @property
    def pseudo_sessions(self) -> int:
        """Sessions of a pseudo-stream."""
        return len(self.scenarios[0].meta_classes) // self.n_way

    @property
    def oracle(self) -> bool:
        """Whether the method knows more here than others may."""
        return self.method.oracle and self.protocol.has_oracles

    @property
    def knows_true_means(self) -> bool:
        """Whether class means are those of all train nodes, of classes known by supports, too."""
        return self.method.knows_true_means(self.settings) and self.protocol.has_oracles

    @property
    def keeps_prototypes(self) -> bool:
        """Whether nothing but what was computed is left of a class met earlier: no label is read again."""
        return self.protocol.most_rehearsed == 0

    @property
    def num_inputs(self) -> int:
        """How many inputs a node has in the first layer."""
        return width_of(self.settings.inputs, self.graph.num_features)

    @property
    def num_narrow(self) -> int:
        """How many there are of few columns."""
        return width_of(narrow_kind(self.graph.has_counts), self.graph.num_features)

    @property
    def sizes(self) -> Sizes:
        """What the method is told of the data."""
        scenario = self.scenarios[0]
        base = len(scenario.split.base)
        nodes = self.graph.num_nodes
        return Sizes(self.num_inputs, base, self.n_way, scenario.num_classes, self.num_narrow, nodes)

    @cached_property
    def inputs(self) -> tuple[Tensor, ...]:
        """How each seed's features enter the first layer, in all phases: by what it sees in training."""
        return self._inputs(self.settings.inputs)

    @cached_property
    def narrow(self) -> tuple[Tensor, ...]:
        """The same for inputs of few columns, where the method propagates such."""
        kind = narrow_kind(self.graph.has_counts)
        if self.refits_words or not self.method.narrow_columns(self.settings, self.num_narrow):
            return ()
        return self.inputs if kind == self.settings.inputs else self._inputs(kind)

    @property
    def refits_words(self) -> bool:
        """Whether those are made of the words that are visible at the time."""
        return self.method.refits_words(self.settings) and self.graph.has_counts

    def _inputs(self, kind: str) -> tuple[Tensor, ...]:
        if kind == "raw":
            return ()
        made = [shared_inputs(kind, self.graph, self.seen_first(s), self.cache) for s in self.scenarios]
        return self._stacked(made)

    def _stacked(self, made: list[Inputs]) -> tuple[Tensor, ...]:
        return tuple(stack(part).to(self.device) for part in zip(*made, strict=True))

    def seen_first(self, scenario: Scenario) -> np.ndarray:
        """Nodes (nodes,) in the graph while it trains; those of held-out classes are not."""
        return self.protocol.visible(scenario, scenario.validation, 0)

    def view(self, scenarios: Sequence[Scenario], visible: Sequence[np.ndarray]) -> View:
        """What some of the seeds see, from a boolean array (nodes,) of each."""
        inputs, narrow = self.inputs, self.narrow
        if len(scenarios) < len(self.scenarios):
            places = [self.seeds.index(scenario.seed) for scenario in scenarios]
            inputs, narrow = (tuple(part[places] for part in parts) for parts in (inputs, narrow))
        if self.refits_words:
            narrow = self._stacked([self.graph.inputs("tf-idf", seen) for seen in visible])
        return self.graph.view(np.stack(visible))._replace(inputs=inputs, narrow=narrow)

    def training(self) -> Knowledge:
        """What is known in meta-training: of novel-test and held-out classes nothing, at most their nodes."""
        everything = self.meta_training is MetaTraining.SUPERVISED or self.knows_true_means
        known = [
            self.protocol.known_in_training(s, s.trained if everything else s.validation.known)
            for s in self.scenarios
        ]
        return self._knowledge([s.validation for s in self.scenarios], 0, known)

    @torch.no_grad()
    def propagated(self, pack: Pack, knowledge: Knowledge) -> Knowledge:
        """The same, with what no step changes: so many steps need it once."""
        if not self.method.propagates_once:
            return knowledge
        propagated = pack.run("propagate", (self.graph,), knowledge.view)
        return replace(knowledge, view=knowledge.view._replace(propagated=(propagated,)))

    def session(self, streams: Sequence[Stream], session: int) -> Knowledge:
        """What is known in a session."""
        pairs = list(zip(self.scenarios, streams, strict=True))
        if self.oracle:
            return self.known_by(streams, session, [w.train_nodes_met(s, session) for w, s in pairs])
        known = [self.protocol.known_in_session(w, s, session) for w, s in pairs]
        if self.knows_true_means:
            arrived = [w.train_nodes_arrived(s, session) for w, s in pairs]
            known = [np.concatenate(both) for both in zip(known, arrived, strict=True)]
        return self._knowledge(streams, session, known)

    def known_by(
        self,
        streams: Sequence[Stream],
        session: int,
        nodes: list[np.ndarray],
        labels: list[np.ndarray] | None = None,
    ) -> Knowledge:
        """What is known in a session in which every class met is the average over some of these nodes.

        ``labels`` are those that the nodes were given, which need not be true.
        """
        return self._knowledge(streams, session, nodes, labels, all_averaged=True)

    def _knowledge(
        self,
        streams: Sequence[Stream],
        session: int,
        known_by: list[np.ndarray],
        labels: list[np.ndarray] | None = None,
        all_averaged: bool = False,
    ) -> Knowledge:
        pairs = zip(self.scenarios, streams, strict=True)
        seen = [self.protocol.visible(scenario, stream, session) for scenario, stream in pairs]
        if labels is None:
            labels = [s.labels[nodes] for s, nodes in zip(self.scenarios, known_by, strict=True)]
        members = [self._members(*each) for each in zip(self.scenarios, known_by, labels, strict=True)]
        means = self.graph.class_means(members, np.stack(seen))
        averaged_over = tuple(zip(known_by, labels, strict=True))
        return Knowledge(self.view(self.scenarios, seen), means, averaged_over, all_averaged)

    def _members(self, scenario: Scenario, nodes: np.ndarray, labels: np.ndarray) -> scipy.sparse.csr_matrix:
        """Averages (classes, nodes) over some nodes, each counted with its class."""
        share = 1 / np.bincount(labels, minlength=scenario.num_classes).clip(min=1)
        values = share[labels].astype(np.float32)
        shape = (scenario.num_classes, self.graph.num_nodes)
        return scipy.sparse.csr_matrix((values, (labels, nodes)), shape=shape)

    def shared(self, knowledge: Knowledge, known: int, later: int) -> Shared:
        """For ``known`` classes at the start and ``later`` tasks of N classes since.

        Of the known classes the base ones are one task and the others tasks of N, the last perhaps smaller.
        """
        base = len(self.scenarios[0].split.base)
        whole, rest = divmod(known - base, self.n_way)
        sizes = (base, *[self.n_way] * whole, *([rest] if rest else []), *[self.n_way] * later)
        return Shared(self.graph, knowledge.class_means, sizes)

    def episode(self, drawn: Sequence[PseudoStream], session: int) -> tuple[Task, np.ndarray]:
        """A pseudo-stream's task, session by session, and the targets of its queries."""
        merged = session * self.n_way
        met = merged + self.n_way
        averaged = self.protocol.averaged_when_merged(merged)
        bases = [scenario.split.base for scenario in self.scenarios]
        count = len(bases[0]) + met
        task = self.stacked(
            classes=[np.concatenate([b, s.order[:met]]) for b, s in zip(bases, drawn, strict=True)],
            averaged=[np.concatenate([b, s.order[:averaged]]) for b, s in zip(bases, drawn, strict=True)],
            support=[s.support[averaged:met] for s in drawn],
            query=[s.query[session, :count].ravel() for s in drawn],
        )
        return task, np.repeat(np.arange(count), drawn[0].query.shape[-1])

    def task(self, streams: Sequence[Stream], session: int, all_averaged: bool = False) -> Task:
        """What is known after a session of a stream, and its queries; ``all_averaged`` as in Knowledge.

        Where classes met earlier are known by their prototypes alone, these are the caller's to add.
        """
        known = 0 if session and self.keeps_prototypes else len(streams[0].known)
        averaged = [s.met(session) if all_averaged else s.known[:known] for s in streams]
        supports = [levelled(*s.supports(0 if all_averaged else session)) for s in streams]
        return Task(
            classes=stack(s.met(session) for s in streams),
            averaged=stack(averaged),
            support=stack(supports),
            query=stack_padded([s.queries[session] for s in streams]),
        ).on(self.device)

    def stacked(self, classes: Arrays, averaged: Arrays, support: Arrays, query: Arrays) -> Task:
        """A task from one array a seed of each of its parts; it lies on the host, where it was drawn."""
        return Task(stack(classes), stack(averaged), stack(support), stack(query))
