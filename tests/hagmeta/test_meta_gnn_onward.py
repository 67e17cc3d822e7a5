from __future__ import annotations

from collections.abc import Callable
from itertools import islice

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from hagmeta.capture import Steps
from hagmeta.config import RunConfig
from hagmeta.datasets.base import NodeDataset
from hagmeta.gpil import ordinary_episodes
from hagmeta.pack import Pack, State, no_progress
from hagmeta.pipeline import prepare, pretrain, rehearse
from hagmeta.randomness import fold, keys
from hagmeta.sessions import Validation, meet, play
from hagmeta.stage import Stage
from hagmeta.stream import Stream

CPU = torch.device("cpu")
SEEDS = [0, 5]
ONWARD = "meta-gnn-onward"
Small = Callable[..., RunConfig]


def pretrained(config: RunConfig, dataset: NodeDataset) -> tuple[Stage, Pack, list[Stream]]:
    stage = prepare(config, SEEDS, dataset, CPU)
    return stage, pretrain(stage, None, no_progress), [world.test for world in stage.worlds]


def live_through(stage: Stage, pack: Pack, streams: list[Stream], session: int) -> None:
    meet(stage, pack, stage.session(streams, session), streams, session)


@torch.no_grad()
def logits_at(stage: Stage, pack: Pack, streams: list[Stream], session: int) -> Tensor:
    setting = stage.session(streams, session)
    scene = stage.scene(setting, len(streams[0].known), session)
    (logits,) = pack.run("logits", (scene,), setting.view, (stage.task(streams, session),))
    return logits


def changed(pack: Pack, before: State) -> set[str]:
    return {name for name, value in pack.snapshot().items() if not torch.equal(value, before[name])}


def encoder_of(pack: Pack) -> set[str]:
    return {name for name in pack.parameters if name.startswith("encoder.")}


@pytest.mark.parametrize("first_order", [False, True])
def test_it_is_meta_trained_as_meta_gnn_is_and_its_head_waits(
    dataset: NodeDataset, small: Small, first_order: bool
) -> None:
    packs = []
    for method in ("meta-gnn", ONWARD):
        stage, pack, _ = pretrained(small(method=method, first_order=first_order), dataset)
        steps, key = Steps(pack, 0.01, 0.1, stage.capture()), keys(SEEDS, "dropout")
        for number, episode in enumerate(islice(ordinary_episodes(stage, stage.training()), 3)):
            episode.learn(steps, fold(key, number))
        packs.append(pack)
    plain, onward = packs
    assert all(torch.equal(value, onward.parameters[name]) for name, value in plain.parameters.items())
    assert not any(onward.parameters[f"head.{part}"].any() for part in ("weight", "bias"))


def test_before_the_first_session_it_answers_as_meta_gnn_does(dataset: NodeDataset, small: Small) -> None:
    stage, pack, streams = pretrained(small(method=ONWARD), dataset)
    encoder = pack.snapshot()
    live_through(stage, pack, streams, 0)
    assert changed(pack, encoder) == {"head.weight", "head.bias"}
    expected = logits_at(*pretrained(small(method="meta-gnn"), dataset), 0)
    torch.testing.assert_close(logits_at(stage, pack, streams, 0), expected, rtol=1e-4, atol=1e-4)


def test_what_a_session_changes_lasts(dataset: NodeDataset, small: Small) -> None:
    stage, pack, streams = pretrained(small(method=ONWARD), dataset)
    states = []
    for session in range(3):
        live_through(stage, pack, streams, session)
        states.append(pack.snapshot())
    assert encoder_of(pack) < changed(pack, states[0])
    assert encoder_of(pack) < changed(pack, states[1])
    # So the second session depends on the first.
    pack.restore(states[0])
    live_through(stage, pack, streams, 2)
    assert encoder_of(pack) < changed(pack, states[2])


def test_playing_a_stream_leaves_the_model_where_its_sessions_do(dataset: NodeDataset, small: Small) -> None:
    stage, pack, streams = pretrained(small(method=ONWARD), dataset)
    before = pack.snapshot()
    play(stage, pack, streams, "test", no_progress)
    after = pack.snapshot()
    pack.restore(before)
    for session in range(streams[0].sessions + 1):
        live_through(stage, pack, streams, session)
    assert not changed(pack, after)


@pytest.mark.parametrize("held_out", [0, 2])
def test_validation_leaves_nothing_behind(dataset: NodeDataset, small: Small, held_out: int) -> None:
    stage, pack, _ = pretrained(small(method=ONWARD, val_classes=held_out), dataset)
    before = pack.snapshot()
    Validation(stage, stage.capture()).accuracy(pack)
    rehearse(stage, pack, no_progress)
    assert not changed(pack, before)


def test_the_rows_of_all_classes_met_learn_from_the_new_supports(dataset: NodeDataset, small: Small) -> None:
    stage, pack, streams = pretrained(small(method=ONWARD), dataset)
    for session in range(3):
        before = pack.snapshot()
        live_through(stage, pack, streams, session)
        moved = (pack.snapshot()["head.weight"] != before["head.weight"]).any(-1)  # (classes, pack)
        for seed, stream in enumerate(streams):
            assert set(torch.nonzero(moved[:, seed]).ravel().tolist()) == set(stream.met(session))


@pytest.mark.parametrize("steps", [0, 1, 3])
def test_a_session_takes_the_steps_that_plain_gradients_say(
    dataset: NodeDataset, small: Small, steps: int
) -> None:
    stage, pack, streams = pretrained(small(method=ONWARD, inner_steps=steps, inner_rate=0.1), dataset)
    for session in range(2):
        live_through(stage, pack, streams, session)
    before = pack.states()
    live_through(stage, pack, streams, 2)
    for seed, (stream, state) in enumerate(zip(streams, before, strict=True)):
        expected = by_hand(dataset, stage, stream, state, steps, rate=0.1)
        for name, value in pack.states()[seed].items():
            torch.testing.assert_close(value, expected[name], rtol=1e-4, atol=1e-5)


def by_hand(
    dataset: NodeDataset, stage: Stage, stream: Stream, state: State, steps: int, rate: float
) -> State:
    """The parameters after the second session: dense matrices and autograd, one seed at a time."""
    visible = torch.from_numpy(stream.visible(2)).float()
    links = torch.from_numpy(stage.graph.loops.toarray()) * visible * visible[:, None]
    scale = links.sum(1).clamp(min=1).rsqrt()
    propagation = scale[:, None] * links * scale
    features = propagation @ torch.from_numpy(dataset.features.toarray())
    support, arriving = torch.from_numpy(stream.support[1]), torch.from_numpy(stream.arriving[1])

    def embedded(state: State) -> Tensor:
        hidden = F.relu(features @ state["encoder.first.weight"] + state["encoder.first.bias"])
        return propagation @ hidden @ state["encoder.second.weight"] + state["encoder.second.bias"]

    means = embedded(state)[support].mean(1)
    state["head.weight"][arriving] = 2 * means
    state["head.bias"][arriving] = -means.square().sum(-1)
    met = torch.from_numpy(stream.met(2))
    for _ in range(steps):
        state = {name: value.detach().requires_grad_() for name, value in state.items()}
        logits = embedded(state)[support.flatten()] @ state["head.weight"][met].T + state["head.bias"][met]
        target = torch.arange(len(met) - 2, len(met)).repeat_interleave(3)  # two classes, three supports each
        slopes = torch.autograd.grad(F.cross_entropy(logits, target), list(state.values()))
        pairs = zip(state.items(), slopes, strict=True)
        state = {name: (value - rate * slope).detach() for (name, value), slope in pairs}
    return state
