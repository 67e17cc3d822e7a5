"""The answers of a learner for all nodes of a graph, and their calibration on held-out labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.special import softmax

from hagmeta.datasets.base import Dataset
from hagmeta.engine.scores.readout import TINY
from hagmeta.engine.scores.temperature import fitted_temperature
from hagmeta.learner.novelty import fitted_novelty
from hagmeta.learner.state import Found, State
from hagmeta.learner.table import NodeId, Table

COLDEST = 0.1  # the lowest temperature of probabilities


class Answers(NamedTuple):
    """The probabilities of all nodes of a graph, before they are calibrated."""

    key: Any  # identifies the graph
    places: dict[NodeId, int]  # rows of `found` by node id
    found: np.ndarray  # (nodes, classes)
    fit: np.ndarray  # (nodes,) how well a node fits its best class

    def probabilities(self, nodes: Sequence[NodeId], temperature: float) -> np.ndarray:
        """Return calibrated probabilities (nodes, classes) of some nodes."""
        rows = [self.places[node] for node in nodes]
        found: np.ndarray = softmax(_logarithms(self.found[rows]) / temperature, axis=-1)
        return found

    def fits(self, nodes: Sequence[NodeId]) -> np.ndarray:
        """Return how well some nodes fit their best class (nodes,)."""
        return self.fit[[self.places[node] for node in nodes]]


def answers_of(dataset: Dataset, state: State, table: Table, found: Found) -> Answers:
    """Return the answers that a learner found for a graph."""
    fit = state.novelty.fit_of(found.logits / state.temperature)
    return Answers(key_of(dataset), places_of(table), found.probabilities, fit)


def calibrated(dataset: Dataset, state: State, table: Table, found: Found) -> Answers:
    """Fit the temperature and the novelty of `state` to the answers `found`, and return these.

    The held-out labels are those of classes known since `fit`. Steps of a session can change the scale of all
    logits, so each session needs another temperature.
    """
    places, evidence = places_of(table), state.evidence
    nodes = [node for node in evidence.class_of if node in evidence.held_out and node in places]
    if nodes:
        truth = np.array([evidence.class_of[node] for node in nodes])
        rows = [places[node] for node in nodes]
        shares = found.probabilities[rows]
        # If all held-out labels are predicted, any likelihood can be reached: then stop at `COLDEST`.
        state.temperature = max(COLDEST, fitted_temperature(_logarithms(shares), truth))
        state.novelty = fitted_novelty(found.logits[rows] / state.temperature, truth)
    return answers_of(dataset, state, table, found)


def places_of(table: Table) -> dict[NodeId, int]:
    """Return the row of each node among the answers."""
    return {node: place for place, node in enumerate(table.rows)}


def key_of(dataset: Dataset) -> Any:
    """Return what identifies a graph for a learner."""
    return dataset.fingerprint, dataset.node_ids, dataset.feature_names


def _logarithms(shares: np.ndarray) -> np.ndarray:
    found: np.ndarray = np.log(np.maximum(shares.astype(np.float64), TINY))
    return found
