"""Make the objects of the phases from the labels of a learner and the graph of a call."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from torch import Tensor

from hagmeta.config.run_config import RunConfig, runs_in_packs
from hagmeta.datasets.base import UNLABELLED
from hagmeta.engine.context import Context
from hagmeta.engine.known.knowledge import Knowledge, KnowledgeSource
from hagmeta.engine.known.tasks import TaskMaker
from hagmeta.engine.known.views import Views
from hagmeta.engine.options import RunOptions
from hagmeta.engine.runtime import Runtime
from hagmeta.learner.evidence import Evidence
from hagmeta.learner.table import Table
from hagmeta.methods import METHODS
from hagmeta.methods.base import MetaTraining, Shared, Sizes
from hagmeta.scenarios.scenario import CONTEXT, NEVER, TRAIN, VAL, ClassNodes, Scenario, Split, Stream
from hagmeta.scenarios.splits import class_members
from hagmeta.scenarios.streams import validation_stream
from hagmeta.sparse.graph import Graph
from hagmeta.sparse.inputs import Fit
from hagmeta.sparse.plain import PlainGraph

MOST_COPIES = 60  # supports per class, if classes have different numbers of labels


def level(rows: Sequence[np.ndarray]) -> np.ndarray:
    """Return rows of different lengths as one array, by repeating their entries.

    The entries of a row occur equally often, or almost so if that would take more than `MOST_COPIES`.
    """
    lengths = [len(row) for row in rows]
    width = math.lcm(*lengths)
    if width > max(MOST_COPIES, *lengths):
        width = max(MOST_COPIES, *lengths)
    return np.stack([np.resize(row, width) for row in rows])


@dataclass(frozen=True)
class TaughtStream(Stream):
    """A stream whose sessions have any number of classes, and whose classes have any number of labels."""

    arriving: tuple[np.ndarray, ...]  # type: ignore[assignment]  # classes of each session
    support: tuple[np.ndarray, ...]  # type: ignore[assignment]  # (classes, shots) of each session
    labelled: tuple[np.ndarray, ...] = ()  # labelled nodes of each class that arrives
    shots: int = 1  # columns of an empty array of supports

    @property
    def sessions(self) -> int:
        return len(self.arriving) + 1  # another one may always follow

    def met(self, session: int) -> np.ndarray:
        return np.concatenate([self.known, *self.arriving[:session]])

    def supports(self, session: int) -> tuple[np.ndarray, np.ndarray]:
        if not session:
            nothing = np.empty((0, self.shots), dtype=np.int64)
            return nothing, nothing
        count = sum(map(len, self.arriving[:session]))
        rows = level(self.labelled[:count])
        earlier, own = np.split(rows, [count - len(self.arriving[session - 1])])
        return earlier, own


@dataclass(frozen=True)
class LearnerViews(Views):
    """Views whose inputs are fitted once, on the graph of `fit`."""

    fits: dict[str, Fit] = field(default_factory=dict)  # by kind of inputs
    nodes: int = 0  # in the graph of `fit`; some widths depend on it

    @property
    def sizes(self) -> Sizes:
        return super().sizes._replace(nodes=self.nodes)

    def _made(self, kind: str) -> tuple[Tensor, ...]:
        if kind == "raw":
            return ()
        if kind not in self.fits:
            self.fits[kind] = self.graph.fit_inputs(kind, self.seen_first(self.scenarios[0]))
        return self._stacked([self.graph.apply_inputs(self.fits[kind])])


@dataclass(frozen=True)
class LearnerTasks(TaskMaker):
    """Tasks whose later sessions may have different numbers of classes."""

    known: int = 0
    sizes: tuple[int, ...] = ()

    def shared(self, knowledge: Knowledge, known: int, later: int) -> Shared:
        if known != self.known or not later:
            return super().shared(knowledge, known, later)
        first = super().shared(knowledge, known, 0)
        return Shared(first.graph, first.class_means, first.task_sizes + self.sizes[:later])


@dataclass(frozen=True)
class LearnerContext(Context):
    """The context of a learner: one seed, on the graph of one call."""

    fits: dict[str, Fit] = field(default_factory=dict)
    nodes: int = 0
    sizes: tuple[int, ...] = ()

    @cached_property
    def knowledge(self) -> KnowledgeSource:
        views = LearnerViews(
            self.graph, self.scenarios, self.settings, self.protocol, fits=self.fits, nodes=self.nodes
        )
        return KnowledgeSource(self.graph, self.scenarios, self.settings, self.protocol, views)

    @cached_property
    def tasks(self) -> TaskMaker:
        assert self.settings.n_way
        known = len(self.scenarios[0].test.known)
        return LearnerTasks(
            self.graph, self.scenarios, self.protocol, self.settings.n_way, known=known, sizes=self.sizes
        )


def make_context(
    table: Table,
    evidence: Evidence,
    config: RunConfig,
    seed: int,
    options: RunOptions,
    fits: dict[str, Fit],
    nodes: int,
) -> LearnerContext:
    """Return the context of a call.

    Args:
        table: The graph of the call.
        evidence: The labels of the learner.
        config: The resolved configuration.
        seed: The seed.
        options: The device and the progress.
        fits: The fitted inputs. `fit` fills it.
        nodes: The number of nodes in the graph of `fit`.
    """
    if not runs_in_packs(config):
        options = replace(options, mode="plain")
    runtime = Runtime(options, config, [config])
    graph = (PlainGraph if runtime.plain else Graph)(table.dataset, options.device, config.normalisation)
    scenario = make_scenario(table, evidence, config, seed)
    return LearnerContext(
        graph, [scenario], config, runtime, fits=fits, nodes=nodes, sizes=tuple(evidence.sessions)
    )


def make_scenario(table: Table, evidence: Evidence, config: RunConfig, seed: int) -> Scenario:
    """Return the roles and labels of the nodes of `table`, and the streams."""
    count = table.dataset.num_nodes
    labels, role = np.full(count, UNLABELLED), np.full(count, CONTEXT, dtype=np.int8)
    readable = np.full(count, NEVER, dtype=np.int16)
    for node, c in evidence.class_of.items():
        row = table.rows.get(node)
        if row is None:
            continue
        labels[row] = c
        if c < evidence.known:
            readable[row], role[row] = 0, VAL if node in evidence.held_out else TRAIN
    base, played = (np.array(each, dtype=np.int64) for each in (evidence.base, evidence.played))
    known, classes = np.concatenate([base, played]), len(evidence.class_names)
    nodes = ClassNodes(class_members(labels, classes), role)
    validation = validation_stream(config, nodes, base, played if plays(config) else played[:0], known, seed)
    arrival = np.where(table.present, 0, NEVER).astype(np.int16)
    return Scenario(
        seed=seed,
        labels=labels,
        num_classes=classes,
        split=Split(base, played, np.arange(evidence.known, classes), role),
        meta_classes=played,
        validation=replace(validation, arrival=arrival),
        test=replace(_taught(table, evidence, config, known), arrival=arrival, readable_from=readable),
    )


def plays(config: RunConfig) -> bool:
    """Return whether training plays sessions, for episodes or for validation."""
    return METHODS[config.method].training_of(config) is not MetaTraining.NONE


def _taught(table: Table, evidence: Evidence, config: RunConfig, known: np.ndarray) -> TaughtStream:
    """Return the stream of the learner, without the times at which nodes arrive."""
    nothing, arriving = np.empty(0, dtype=np.int16), evidence.arriving()
    labelled = [
        np.array([table.rows[node] for node in evidence.nodes_of(c) if node in table.rows], dtype=np.int64)
        for session in arriving
        for c in session
    ]
    ends = np.cumsum(evidence.sessions)
    assert config.k_shot
    return TaughtStream(
        known=known,
        arriving=tuple(np.array(session, dtype=np.int64) for session in arriving),
        support=tuple(
            level(labelled[end - size : end]) for end, size in zip(ends, evidence.sessions, strict=True)
        ),
        queries=(np.zeros(1, dtype=np.int64),) * (len(arriving) + 1),  # tasks have at least one
        arrival=nothing,
        readable_from=nothing,
        labelled=tuple(labelled),
        shots=config.k_shot,
    )
