"""What a learner keeps between calls, and the phases that read and change it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from hagmeta.config.run_config import RunConfig
from hagmeta.engine.hooks import add_classes, consolidate
from hagmeta.engine.known.knowledge import Knowledge
from hagmeta.engine.sessions import AnsweringAfterLearning
from hagmeta.learner.evidence import Evidence
from hagmeta.learner.novelty import Novelty
from hagmeta.learner.scene import LearnerContext, TaughtStream
from hagmeta.learner.table import Columns, NodeId, Table
from hagmeta.methods import make_method
from hagmeta.packs.pack import Pack, Parameters
from hagmeta.sparse.inputs import Fit


@dataclass
class State:
    """Everything that a learner keeps between calls."""

    config: RunConfig
    seed: int
    evidence: Evidence
    columns: Columns
    slots: dict[NodeId, int]  # of the nodes that it has met
    left: set[NodeId]  # those of them that were not in the last graph that it learnt from
    nodes: int  # in the graph of `fit`
    fits: dict[str, Fit] = field(default_factory=dict)  # fitted inputs by kind
    parameters: Parameters = field(default_factory=dict)  # in host memory
    before: Parameters = field(default_factory=dict)  # those that the last session changed, if needed again
    memory: list[list[list[NodeId]]] = field(default_factory=list)  # replayed nodes by session and class
    draws: list[dict[str, Any]] = field(default_factory=list)  # states of random generators
    step: int = 0  # gradient steps of all sessions
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


@dataclass
class Scene:
    """A learner on the graph of one call."""

    state: State
    table: Table
    context: LearnerContext
    pack: Pack

    @classmethod
    def of(cls, state: State, table: Table, context: LearnerContext) -> Scene:
        """Return the scene of a fitted learner."""
        return cls(state, table, context, _pack(state, context, state.parameters))

    @property
    def stream(self) -> TaughtStream:
        stream = self.context.scenarios[0].test
        assert isinstance(stream, TaughtStream)
        return stream

    def teach(self) -> Found:
        """Learn the last session of the evidence, update the state, and return `answers`."""
        context, pack, session = self.context, self.pack, self.state.session
        stream = self._asking_all()
        player = self._player(stream)
        knowledge = context.knowledge.session([stream], session)
        add_classes(context, pack, knowledge, [stream], session)
        before = {name: value.cpu() for name, value in pack.states()[0].items()}
        learnt, _ = player.learn(pack, knowledge, session)
        answers = self._answered(player, learnt)
        consolidate(context, pack, knowledge, [stream], session)
        self._update(player, before)
        return answers

    def _update(self, player: AnsweringAfterLearning, before: Parameters) -> None:
        """Store what a session changed. `before` are the parameters before its steps."""
        state = self.state
        state.parameters = {name: value.cpu() for name, value in self.pack.states()[0].items()}
        if self.context.method.has("session_statistics"):
            changed = (name for name in before if not torch.equal(before[name], state.parameters[name]))
            state.before = {name: before[name] for name in changed}
        state.step, state.draws = player.step, player.lesson.state()
        if player.memory is not None:
            ids = {row: node for node, row in self.table.rows.items()}
            state.memory = [
                [[ids[node] for node in row] for row in rows.tolist()] for rows in player.memory.kept[0]
            ]

    def answers(self) -> Found:
        """Return the answers for all nodes."""
        state, stream = self.state, self._asking_all()
        knowledge = self.context.knowledge.session([stream], state.session)
        # The statistics of a session come from the model before its steps.
        pack = _pack(state, self.context, state.parameters | state.before) if state.before else self.pack
        player = self._player(stream)
        return self._answered(player, player.learnt(pack, knowledge, state.session))

    def _answered(self, player: AnsweringAfterLearning, knowledge: Knowledge) -> Found:
        met = self.stream.met(self.state.session)
        pair = player.answers(self.pack, knowledge, self.state.session)
        return Found(*(part[0].cpu().numpy()[:, np.argsort(met)] for part in pair))

    def _asking_all(self) -> TaughtStream:
        """Return the stream, with all nodes as the queries of every session."""
        rows = np.array(list(self.table.rows.values()))
        return replace(self.stream, queries=(rows,) * (self.state.session + 1))

    def _player(self, stream: TaughtStream) -> AnsweringAfterLearning:
        player = AnsweringAfterLearning(self.context, [stream], "test")
        player.step = self.state.step
        if self.state.draws:
            player.lesson.load(self.state.draws)
        if player.memory is not None:
            player.memory.kept = [[self._rows(number, kept) for number, kept in enumerate(self.state.memory)]]
        return player

    def _rows(self, session: int, kept: list[list[NodeId]]) -> np.ndarray:
        """Return the remembered nodes (classes, nodes) of a session that are still in the graph.

        A class that lost all of them uses its other labels.
        """
        rows, evidence = self.table.rows, self.state.evidence
        classes = self.stream.arriving[session - 1] if session else self.stream.known
        size = max(map(len, kept))
        found = []
        for c, nodes in zip(classes.tolist(), kept, strict=True):
            there = [rows[node] for node in nodes if node in rows]
            others = [rows[n] for n in evidence.nodes_of(c) if n in rows and n not in evidence.held_out]
            found.append(np.resize(np.array(there or others, dtype=np.int64), size))
        return np.stack(found)


def _pack(state: State, context: LearnerContext, parameters: Mapping[str, Tensor]) -> Pack:
    """Return the method of a learner with some parameters."""
    method = make_method(state.config, context.knowledge.views.sizes, state.seed)
    method.load_state_dict(_grown(method.state_dict(), parameters))
    return context.runtime.pack([method])


def _grown(fresh: Mapping[str, Tensor], kept: Mapping[str, Tensor]) -> Parameters:
    """Return the `kept` parameters, with rows of `fresh` ones for classes that are new."""
    found = {}
    for name, value in fresh.items():
        grown = value.detach().clone()
        grown[tuple(slice(size) for size in kept[name].shape)] = kept[name].to(grown.device)
        found[name] = grown
    return found
