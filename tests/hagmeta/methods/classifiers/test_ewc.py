"""EWC: the importance of parameters, the penalty, and which labels they come from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import log_loss
from sklearn.utils.class_weight import compute_sample_weight

from hagmeta.config.run_config import RunConfig
from hagmeta.datasets.base import Dataset
from hagmeta.engine import engine
from hagmeta.engine.hooks import add_classes, consolidate, labelled
from hagmeta.engine.run import validate
from hagmeta.layers.losses import balanced_cross_entropy
from hagmeta.methods.classifiers.ewc import penalty, with_task
from hagmeta.scenarios.scenario import TRAIN
from tests.hagmeta.methods.fine_tuning import FineTuning, after_sessions, prepared, same

Tiny = Callable[..., RunConfig]


def test_the_penalties_of_two_tasks_are_one_up_to_a_constant() -> None:
    # One parameter ends at 1 with F = 2, then at 3 with F = 6. The other has no importance in the first task.
    importance, anchor = torch.zeros(2), torch.zeros(2)
    importance, anchor = with_task(importance, anchor, torch.tensor([2.0, 0.0]), torch.tensor([1.0, 7.0]))
    assert importance.tolist() == [2, 0] and anchor.tolist() == [1, 7]
    importance, anchor = with_task(importance, anchor, torch.tensor([6.0, 5.0]), torch.tensor([3.0, 4.0]))
    assert importance.tolist() == [8, 5] and anchor.tolist() == [2.5, 4]
    for p in (-1.0, 2.0, 4.0):
        value = torch.tensor([p, 10.0])
        by_task = 2 * (p - 1) ** 2 + 6 * (p - 3) ** 2 + 5 * (10 - 4) ** 2
        # At the anchor 2.5, the terms of the first parameter still are 4.5 and 1.5.
        assert penalty({"p": value}, {"p": importance}, {"p": anchor}).item() == by_task - 6


def test_the_loss_behind_the_importance_is_that_of_balanced_classes() -> None:
    rng = np.random.default_rng(0)
    logits, target = rng.normal(size=(30, 4)), rng.choice(3, 30, p=[0.7, 0.2, 0.1])
    share = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    weight = compute_sample_weight("balanced", target)
    expected = log_loss(target, share, sample_weight=weight, labels=range(4))
    padded = [np.concatenate([logits, rng.normal(size=(5, 4))]), np.concatenate([target, np.full(5, -1)])]
    assert balanced_cross_entropy(*map(torch.from_numpy, padded)).item() == pytest.approx(expected)


def test_importance_is_the_squared_gradient_at_the_end_of_each_task(tiny_graph: Dataset, tiny: Tiny) -> None:
    context, pack = prepared(tiny(method="ewc"), tiny_graph)
    streams = [scenario.test for scenario in context.scenarios]
    learning = {name: value for name, value in pack.parameters.items() if value.requires_grad}
    expected = {name: torch.zeros_like(value) for name, value in learning.items()}
    for session in range(2):
        known = context.known.session(streams, session)
        add_classes(context, pack, known, streams, session)
        shared = context.tasks.shared(known, streams[0].sizes(session))
        task, target = labelled(context, streams, session)
        (logits,) = pack.run("logits", (shared,), known.view, (task,))
        loss = torch.zeros(())
        for scores, truth in zip(logits, target, strict=True):
            classes = truth[truth >= 0].unique()
            means = [
                torch.nn.functional.cross_entropy(scores[truth == c], truth[truth == c]) for c in classes
            ]
            loss = loss + torch.stack(means).mean()
        slopes = torch.autograd.grad(loss, list(learning.values()))
        for name, slope in zip(learning, slopes, strict=True):
            expected[name] += slope.square()
        consolidate(context, pack, known, streams, session)
        for name, value in expected.items():
            found = pack.parameters[f"importance.{name.replace('.', '-')}"]
            torch.testing.assert_close(found, value, rtol=1e-3, atol=1e-9)
        assert all((value > 1e-8).any() for value in expected.values())
    assert not any(value.requires_grad for name, value in pack.parameters.items() if name not in learning)


def test_without_penalty_it_is_fine_tuning(tiny_graph: Dataset, tiny: Tiny) -> None:
    plain = after_sessions(tiny(method=FineTuning), tiny_graph)
    assert same(plain, after_sessions(tiny(method="ewc", consolidation=0.0), tiny_graph))
    assert not same(plain, after_sessions(tiny(method="ewc"), tiny_graph))


def test_a_larger_penalty_holds_important_parameters(tiny_graph: Dataset, tiny: Tiny) -> None:
    moved = []
    for weight in (0.0, 1e4):
        after = after_sessions(tiny(method="ewc", consolidation=weight, finetune_steps=10), tiny_graph)
        importance, anchor = (
            {name.removeprefix(kind): value for name, value in after.items() if name.startswith(kind)}
            for kind in ("importance.", "anchor.")
        )
        encoder = {name: value for name, value in after.items() if name.startswith("encoder")}
        moved.append(float(penalty(encoder, importance, anchor)))
    assert moved[0] > 2 * moved[1] > 0


def test_importance_comes_from_the_labels_of_the_session_alone(tiny_graph: Dataset, tiny: Tiny) -> None:
    context, _ = prepared(tiny(method="ewc", rehearsal="none"), tiny_graph)
    streams = [scenario.test for scenario in context.scenarios]
    for session in range(3):
        task, target = labelled(context, streams, session)
        for seed, (scenario, stream) in enumerate(zip(context.scenarios, streams, strict=True)):
            real = target[seed] >= 0
            nodes, classes = task.query[seed][real].numpy(), stream.met(session)[target[seed][real]]
            assert (scenario.labels[nodes] == classes).all() and len(set(nodes)) == len(nodes)
            if session:
                assert set(nodes) == set(stream.support[session].ravel())
            else:
                assert set(nodes) == set(scenario.nodes_of(stream.known, TRAIN))


def test_sessions_read_no_earlier_label(tiny_graph: Dataset, tiny: Tiny) -> None:
    everything = after_sessions(tiny(method="ewc", rehearsal="all"), tiny_graph)
    for rehearsal in ("1", "none"):
        assert same(everything, after_sessions(tiny(method="ewc", rehearsal=rehearsal), tiny_graph))


def test_validation_streams_leave_no_importance_behind(
    tiny_graph: Dataset, tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tiny(method="ewc", classes=(2, 3, 4), n_way=1, val_classes=1)
    context, pack = prepared(config, tiny_graph)
    found: list[bool] = []

    def important() -> bool:
        return any(value.any() for name, value in pack.parameters.items() if name.startswith("importance"))

    def watched(*given: Any) -> None:
        consolidate(*given)
        found.append(important())

    monkeypatch.setattr(engine, "consolidate", watched)
    validate(context, pack)
    assert found and all(found) and not important()
