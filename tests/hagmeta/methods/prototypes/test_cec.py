from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from hagmeta.config.run_config import RunConfig
from hagmeta.datasets.base import Dataset
from hagmeta.engine.context import Context
from hagmeta.engine.known.session import Known, KnownAt
from hagmeta.engine.run import prepare, pretrain, train_and_evaluate
from hagmeta.engine.sessions import evaluate_streams
from hagmeta.engine.training.meta_training import meta_train
from hagmeta.layers.attention.classifier_attention import ClassifierAttention
from hagmeta.packs.pack import Pack
from hagmeta.sparse.graph import Graph
from hagmeta.testing import records_of

CPU = torch.device("cpu")
Small = Callable[..., RunConfig]


@pytest.mark.parametrize("protocol", ["strict", "released"])
def test_the_encoder_does_not_move_and_the_attention_does(
    dataset: Dataset, small: Small, protocol: str
) -> None:
    context = prepare(small(method="cec", protocol=protocol), [0, 5], dataset, CPU)
    pack = pretrain(context)
    before = pack.snapshot()
    train_and_evaluate(context, pack)
    moved = {name for name, value in pack.snapshot().items() if not torch.equal(value, before[name])}
    assert moved == {f"evolution.{part}.weight" for part in ("query", "key", "value")}


def test_nothing_is_learnt_in_the_sessions(dataset: Dataset, small: Small) -> None:
    context = prepare(small(method="cec"), [0, 5], dataset, CPU)
    pack = pretrain(context)
    before = pack.snapshot()
    evaluate_streams(context, pack, [scenario.test for scenario in context.scenarios], "test")
    assert all(torch.equal(value, before[name]) for name, value in pack.snapshot().items())


def passes(context: Context, monkeypatch: pytest.MonkeyPatch) -> int:
    """How often what follows pre-training multiplies the features of the whole graph with weights."""
    pack, mapped, count = pretrain(context), Graph.mapped, 0

    def counted(*arguments: Any) -> Tensor:
        nonlocal count
        count += 1
        return mapped(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(Graph, "mapped", counted)
        if context.protocol.validates:
            meta_train(context, pack)
        else:
            train_and_evaluate(context, pack)
    return count


@pytest.mark.parametrize(
    ("encoder", "changes"),
    [
        ("gat", {}),
        pytest.param("gcn", {"val_classes": 2}, marks=pytest.mark.slow),
        pytest.param("gcn", {"protocol": "released"}, marks=pytest.mark.slow),
    ],
)
def test_records_are_those_of_a_pass_in_every_step(
    dataset: Dataset, small: Small, encoder: str, changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def unchanged(source: KnownAt, pack: Pack, known: Known) -> Known:
        return known

    def records() -> list[dict[str, Any]]:
        config = small(method="cec", encoder=encoder, **changes)
        found = records_of(config, [0, 5], dataset)
        return [{name: r[name] for name in r.keys() - {"seconds", "environment"}} for r in found]

    once = records()
    monkeypatch.setattr(KnownAt, "with_fixed_features", unchanged)
    assert records() == once
    context = prepare(small(method="cec", encoder=encoder, **changes), [0, 5], dataset, CPU)
    assert passes(context, monkeypatch) > 6  # a pass for each episode: the comparison is with something else


def test_attention_is_the_printed_formula() -> None:
    torch.manual_seed(0)
    attention, vectors = ClassifierAttention(4, 0.5), torch.randn(3, 4)
    expected = []
    for i in range(3):
        scores = torch.stack([attention.query(vectors[i]) @ attention.key(vectors[j]) for j in range(3)]) / 2
        weights = scores.softmax(0)
        expected.append(vectors[i] + sum(weights[j] * attention.value(vectors[j]) for j in range(3)))
    torch.testing.assert_close(attention(vectors, None), torch.stack(expected))


@torch.no_grad()
def test_answers_are_scaled_cosines_to_adapted_vectors(dataset: Dataset, small: Small) -> None:
    context = prepare(small(method="cec", cosine_scale=10.0), [0, 5], dataset, CPU)
    pack = pretrain(context)
    streams = [scenario.test for scenario in context.scenarios]
    known = context.known.session(streams, 1)
    shared = context.tasks.shared(known, streams[0].sizes(1))
    (logits,) = pack.run("logits", (shared,), known.view, (context.tasks.session(streams, 1),))
    assert logits.abs().max() <= 10.001
    # What attention finds moves the vectors: without it they are the plain means.
    pack.parameters["evolution.value.weight"].zero_()
    (plain,) = pack.run("logits", (shared,), known.view, (context.tasks.session(streams, 1),))
    assert not torch.allclose(plain, logits)
