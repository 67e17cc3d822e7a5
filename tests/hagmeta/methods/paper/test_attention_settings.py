"""What decides how NLA and TLA weigh: each setting does what it says, in packs and in plain mode."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from hagmeta.common.records.records import Record
from hagmeta.config.remarks import remarks
from hagmeta.config.run_config import RunConfig, resolve
from hagmeta.datasets.base import Dataset
from hagmeta.engine.context import Context
from hagmeta.engine.options import mode_of
from hagmeta.engine.run import prepare, pretrain, train_and_evaluate
from hagmeta.methods import METHODS, Sizes, make_method
from hagmeta.methods.paper.hag_meta import HagMeta
from hagmeta.packs.pack import Parameters
from hagmeta.packs.randomness import keys
from hagmeta.scenarios.evaluator import Evaluator
from hagmeta.scenarios.scenario import TEST, TRAIN, Scenario
from hagmeta.testing import records_of

CPU = torch.device("cpu")
SEEDS = [0, 5]
Tiny = Callable[..., RunConfig]
NLA = ("softmax", "share", "plain", "permuted", "degree", "oracle")
TLA = ("learnt", "uniform", "stopped", "flipped", "sizes")
VARIANTS = [{"nla_weights": form} for form in NLA[1:]] + [{"tla_weights": form} for form in TLA[1:]]
QUICK = [VARIANTS[0], VARIANTS[5]]
VARIANTS += [{"nla_rate": 0.05}, {"nla_decay": 0.0}, {"nla_rate": 0.0005, "nla_decay": 0.1}]


@pytest.fixture
def tiny(tiny: Tiny) -> Tiny:
    """Three supports a class: two of them are left in a step."""
    return partial(tiny, k_shot=3)


def records(config: RunConfig, dataset: Dataset) -> list[Record]:
    return records_of(config, SEEDS, dataset)


class Lived(NamedTuple):
    """A whole run: the parameters after it, and what it told of itself."""

    parameters: Parameters
    evaluators: list[Evaluator]


def lived(config: RunConfig, dataset: Dataset, *, plain: bool = False) -> Lived:
    context = prepare(config, SEEDS[:1] if plain else SEEDS, dataset, CPU, mode=mode_of(plain=plain))
    pack = pretrain(context)
    evaluators, _ = train_and_evaluate(context, pack)
    return Lived(pack.snapshot(), evaluators)


def same(one: Parameters, other: Parameters) -> bool:
    shared = one.keys() & other.keys()
    return bool(shared) and all(torch.equal(one[name], other[name]) for name in shared)


@pytest.fixture(scope="module")
def usual() -> dict[str, Parameters]:
    """Filled by the first that needs it."""
    return {}


@pytest.mark.parametrize(
    "changes",
    [pytest.param(each, marks=() if each in QUICK else pytest.mark.slow) for each in VARIANTS],
    ids=str,
)
def test_every_setting_makes_another_run_alike_in_packs_and_in_plain_mode(
    tiny_graph: Dataset, tiny: Tiny, usual: dict[str, Parameters], changes: dict[str, Any]
) -> None:
    if not usual:
        usual.update(default=lived(tiny(), tiny_graph).parameters)
    config = tiny(**changes)
    assert resolve(config).hash() != resolve(tiny()).hash()
    packed, plain = (lived(config, tiny_graph, plain=plain) for plain in (False, True))
    assert not same(usual["default"], packed.parameters)
    one, other = packed.evaluators[0], plain.evaluators[0]
    assert one.accuracy() == pytest.approx(other.accuracy(), abs=0.03)
    for name, values in one.diagnostics().items():
        assert len(values) == 3 and values[1:] == pytest.approx(other.diagnostics()[name][1:], abs=1e-3)


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


def test_the_forms_of_nla_that_learn_start_from_the_same_parameters(tiny: Tiny) -> None:
    sizes = Sizes(features=30, base_classes=4, n_way=2, classes=14)
    states = [make_method(tiny(nla_weights=form), sizes, 0).state_dict() for form in NLA[:4]]
    assert all(same(states[0], state) for state in states[1:])


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


def test_a_rate_or_decay_alone_leaves_the_other_common(tiny_graph: Dataset, tiny: Tiny) -> None:
    for changes, expected in (({"nla_rate": 0.05}, (0.05, 0.0005)), ({"nla_decay": 0.0}, (0.005, 0.0))):
        context = prepare(tiny(**changes), [0], tiny_graph, CPU)
        own = context.runtime._own_steps(0.005)
        assert own == {"node_attention.": pytest.approx(expected)}
    assert prepare(tiny(), [0], tiny_graph, CPU).runtime._own_steps(0.005) == {}


def test_nla_at_the_common_rate_is_nla_as_it_was(tiny_graph: Dataset, tiny: Tiny) -> None:
    named = tiny(nla_rate=0.005, nla_decay=0.0005)
    assert same(lived(tiny(), tiny_graph).parameters, lived(named, tiny_graph).parameters)


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


@torch.no_grad()
def test_oracle_prototypes_are_nearer_to_the_true_means_than_any_others(
    tiny_graph: Dataset, tiny: Tiny
) -> None:
    distances = {}
    for form in NLA:
        context = prepare(tiny(nla_weights=form, pretrain_epochs=5), SEEDS, tiny_graph, CPU)
        pack = pretrain(context)
        streams = [scenario.test for scenario in context.scenarios]
        known = context.known.session(streams, 2)
        shared = context.tasks.shared(known, streams[0].sizes(2))
        task = context.tasks.session(streams, 2)
        (prototypes,) = pack.run("class_statistics", (shared,), known.view, task)
        every = torch.arange(401).expand(2, -1)
        embedded = pack.run("embeddings", (shared,), known.view, every)
        distances[form] = torch.stack(
            [
                (prototypes[seed, 4 + number] - embedded[seed, nodes].mean(0)).norm()
                for seed, (scenario, stream) in enumerate(zip(context.scenarios, streams, strict=True))
                for number, c in enumerate(np.concatenate(stream.arriving[1:]))
                for nodes in [(scenario.labels == c) & (scenario.split.role == TRAIN)]
            ]
        )
    for form in NLA[:-1]:
        assert (distances["oracle"] <= distances[form] + 1e-4).all(), form
    assert distances["oracle"].mean() < 0.9 * distances["softmax"].mean()


# What is kept of a session.


@pytest.mark.slow
def test_records_keep_entropy_and_base_share_where_they_are_defined(tiny_graph: Dataset, tiny: Tiny) -> None:
    for record in records(tiny(), tiny_graph):
        entropy, share, equal = (
            record[name] for name in ("nla_entropy", "tla_base_share", "tla_equal_share")
        )
        assert entropy[0] is None and all(0.9 < value <= 1 + 1e-6 for value in entropy[1:])
        assert equal == pytest.approx([1 / 2, 1 / 3, 1 / 4], abs=1e-4) and all(
            0 < value < 1 for value in share
        )
    for record in records(tiny(tla_weights="uniform", nla=False), tiny_graph):
        assert "nla_entropy" not in record
        assert record["tla_base_share"] == pytest.approx(record["tla_equal_share"])
    for record in records(tiny(method="gpn"), tiny_graph):
        assert "tla_base_share" not in record and len(record["nla_entropy"]) == 3
    for method in ("proto-gcn", "cec"):
        (record, _) = records(tiny(method=method), tiny_graph)
        assert not {"nla_entropy", "tla_base_share", "tla_equal_share"} & record.keys(), method


def test_under_released_they_are_of_the_sessions_after_the_first(tiny_graph: Dataset, tiny: Tiny) -> None:
    for record in records(tiny(protocol="released"), tiny_graph):
        assert record["nla_entropy"][0] is record["tla_base_share"][0] is None
        assert all(0 < value <= 1 + 1e-6 for value in record["nla_entropy"][1:])
        assert record["tla_equal_share"][1:] == pytest.approx([1 / 4, 1 / 5])  # with second prototypes


def test_with_one_support_there_is_no_entropy(tiny_graph: Dataset, tiny: Tiny) -> None:
    for record in records(tiny(k_shot=1), tiny_graph):
        assert record["nla_entropy"] == [None] * 3


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
