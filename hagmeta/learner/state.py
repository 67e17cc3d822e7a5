"""What a learner keeps between calls, and the sessions that read and change it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from hagmeta.config.run_config import RunConfig, runs_in_packs
from hagmeta.engine.cache import Fits
from hagmeta.engine.context import Context
from hagmeta.engine.engine import EngineState, Learnt, SessionEngine
from hagmeta.engine.options import RunOptions
from hagmeta.engine.runtime import Runtime
from hagmeta.learner.evidence import Evidence
from hagmeta.learner.novelty import Novelty
from hagmeta.learner.scenario import make_scenario
from hagmeta.learner.table import Columns, NodeId, Table
from hagmeta.methods import make_method
from hagmeta.methods.base import Method, SessionLearning
from hagmeta.packs.pack import Pack
from hagmeta.sparse.graph import Graph
from hagmeta.sparse.plain import PlainGraph


@dataclass
class State:
    """Everything that a learner keeps between calls."""

    config: RunConfig
    seed: int
    evidence: Evidence
    columns: Columns
    slots: dict[NodeId, int]  # of the nodes that it has met
    left: set[NodeId]  # those of them that were not in the last graph that it learnt from
    fits: Fits  # of inputs, on the graph of `fit`
    engine: EngineState = field(default_factory=EngineState)  # without `replay`, whose rows differ by graph
    memory: list[list[list[NodeId]]] = field(default_factory=list)  # replayed nodes by session and class
    temperature: float = 1.0
    novelty: Novelty = field(default_factory=Novelty)

    @property
    def session(self) -> int:
        """Return the number of the last session; `fit` is session 0."""
        return len(self.evidence.sessions)


class Found(NamedTuple):
    """The answers for all nodes, in the order of ``table.rows``. Columns are the class numbers."""

    probabilities: np.ndarray  # (nodes, classes), before they are calibrated
    logits: np.ndarray  # (nodes, classes) how well a node fits a class


def make_context(state: State, table: Table, options: RunOptions) -> Context:
    """Return the context of a call: one seed, on the graph of `table`."""
    config = state.config
    if not runs_in_packs(config):
        options = replace(options, mode="plain")
    runtime = Runtime(options, config, [config])
    graph = (PlainGraph if runtime.plain else Graph)(table.dataset, options.device, config.normalisation)
    scenario = make_scenario(table, state.evidence, config, state.seed)
    return Context(graph, [scenario], config, runtime, fits=state.fits)


def new_engine(context: Context, pack: Pack) -> SessionEngine:
    """Return the engine of a learner that has met no session."""
    return SessionEngine(context, pack, [context.scenarios[0].test], "test")


def engine_of(state: State, table: Table, context: Context) -> SessionEngine:
    """Return the engine of a fitted learner on the graph of a call. It may have new classes."""
    method = make_method(state.config, context.known.views.sizes, state.seed)
    engine = new_engine(context, context.runtime.pack([method]))
    rows = [
        _rows(state, table, classes, kept)
        for classes, kept in zip(engine.streams[0].arriving, state.memory, strict=False)
    ]
    engine.load(replace(state.engine, replay=[rows]))
    return engine


def learn_session(state: State, table: Table, engine: SessionEngine) -> Found:
    """Learn the last session of the evidence, update the state, and return the answers."""
    learnt = engine.learn(state.session)
    found = _found(engine, learnt, state.session)
    engine.consolidate(learnt, state.session)
    after = engine.state
    state.engine = replace(after, replay=[])
    ids = {row: node for node, row in table.rows.items()}
    state.memory = [
        [[ids[node] for node in row] for row in rows.tolist()] for kept in after.replay for rows in kept
    ]
    return found


def answers(state: State, engine: SessionEngine) -> Found:
    """Return the answers for all nodes."""
    return _found(engine, engine.known_after(state.session), state.session)


def _found(engine: SessionEngine, learnt: Learnt, session: int) -> Found:
    met = learnt.streams[0].met(session)
    pair = engine.probabilities(learnt, session)
    return Found(*(part[0].cpu().numpy()[:, np.argsort(met)] for part in pair))


def _rows(state: State, table: Table, classes: np.ndarray, kept: list[list[NodeId]]) -> np.ndarray:
    """Return the remembered nodes (classes, nodes) of a session that are still in the graph.

    A class that lost all of them uses its other labels.
    """
    rows, evidence = table.rows, state.evidence
    size = max(map(len, kept))
    found = []
    for c, nodes in zip(classes.tolist(), kept, strict=True):
        there = [rows[node] for node in nodes if node in rows]
        others = [rows[n] for n in evidence.nodes_of(c) if n in rows and n not in evidence.held_out]
        found.append(np.resize(np.array(there or others, dtype=np.int64), size))
    return np.stack(found)


def learns_once(method: type[Method]) -> bool:
    """Return whether a method learns the labels of a class in gradient steps, and never again."""
    return method.has("add_classes") and method.session_learning is not SessionLearning.NONE
