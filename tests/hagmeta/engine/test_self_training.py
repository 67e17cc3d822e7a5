"""Self-training: which nodes a method labels itself, and what it does with them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from hagmeta.config.run_config import RunConfig, resolve
from hagmeta.datasets.base import Dataset
from hagmeta.engine.context import Context
from hagmeta.engine.known.tasks import TaskMaker
from hagmeta.engine.run import prepare, pretrain
from hagmeta.engine.scores.readout import ReadOut
from hagmeta.methods import METHODS, SessionLearning
from hagmeta.testing import records_of

CPU = torch.device("cpu")
SEEDS = [0, 5]
COUNT = 3
Tiny = Callable[..., RunConfig]
ABLE = [
    name
    for name, method in METHODS.items()
    if method.session_learning not in (SessionLearning.REPLAY, SessionLearning.PSEUDO_LABELS)
    and not method.traits.oracle
]


def guesses(context: Context, session: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Nodes (pack, classes, COUNT), and the scores (pack, nodes, classes) that they were chosen by."""
    pack, streams = pretrain(context), [scenario.test for scenario in context.scenarios]
    known, task = context.known.session(streams, session), context.tasks.session(streams, session)
    shared, read_out = context.tasks.shared(known, streams[0].sizes(session)), ReadOut(context)
    nodes = torch.arange(context.graph.num_nodes).expand(len(SEEDS), -1)
    scores = read_out.scores(pack, shared, known, task._replace(query=nodes))
    return read_out.guesses(pack, shared, known, task, COUNT), scores


def matrix(config: RunConfig, dataset: Dataset, seeds: list[int]) -> Any:
    """Of seed 3."""
    records = records_of(config, seeds, dataset)
    return next(record["matrix"] for record in records if record["seed"] == 3)


@pytest.mark.parametrize("smoothing", [0.0, 0.5])
def test_guesses_are_visible_nodes_without_labels_that_score_highest(
    tiny_graph: Dataset, tiny: Tiny, smoothing: float
) -> None:
    context = prepare(tiny(method="sgc-ncm", smoothing=smoothing), SEEDS, tiny_graph, CPU)
    found, scores = guesses(context, 2)
    shares = scores / scores.sum(-1, keepdim=True) if smoothing else scores.softmax(-1)
    classes = 2 * context.tasks.n_way  # that came since session 0
    assert found.shape == (len(SEEDS), classes, COUNT)
    for scenario, nodes, share in zip(context.scenarios, found, shares, strict=True):
        stream = scenario.test
        free = stream.arrived(2)
        free[context.protocol.labelled(scenario, stream.known)] = False
        free[np.concatenate(stream.support[:3])] = False
        others = np.flatnonzero(free)
        assert 0 < len(others) < context.graph.num_nodes
        best = torch.from_numpy(others)[share[others, -classes:].topk(COUNT, 0).indices].mT
        assert torch.equal(nodes, best)


@pytest.mark.parametrize(
    ("method", "rehearsal"),
    [
        ("proto-gcn", "2"),
        ("sgc-lda", "2"),
        *(pytest.param("proto-gcn", each, marks=pytest.mark.slow) for each in ("all", "none")),
    ],
)
def test_a_method_learns_from_its_guesses_alike_in_every_pack(
    tiny_graph: Dataset, tiny: Tiny, method: str, rehearsal: str
) -> None:
    settings: dict[str, Any] = {"method": method, "rehearsal": rehearsal, "finetune_rate": 0.02}
    config = tiny(**settings, self_training=COUNT)
    alone = matrix(config, tiny_graph, [3])
    assert matrix(config, tiny_graph, [7, 3]) == alone
    without = matrix(tiny(**settings), tiny_graph, [3])
    assert alone[0] == without[0]  # session 0 has no supports
    assert alone != without


@pytest.mark.parametrize("rehearsal", ["all", "2"])
def test_supports_are_joined_by_the_guesses_of_the_session(
    tiny_graph: Dataset, tiny: Tiny, monkeypatch: pytest.MonkeyPatch, rehearsal: str
) -> None:
    seen: list[tuple[int, ...]] = []
    task = TaskMaker.session

    def watched(self: TaskMaker, *arguments: Any) -> Any:
        made = task(self, *arguments)
        seen.append(tuple(made.support.shape[1:]))
        return made

    monkeypatch.setattr(TaskMaker, "session", watched)
    config = tiny(method="sgc-ncm", k_shot=3, rehearsal=rehearsal, self_training=COUNT)
    records_of(config, [0], tiny_graph)
    ways = resolve(config).n_way
    assert ways
    assert (ways, 3) in seen and (ways, 3 + COUNT) in seen
    # Guesses are forgotten after their session; where fewer labels may be read again, more are guessed.
    assert {columns for classes, columns in seen if classes == 2 * ways} == (
        {3, 3 + COUNT} if rehearsal == "all" else {6, 3 + COUNT}
    )


@pytest.mark.parametrize("method", sorted(set(METHODS) - set(ABLE)))
def test_it_concerns_neither_oracles_nor_other_ways_of_learning(tiny: Tiny, method: str) -> None:
    assert resolve(tiny(method=method, self_training=COUNT)).hash() == resolve(tiny(method=method)).hash()
