"""What the authors' published code does, so that its tables can be compared with. It leaks."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from hagmeta.protocol.base import Protocol
from hagmeta.protocol.scenario import ClassNodes, Scenario, Stream, StreamPlan

QUERIES = 20  # a class, as the authors' code draws them


class Released(Protocol):
    """Queries come from all nodes of a class, training nodes included; a met class is the mean of them all.

    A session's accuracy is read in training mode from the very pass whose loss, on the query labels, then
    takes one gradient step. A_0 is the query accuracy of the last pseudo-stream of meta-training. A method
    without pseudo-streams in its training answers one after it.

    In the sessions a new class has two prototypes there: that of its supports, which is right, and the mean
    of all its nodes, which is counted wrong (the list of known classes is extended before it is used). That
    costs the authors' figures several points and is kept, since the paper's tables were made so; methods that
    are not built on HAG-Meta's prototypes are spared it, and the others can be (``double_prototypes``).

    The encoder and both attentions have the form of the authors' code (``decides``):
    - the adjacency is normalised over the whole graph, and masked without being normalised again;
    - NLA multiplies scores by the logarithm of the degree in the whole graph, without self-loop, and its
      weights are shares of a sum. The logarithm of no neighbours makes the authors' results NaN: here such a
      node counts as one with a single neighbour;
    - TLA has two layers for the base classes, reshapes the prototypes of earlier tasks where it should
      transpose them, puts ReLU and dropout on tasks' vectors, and draws that of the newest a second time;
    - TLA's gradients are never set to zero, so that they add up over meta-training and sessions.
    Six steps of it are those of the authors' code, number by number (tests/hagmeta/methods/test_parity.py).
    """

    name = "released"
    leaks = True
    revision = (
        3  # the first had the attentions of `strict`, the second broke ties between class sizes by name
    )
    decides: ClassVar = {
        "pretrain_on": "known",
        "rehearsal": "all",
        "mislabelled": 0,  # a class met is known by all its nodes, which would tell the wrong ones
        "smoothing": 0.0,  # answers are those of the pass that learns
        "logit_adjustment": 0.0,
        "self_training": 0,
        "normalisation": "whole",
        "nla_degree": "whole",
        "nla_weights": "share",
        "tla_layers": "two",
        "tla_tasks": "reshaped",
        "tla_vectors": "relu",
        "tla_gradients": "summed",
    }
    validates = False
    scores_while_learning = True
    has_oracles = False  # every class met is known by all its nodes, to everyone

    @classmethod
    def default_query_shot(cls, k_shot: int) -> int:
        return QUERIES

    @property
    def queries_needed(self) -> int:
        assert self.settings.query_shot
        return max(self.settings.query_shot, QUERIES)

    def large_enough(self, counts: np.ndarray) -> np.ndarray:
        """Supports and queries come from all nodes of a class."""
        assert self.settings.k_shot
        return counts >= self.settings.k_shot + self.queries_needed

    def support_candidates(self, nodes: ClassNodes, c: int) -> np.ndarray:
        return nodes.members[c]

    def queries(self, plan: StreamPlan, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
        """Anew in each session, from all nodes of a class but its supports."""
        queries = []
        for number in range(len(plan.arriving) + 1):
            met = np.concatenate([plan.known, plan.arriving[:number].ravel()])
            taken = plan.support[number - 1] if number else np.empty(0, dtype=np.int64)
            pools = [np.setdiff1d(plan.nodes.members[c], taken) for c in met]
            drawn = [rng.choice(pool, QUERIES, replace=False) for pool in pools]
            queries.append(np.sort(np.concatenate(drawn)))
        return tuple(queries)

    def pretrain_classes(self, scenario: Scenario) -> np.ndarray:
        return scenario.trained

    def labelled(self, scenario: Scenario, classes: np.ndarray) -> np.ndarray:
        return scenario.all_nodes_of(classes)

    def known_in_training(self, scenario: Scenario, classes: np.ndarray) -> np.ndarray:
        return scenario.all_nodes_of(scenario.test.known)

    def known_in_session(self, scenario: Scenario, stream: Stream, session: int) -> np.ndarray:
        return scenario.all_nodes_of(stream.met(session))

    def averaged_when_merged(self, merged: int) -> int:
        return merged

    def remarks(self) -> list[str]:
        return ["the released protocol leaks: it trains on the queries that it is scored on"]
