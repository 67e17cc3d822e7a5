from __future__ import annotations

from collections.abc import Callable
from itertools import islice

import numpy as np
import pytest
import torch
from torch import Tensor

from hagmeta.config.run_config import RunConfig
from hagmeta.datasets.base import Dataset
from hagmeta.engine.context import Context
from hagmeta.engine.run import prepare, pretrain
from hagmeta.engine.training.meta_training import pseudo_episodes
from hagmeta.layers.locations import LocationAttention, class_walks
from hagmeta.packs.pack import Pack
from hagmeta.packs.randomness import keys

CPU = torch.device("cpu")
SEEDS = [0, 5]
Tiny = Callable[..., RunConfig]


def pretrained(config: RunConfig, dataset: Dataset) -> tuple[Context, Pack]:
    context = prepare(config, SEEDS, dataset, CPU)
    return context, pretrain(context)


@torch.no_grad()
def logits_of_session(context: Context, pack: Pack, session: int) -> Tensor:
    streams = [scenario.test for scenario in context.scenarios]
    known = context.known.session(streams, session)
    shared = context.tasks.shared(known, streams[0].sizes(session))
    logits: Tensor = pack.run("logits", (shared,), known.view, (context.tasks.session(streams, session),))[0]
    return logits


LAST = [f"located.connections.last.{name}" for name in ("weight", "bias")]


@pytest.mark.parametrize("session", [0, 2])
def test_without_locations_it_classifies_by_distance_to_means(
    tiny_graph: Dataset, tiny: Tiny, session: int
) -> None:
    context, pack = pretrained(tiny(method="rale", pretrain_on="base"), tiny_graph)
    with_locations = logits_of_session(context, pack, session)
    with torch.no_grad():
        for name in LAST:
            pack.parameters[name].zero_()
    found = logits_of_session(context, pack, session)
    frozen = pretrained(tiny(method="frozen", pretrain_on="base"), tiny_graph)
    torch.testing.assert_close(found, logits_of_session(*frozen, session), rtol=1e-4, atol=1e-4)
    assert (found - with_locations).std(-1).mean() > 1e-5  # not the same for all classes


def test_both_locations_learn_from_the_first_step(tiny_graph: Dataset, tiny: Tiny) -> None:
    context, pack = pretrained(tiny(method="rale"), tiny_graph)
    (episode,) = islice(pseudo_episodes(context, context.known.training()), 1)
    losses, _ = episode.loss(pack, keys(SEEDS, "dropout"))
    for name, value in pack.parameters.items():
        if name.startswith("located.") and name.endswith("weight"):
            (gradient,) = torch.autograd.grad(losses.sum(), [value], retain_graph=True)
            assert (gradient.movedim(-2, 0).flatten(1).abs().amax(-1) > 0).all(), name


def test_hubs_are_visible_nodes_of_high_rank(tiny_graph: Dataset, tiny: Tiny) -> None:
    context, pack = pretrained(tiny(method="rale", hubs=4), tiny_graph)
    streams = [scenario.test for scenario in context.scenarios]
    for session in (0, 1):
        view = context.known.session(streams, session).view
        hubs = pack.run("_hubs", (context.graph,), view)
        for chosen, visible in zip(hubs, view.visible, strict=True):
            seen = visible.numpy() > 0
            degree = np.where(seen, tiny_graph.adjacency @ seen.astype(float), 0)
            # In an undirected graph PageRank is close to the degree.
            assert len(set(chosen.tolist())) == 4 and seen[chosen].all()
            assert degree[chosen].min() >= np.quantile(degree[seen], 0.85)


def test_a_node_is_no_reference_of_itself() -> None:
    walk = torch.tensor([[0.5, 0.2, 0.1], [0.3, 0.4, 0.2]])  # two nodes, three references
    members = torch.tensor([[1.0, 0], [1, 0], [0, 1]])
    others = torch.tensor([[0.0, 1, 1], [1, 1, 1]])  # the first node is the first reference
    starts, ends = torch.tensor([2.0, 1]), torch.tensor([1, 0.5, 0.25])
    found = class_walks([walk], members, others, starts, ends)
    forward = [[0.2, 0.1], [0.35, 0.2]]
    backward = [[0.2, 0.05], [0.25, 0.05]]
    torch.testing.assert_close(found, torch.stack([torch.tensor(forward), torch.tensor(backward)], dim=-1))


def test_attention_ignores_references_without_a_walk() -> None:
    attention = LocationAttention(3)
    connections = torch.randn(2, 4, 3, generator=torch.Generator().manual_seed(0))
    reached = torch.tensor([[False, True, False, False], [False] * 4])
    with torch.no_grad():
        found = attention(connections, reached)
    torch.testing.assert_close(found, torch.stack([connections[0, 1], torch.zeros(3)]))
