"""LwF: what a session learns and distils, and which labels it reads."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy.special import log_softmax, softmax

from hagmeta.config.run_config import RunConfig, resolve
from hagmeta.datasets.base import Dataset
from hagmeta.engine.hooks import add_classes
from hagmeta.engine.known.batches import SupportBatches
from hagmeta.methods.classifiers.base import loss_among_new
from hagmeta.methods.classifiers.distillation import divergence
from hagmeta.methods.classifiers.lwf import Lwf
from hagmeta.packs.randomness import keys
from tests.hagmeta.methods.fine_tuning import SEEDS, FineTuning, after_sessions, prepared, same

Tiny = Callable[..., RunConfig]


def test_distillation_compares_softened_softmaxes_without_a_factor() -> None:
    before = torch.tensor([[0.0, 2 * math.log(3)]])  # 1/4 and 3/4 at temperature 2
    moved = divergence(torch.zeros(1, 2), before, 2.0)
    # 1/4 log(1/4 / 1/2) + 3/4 log(3/4 / 1/2)
    torch.testing.assert_close(moved, torch.tensor([0.1308120]))


def test_new_labels_are_learnt_among_their_session_only() -> None:
    logits = torch.tensor([[9.0, 0.0, math.log(3)], [5.0, 1.0, 1.0]])
    # The second node belongs to an earlier class; the first has probability 3/4 among the last two classes.
    torch.testing.assert_close(loss_among_new(logits, torch.tensor([2, 0]), 2), torch.tensor(0.2876821))


def test_a_single_new_class_is_learnt_among_all_classes() -> None:
    logits = torch.tensor([[1.0, -0.5, 0.2], [0.3, 0.1, 2.0]], requires_grad=True)
    loss = loss_among_new(logits, torch.tensor([2, 0]), 1)
    torch.testing.assert_close(loss, F.cross_entropy(logits[:1], torch.tensor([2])))
    loss.backward()
    assert (logits.grad[0].abs() > 0.1).all() and not logits.grad[1].any()


@pytest.mark.parametrize("distil_on", ["supports", "visible"])
def test_the_loss_of_a_step(tiny_graph: Dataset, tiny: Tiny, distil_on: str) -> None:
    config = tiny(method="lwf", distillation=3.0, temperature=5.0, distil_on=distil_on, dropout=0.0)
    context, pack = prepared(config, tiny_graph)
    streams = [scenario.test for scenario in context.scenarios]
    known = context.known.session(streams, 1)
    add_classes(context, pack, known, streams, 1)
    shared = context.tasks.shared(known, streams[0].sizes(1))
    everywhere = torch.arange(context.graph.num_nodes).expand(len(SEEDS), -1)
    whole = context.tasks.session(streams, 1)._replace(query=everywhere)

    batches = SupportBatches(context)
    batches.begin(pack, shared, known.view, streams, 1)
    task, target = batches.task(1)
    (before,) = pack.run("logits", (shared,), known.view, (whole,))
    with torch.no_grad():  # as steps would
        for value in pack.parameters.values():
            value += 0.1 * torch.randn(value.shape, generator=torch.Generator().manual_seed(0))
    (after,) = pack.run("logits", (shared,), known.view, (whole,))
    losses, _ = pack.run("session_loss", (shared,), known.view, task, target, keys(SEEDS, "dropout"))

    for seed, stream in enumerate(streams):
        supports = stream.support[1].ravel()
        visible = np.flatnonzero(stream.arrived(1))
        then, now = (x[seed].detach().numpy().astype(np.float64) for x in (before, after))
        learnt = -log_softmax(now[supports, 4:], -1)[range(4), [0, 0, 1, 1]].mean()
        nodes = supports if distil_on == "supports" else visible
        old, new = then[nodes, :4] / 5, now[nodes, :4] / 5
        kept = (softmax(old, -1) * (log_softmax(old, -1) - log_softmax(new, -1))).sum(-1).mean()
        assert kept > 1e-4
        np.testing.assert_allclose(losses[seed].item(), learnt + 3 * kept, rtol=1e-4)


def test_without_distillation_it_is_fine_tuning(tiny_graph: Dataset, tiny: Tiny) -> None:
    plain = after_sessions(tiny(method=FineTuning), tiny_graph)
    assert same(plain, after_sessions(tiny(method="lwf", distillation=0.0), tiny_graph))
    assert not same(plain, after_sessions(tiny(method="lwf", distillation=1.0), tiny_graph))


def test_sessions_read_no_earlier_label(tiny_graph: Dataset, tiny: Tiny) -> None:
    everything = after_sessions(tiny(method="lwf", rehearsal="all"), tiny_graph)
    for rehearsal in ("1", "none"):
        assert same(everything, after_sessions(tiny(method="lwf", rehearsal=rehearsal), tiny_graph))


@pytest.mark.parametrize(("distil_on", "marked"), [("supports", False), ("visible", True)])
def test_distilling_on_unlabelled_nodes_is_marked(tiny: Tiny, distil_on: str, marked: bool) -> None:
    config: Any = resolve(tiny(method="lwf", distil_on=distil_on))
    assert bool(Lwf.traits_of(config).transductive) is marked
