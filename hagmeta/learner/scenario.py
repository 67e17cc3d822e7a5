"""Make the scenario of a learner: the roles and labels of nodes, and the stream of its sessions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from hagmeta.config.run_config import RunConfig
from hagmeta.datasets.base import UNLABELLED
from hagmeta.learner.evidence import Evidence
from hagmeta.learner.table import Table
from hagmeta.methods import METHODS
from hagmeta.methods.base import MetaTraining
from hagmeta.scenarios.scenario import CONTEXT, NEVER, TEST, TRAIN, VAL, ClassNodes, Scenario, Split, Stream
from hagmeta.scenarios.splits import class_members
from hagmeta.scenarios.streams import validation_stream

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


def make_scenario(table: Table, evidence: Evidence, config: RunConfig, seed: int) -> Scenario:
    """Return the roles and labels of the nodes of `table`, and the streams."""
    count = table.dataset.num_nodes
    # Only labelled nodes are for training, in the sense of `unlabelled_nodes`. All others may be asked for.
    unlabelled = CONTEXT if config.unlabelled_nodes == "all" else TEST
    labels, role = np.full(count, UNLABELLED), np.full(count, unlabelled, dtype=np.int8)
    readable = np.full(count, NEVER, dtype=np.int16)
    for node, c in evidence.class_of.items():
        row = table.rows.get(node)
        if row is None:
            continue
        labels[row], role[row] = c, CONTEXT
        if c < evidence.known:
            readable[row], role[row] = 0, VAL if node in evidence.held_out else TRAIN
    base, played = (np.array(each, dtype=np.int64) for each in (evidence.base, evidence.simulated))
    known, classes = np.concatenate([base, played]), len(evidence.class_names)
    nodes = ClassNodes(class_members(labels, classes), role)
    validation = validation_stream(
        config, nodes, base, played if simulates(config) else played[:0], known, seed
    )
    arrival = np.where(table.present, 0, NEVER).astype(np.int16)
    return Scenario(
        seed=seed,
        labels=labels,
        num_classes=classes,
        split=Split(base, played, np.arange(evidence.known, classes), role),
        meta_classes=played,
        validation=replace(validation, arrival=arrival),
        test=_stream(table, evidence, config, known, arrival, readable),
    )


def simulates(config: RunConfig) -> bool:
    """Return whether training plays sessions, for episodes or for validation."""
    return METHODS[config.method].training_of(config) is not MetaTraining.NONE


def _stream(
    table: Table,
    evidence: Evidence,
    config: RunConfig,
    known: np.ndarray,
    arrival: np.ndarray,
    readable: np.ndarray,
) -> Stream:
    """Return the stream of a learner. Its classes have any number of labels, and all nodes are queries."""
    arriving = evidence.arriving()
    labelled = [
        np.array([table.rows[node] for node in evidence.nodes_of(c) if node in table.rows], dtype=np.int64)
        for session in arriving
        for c in session
    ]
    assert config.k_shot
    support = level(labelled) if labelled else np.empty((0, config.k_shot), dtype=np.int64)
    first = np.cumsum([0, *evidence.sessions])[: len(arriving)]  # of the classes of each session
    rows = np.array(list(table.rows.values()))
    return Stream(
        arriving=(known, *(np.array(session, dtype=np.int64) for session in arriving)),
        support=tuple(np.split(support, first)),
        queries=(rows,) * (len(arriving) + 1),
        arrival=arrival,
        labelled_from=readable,
    )
