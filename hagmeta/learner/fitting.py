"""Divide the labels of `fit`: which classes play new ones in training, and which labels validate it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from hagmeta.common.errors import UserError, shown
from hagmeta.common.plugins.identity import without_hash
from hagmeta.config.run_config import RunConfig
from hagmeta.learner.evidence import Evidence
from hagmeta.learner.scenario import simulates
from hagmeta.learner.table import NodeId
from hagmeta.packs.randomness import stream
from hagmeta.scenarios.scenario import LEAST_BASE
from hagmeta.scenarios.splits import some_as_new

HELD_OUT = 5  # one of so many labels of a class validates the training


def draw_evidence(
    labels: Mapping[NodeId, str], validation: Mapping[NodeId, str] | None, config: RunConfig, seed: int
) -> Evidence:
    """Return the labels with their roles. The draws depend on node ids, not on the order of the nodes.

    Args:
        labels: Class names by node id.
        validation: Labels that validate the training; None to draw one of five labels of each class.
        config: The resolved configuration.
        seed: The seed.
    """
    names = list(dict.fromkeys(labels.values()))
    number = {name: c for c, name in enumerate(names)}
    evidence = Evidence(names, {node: number[name] for node, name in labels.items()})
    if validation is None:
        for c, name in enumerate(names):
            evidence.held_out |= set(_drawn(evidence.nodes_of(c), name, seed))
    else:
        for node, name in validation.items():
            if name not in number:
                raise UserError(f"validation holds class {shown(name)}, which is not in labels.")
            if labels.get(node, name) != name:
                raise UserError(
                    f"validation holds node {shown(node)} for {shown(name)}, but labels for "
                    f"{shown(labels[node])}; expected one class."
                )
            evidence.class_of[node] = number[name]
        evidence.held_out = set(validation)
    base, played = some_as_new(np.arange(len(names)), config.groups[0], seed)
    evidence.base, evidence.simulated = base.tolist(), played.tolist()
    _check_enough(evidence, config)
    return evidence


def _drawn(nodes: list[NodeId], name: str, seed: int) -> list[NodeId]:
    """Return one of five nodes, but at least one if there are two."""
    count = max(len(nodes) // HELD_OUT, int(len(nodes) > 1))
    in_order = sorted(nodes, key=_order)
    picks = stream(seed, f"learner/validation/{name}").permutation(len(nodes))[:count]
    return [in_order[pick] for pick in picks]


def _order(node: NodeId) -> tuple[str, Any]:
    """Return the key by which ids are sorted. Not all values can be compared with each other."""
    return type(node).__name__, node if isinstance(node, str | int | float) else repr(node)


def check_classes(labels: Mapping[NodeId, str]) -> int:
    """Return the number of classes, or raise an error if there are too few."""
    count = len(set(labels.values()))
    if count < LEAST_BASE:
        raise UserError(f"labels has {count} classes; expected at least {LEAST_BASE} to fit a learner.")
    return count


def _check_enough(evidence: Evidence, config: RunConfig) -> None:
    assert config.k_shot and config.query_shot
    needed = config.k_shot + config.query_shot if simulates(config) else 1
    counts = np.zeros((2, len(evidence.class_names)), dtype=np.int64)
    for node, c in evidence.class_of.items():
        counts[int(node in evidence.held_out), c] += 1
    for name, train, held in zip(evidence.class_names, *counts.tolist(), strict=True):
        if train < needed or (simulates(config) and not held):
            raise UserError(
                f"class {shown(name)} has {train} labels to train on and {held} to validate; "
                f"{without_hash(config.method)} needs {needed} and {int(simulates(config))}. Give more "
                "labels, or use a smaller k_shot or a method without episodes, such as posterior-means."
            )
    if not counts[1].any():
        raise UserError("no label is left to validate the training; give a class at least two labels.")
