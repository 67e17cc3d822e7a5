"""With the whole graph there from the start, labels and queries come when they came before: to the bit.

Each check is also run on a planted leak, which it must find.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from hagmeta.config.run_config import RunConfig, resolve
from hagmeta.datasets.base import Dataset
from hagmeta.engine.context import Context
from hagmeta.engine.run import prepare
from hagmeta.packs.pack import Pack
from hagmeta.scenarios import PROTOCOLS, make_protocol
from hagmeta.scenarios.scenario import NEVER, Scenario, Stream
from hagmeta.scenarios.streams import make_scenario
from hagmeta.sparse.graph import Graph
from hagmeta.testing import (
    run_context,
    same_answers,
    same_parameters,
    trained,
    with_noise_at,
    with_other_labels,
)
from tests.hagmeta.kinds import kinds_with, one_of_each_kind

CPU = torch.device("cpu")
Tiny = Callable[..., RunConfig]
OPEN = [name for name, protocol in PROTOCOLS.items() if "visibility" not in protocol.decides]


def scenario_of(dataset: Dataset, config: RunConfig) -> Scenario:
    return make_scenario(dataset, resolve(config), 0)


# What is visible, and what is drawn.


@pytest.mark.parametrize("protocol", OPEN)
@pytest.mark.parametrize(
    "changes", [{}, {"sessions": 1}, {"n_way": 1, "classes": (2, 3, 4), "val_classes": 2}]
)
def test_whole_shows_the_nodes_of_every_class_that_is_ever_met_and_no_others(
    tiny_graph: Dataset, tiny: Tiny, protocol: str, changes: dict[str, Any]
) -> None:
    config = resolve(tiny(visibility="whole", protocol=protocol, **changes))
    scenario = scenario_of(tiny_graph, config)
    used = np.isin(tiny_graph.labels, scenario.test.met(scenario.test.sessions))
    assert not used.all() and np.isin(tiny_graph.labels, scenario.split.novel_train)[used].any()
    for stream in (scenario.test, scenario.validation):
        for session in range(stream.sessions + 1):
            assert np.array_equal(make_protocol(config).visible(scenario, stream, session), used)


def test_both_settings_end_in_the_same_graph(tiny_graph: Dataset, tiny: Tiny) -> None:
    scenario = scenario_of(tiny_graph, tiny())
    arriving, whole = (make_protocol(resolve(tiny(visibility=name))) for name in ("arriving", "whole"))
    last = scenario.test.sessions
    for session in range(last + 1):
        pair = [protocol.visible(scenario, scenario.test, session) for protocol in (arriving, whole)]
        assert np.array_equal(*pair) == (session == last)


@pytest.mark.parametrize("protocol", OPEN)
def test_visibility_changes_no_draw(tiny_graph: Dataset, tiny: Tiny, protocol: str) -> None:
    one, other = (
        scenario_of(tiny_graph, tiny(protocol=protocol, visibility=name)) for name in ("arriving", "whole")
    )
    for left, right in ((one.test, other.test), (one.validation, other.validation)):
        for name in ("arrival", "labelled_from"):
            assert np.array_equal(getattr(left, name), getattr(right, name)), name
        for name in ("arriving", "support", "queries"):
            pairs = zip(getattr(left, name), getattr(right, name), strict=True)
            assert all(np.array_equal(*pair) for pair in pairs), name


# Labels that may not be known.


@pytest.mark.parametrize("method", one_of_each_kind())
def test_strict_ignores_forbidden_labels_though_their_nodes_are_there(
    tiny_graph: Dataset, tiny: Tiny, method: str
) -> None:
    context = prepare(tiny(method=method, visibility="whole"), [0], tiny_graph, CPU)
    (pack, answers), (other_pack, others) = (
        run_context(each) for each in (context, with_other_labels(context, "garbage"))
    )
    assert same_parameters(pack, other_pack) and same_answers(answers, others)


def later(scenario: Scenario) -> np.ndarray:
    """The nodes of the classes that come after session 1."""
    return (scenario.test.labelled_from > 1) & (scenario.test.labelled_from < NEVER)


# Features and edges.


@pytest.mark.parametrize(("method", "protocol"), kinds_with(OPEN, kinds=("hag-meta", "sgc-lda")))
def test_nodes_of_classes_to_come_count_where_all_is_visible_and_nowhere_else(
    tiny_graph: Dataset, tiny: Tiny, method: str, protocol: str
) -> None:
    noise = with_noise_at(tiny_graph, np.flatnonzero(later(scenario_of(tiny_graph, tiny(protocol=protocol)))))
    # The authors' code normalises by degrees of the whole graph, which tell of nodes to come; a GAT does not.
    told_by_degrees = PROTOCOLS[protocol].leaks and method != "proto-gat"
    for visibility in ("arriving", "whole"):
        ignored = visibility == "arriving" and not told_by_degrees
        config = tiny(method=method, protocol=protocol, visibility=visibility)
        context = prepare(config, [0], tiny_graph, CPU)
        noisy = Graph(noise, CPU, context.settings.normalisation)
        other = replace(context, graph=noisy)
        pack = trained(context)
        fixed = not pack.parameters or not context.settings.pretrain_epochs  # nothing is ever trained
        assert same_parameters(pack, trained(other)) == (ignored or fixed)
        for session in (0, 1):
            assert torch.equal(*(embedded(each, pack, session) for each in (context, other))) == ignored
        assert not torch.equal(*(embedded(each, pack, 2) for each in (context, other)))


@pytest.mark.parametrize("visibility", ["arriving", "whole"])
def test_nodes_of_classes_that_never_come_count_nowhere(
    tiny_graph: Dataset, tiny: Tiny, visibility: str
) -> None:
    context = prepare(tiny(visibility=visibility), [0], tiny_graph, CPU)
    unused = context.scenarios[0].test.arrival == NEVER
    assert len(np.unique(tiny_graph.labels[unused])) == 2  # one left over, one in no part of the split
    (pack, answers), (other_pack, others) = (
        run_context(each)
        for each in (
            context,
            replace(context, graph=Graph(with_noise_at(tiny_graph, np.flatnonzero(unused)), CPU)),
        )
    )
    assert same_parameters(pack, other_pack) and same_answers(answers, others)


def test_to_see_what_is_still_to_come_is_noticed(
    tiny_graph: Dataset, tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The leak under ``arriving``: one of the nodes to come is there.
    context = prepare(tiny(), [0], tiny_graph, CPU)
    late = later(context.scenarios[0])
    other = replace(context, graph=Graph(with_noise_at(tiny_graph, np.flatnonzero(late)), CPU))
    early = np.arange(tiny_graph.num_nodes) == np.flatnonzero(late)[0]
    honest = Stream.arrived
    monkeypatch.setattr(Stream, "arrived", lambda self, session: honest(self, session) | early)
    assert not same_parameters(trained(context), trained(other))


@torch.no_grad()
def embedded(context: Context, pack: Pack, session: int) -> torch.Tensor:
    """What a session of the test stream makes of the queries of the classes known at the start."""
    streams = [scenario.test for scenario in context.scenarios]
    known = context.known.session(streams, session)
    shared = context.tasks.shared(known, streams[0].sizes(session))
    nodes = torch.from_numpy(streams[0].queries[0]).unsqueeze(0)
    return pack.run("embeddings", (shared,), known.view, nodes)
