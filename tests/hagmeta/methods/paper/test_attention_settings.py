"""What decides how NLA and TLA weigh: each setting does what it says, in packs and in plain mode."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from hagmeta.common.records.records import Record
from hagmeta.config.remarks import remarks
from hagmeta.config.run_config import RunConfig, resolve
from hagmeta.datasets.base import Dataset
from hagmeta.engine.context import Context
from hagmeta.engine.run import prepare, pretrain, train_and_evaluate
from hagmeta.methods import METHODS, Sizes, make_method
from hagmeta.methods.paper.hag_meta import HagMeta
from hagmeta.packs.randomness import keys
from hagmeta.scenarios.scenario import TEST, TRAIN, Scenario
from hagmeta.testing import check_packs, check_plain, records_of

CPU = torch.device("cpu")
SEEDS = [0, 5]
Tiny = Callable[..., RunConfig]
NLA = ("softmax", "share", "plain", "permuted", "degree", "oracle")
TLA = ("learnt", "uniform", "stopped", "flipped", "sizes")
VARIANTS = [{"nla_weights": form} for form in NLA[1:]] + [{"tla_weights": form} for form in TLA[1:]]
VARIANTS += [{"nla_rate": 0.05}, {"nla_decay": 0.0}, {"nla_rate": 0.0005, "nla_decay": 0.1}]


@pytest.fixture
def tiny(tiny: Tiny) -> Tiny:
    """Three supports a class: two of them are left in a step."""
    return partial(tiny, k_shot=3)


def records(config: RunConfig, dataset: Dataset) -> list[Record]:
    return records_of(config, SEEDS, dataset)


@pytest.mark.parametrize(
    "changes", [VARIANTS[0], *(pytest.param(each, marks=pytest.mark.slow) for each in VARIANTS[1:])], ids=str
)
def test_attention_in_packs_and_plain(changes: dict[str, Any]) -> None:
    assert resolve(RunConfig.of(**changes)).hash() != resolve(RunConfig.of()).hash()
    for check in (check_packs, check_plain):
        check("hag-meta", **changes, k_shot=3)


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"nla_weights": "degree"}, {"encoder", "task_attention"}),
        ({"nla_weights": "oracle"}, {"encoder", "task_attention"}),
        ({"tla_weights": "uniform"}, {"encoder", "node_attention"}),
        ({"nla_weights": "oracle", "nla": False}, {"encoder", "task_attention"}),
    ],
)
def test_what_is_not_learnt_has_no_parameters(tiny: Tiny, changes: dict[str, Any], parts: set[str]) -> None:
    config = tiny(**changes)
    method = make_method(config, Sizes(features=30, base_classes=4, n_way=2, classes=14), 0)
    assert {name.partition(".")[0] for name, _ in method.named_parameters()} == parts
    assert METHODS["hag-meta"].passes(config) == 1 + ("node_attention" in parts)


@pytest.mark.parametrize(
    ("changes", "plain"),
    [
        ({"nla_weights": "plain", "nla_rate": 0.05, "nla_decay": 0.0}, {"nla": False}),
        ({"nla_rate": 0.05, "nla_decay": 0.0}, {"nla_weights": "degree"}),
        ({"tla_weights": "flipped"}, {"tla": False}),
        ({"nla_rate": 0.05}, {"nla": False, "protocol": "released"}),
    ],
)
def test_settings_of_an_attention_that_is_off_make_no_other_run(
    tiny: Tiny, changes: dict[str, Any], plain: dict[str, Any]
) -> None:
    assert resolve(tiny(**changes, **plain)) == resolve(tiny(**plain))


# Rate and weight decay of NLA's own.


@pytest.mark.parametrize("phase", ["learning_rate", "finetune_rate"])
def test_nla_has_its_own_rate_and_decay_in_training_and_in_sessions(
    tiny_graph: Dataset, tiny: Tiny, phase: str
) -> None:
    config = tiny(learning_rate=0.01, finetune_rate=0.002, nla_rate=0.05, nla_decay=0.1)
    context = prepare(config, [0], tiny_graph, CPU)
    pack = pretrain(context)
    with context.runtime.capture() as capture:
        steps = context.runtime.steps(pack, getattr(config, phase), capture)
    common, own = steps._optimizer.param_groups
    assert (common["lr"], common["weight_decay"]) == (getattr(config, phase), config.weight_decay)
    assert own["lr"] == pytest.approx(5 * common["lr"]) and own["weight_decay"] == 0.1
    names = {id(value): name for name, value in pack.parameters.items()}
    assert {names[id(value)].partition(".")[0] for value in own["params"]} == {"node_attention"}
    assert {names[id(value)].partition(".")[0] for value in common["params"]} == {"encoder", "task_attention"}


# What gradients TLA's weights pass on.


def gradients(tiny_graph: Dataset, config: RunConfig) -> dict[str, torch.Tensor | None]:
    """Of the losses of a step in training mode, by parameter."""
    context = prepare(config, SEEDS, tiny_graph, CPU)
    pack = pretrain(context)
    streams = [scenario.test for scenario in context.scenarios]
    known = context.known.session(streams, 1)
    shared = context.tasks.shared(known, streams[0].sizes(1))
    task = context.tasks.session(streams, 1)._replace(query=torch.arange(12).view(2, 6))
    target, key = torch.arange(6).expand(2, -1), keys(SEEDS, "dropout")
    losses, _ = pack.run("loss", (shared,), known.view, task, target, key)
    losses.sum().backward()
    return {name: value.grad for name, value in pack.parameters.items()} | {"loss": losses.detach()}


def test_flipped_reverses_the_gradients_of_tla_and_of_nothing_else(tiny_graph: Dataset, tiny: Tiny) -> None:
    learnt, flipped = (gradients(tiny_graph, tiny(tla_weights=form)) for form in ("learnt", "flipped"))
    for name, value in learnt.items():
        other = flipped[name]
        assert value is not None and other is not None
        torch.testing.assert_close(other, -value if name.startswith("task_attention.") else value)
    assert learnt["task_attention.shared.weight"].abs().max() > 0  # type: ignore[union-attr]


def test_stopped_weights_teach_neither_tla_nor_the_encoder(tiny_graph: Dataset, tiny: Tiny) -> None:
    learnt, stopped = (gradients(tiny_graph, tiny(tla_weights=form)) for form in ("learnt", "stopped"))
    assert torch.equal(learnt.pop("loss"), stopped.pop("loss"))  # type: ignore[arg-type]
    for name, value in stopped.items():
        assert (value is None) == name.startswith("task_attention."), name
    one, other = (each["encoder.second.weight"] for each in (learnt, stopped))
    assert one is not None and other is not None and not torch.allclose(one, other)


# The oracle.


def with_other_labels(context: Context, hidden: Callable[[Scenario], np.ndarray]) -> Context:
    rng, scenarios = np.random.default_rng(0), []
    for scenario in context.scenarios:
        labels, nodes = scenario.labels.copy(), np.flatnonzero(hidden(scenario))
        labels[nodes] = rng.permutation(labels[nodes])
        assert (labels != scenario.labels).sum() > 20
        scenarios.append(replace(scenario, labels=labels))
    return replace(context, scenarios=scenarios)


def answers(context: Context) -> list[np.ndarray]:
    evaluators, _ = train_and_evaluate(context, pretrain(context))
    return [np.concatenate(evaluator.answers) for evaluator in evaluators]


@pytest.mark.parametrize("rehearsal", ["all", pytest.param("2", marks=pytest.mark.slow)])
def test_oracle_weights_read_train_labels_of_classes_met_and_no_others(
    tiny_graph: Dataset, tiny: Tiny, rehearsal: str
) -> None:
    context = prepare(tiny(nla_weights="oracle", rehearsal=rehearsal), SEEDS, tiny_graph, CPU)

    def to_come(scenario: Scenario) -> np.ndarray:
        return np.isin(scenario.labels, scenario.split.novel_test) & (scenario.split.role == TRAIN)

    def asked(scenario: Scenario) -> np.ndarray:
        return scenario.split.role == TEST

    known = answers(context)
    pairs = zip(known, answers(with_other_labels(context, asked)), strict=True)
    assert all(np.array_equal(*pair) for pair in pairs)
    # It is an oracle because these do change it; the same weights without them are none.
    pairs = zip(known, answers(with_other_labels(context, to_come)), strict=True)
    assert not all(np.array_equal(*pair) for pair in pairs)
    honest = replace(context, settings=replace(context.settings, nla_weights="softmax"))
    pairs = zip(answers(honest), answers(with_other_labels(honest, to_come)), strict=True)
    assert all(np.array_equal(*pair) for pair in pairs)


def test_a_configuration_with_oracle_weights_is_marked(tiny_graph: Dataset, tiny: Tiny) -> None:
    oracle = tiny(nla_weights="oracle")
    assert "oracle" in " ".join(remarks(resolve(oracle)))
    assert [records(config, tiny_graph)[0]["oracle"] for config in (oracle, tiny())] == [True, False]
    for changes in (
        {},
        {"nla": False, "nla_weights": "oracle"},
        {"nla_weights": "oracle", "protocol": "released"},
    ):
        assert "oracle" not in " ".join(remarks(resolve(tiny(**changes)))), changes


# What is kept of a session.


def test_under_released_they_are_of_the_sessions_after_the_first(tiny_graph: Dataset, tiny: Tiny) -> None:
    for record in records(tiny(protocol="released"), tiny_graph):
        assert record["nla_entropy"][0] is record["tla_base_share"][0] is None
        assert all(0 < value <= 1 + 1e-6 for value in record["nla_entropy"][1:])
        assert record["tla_equal_share"][1:] == pytest.approx([1 / 4, 1 / 5])  # with second prototypes


@pytest.mark.parametrize(
    "rehearsal", ["2", *(pytest.param(each, marks=pytest.mark.slow) for each in ("all", "none"))]
)
def test_the_entropy_is_that_of_the_weights(
    tiny_graph: Dataset, tiny: Tiny, monkeypatch: pytest.MonkeyPatch, rehearsal: str
) -> None:
    # Equal weights count as equal, also where supports are repeated to one length.
    def equal(self: HagMeta, shared: Any, encoded: Any, task: Any, support: torch.Tensor) -> torch.Tensor:
        return torch.full_like(support[..., 0], 1 / support.shape[1])

    monkeypatch.setattr(HagMeta, "_weights", equal)
    for record in records(tiny(rehearsal=rehearsal), tiny_graph):
        assert record["nla_entropy"][1:] == pytest.approx([1, 1])
        assert not math.isnan(record["tla_base_share"][0])
