from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.special
import scipy.stats
import torch
import torch.nn.functional as F
from torch import Tensor

from hagmeta.config.run_config import RunConfig
from hagmeta.datasets.base import Dataset
from hagmeta.engine.run import prepare, pretrain
from hagmeta.engine.sessions import evaluate_streams
from hagmeta.engine.training.meta_training import meta_train
from hagmeta.layers.head import cosine_logits
from hagmeta.methods.base import Shared, Task
from hagmeta.methods.prototypes.fact import Fact, answers, beta, mixtures, reserving_loss
from hagmeta.packs.pack import Parameters
from hagmeta.packs.randomness import keys
from hagmeta.sparse.graph import View

CPU = torch.device("cpu")
Tiny = Callable[..., RunConfig]


def drawn(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


def trained(tiny: Tiny, dataset: Dataset, **changes: Any) -> tuple[Parameters, Parameters]:
    """Return the parameters before and after meta-training."""
    context = prepare(tiny(method="fact", episodes=3, **changes), [0, 5], dataset, CPU)
    pack = pretrain(context)
    before = pack.snapshot()
    meta_train(context, pack)
    return before, pack.snapshot()


def test_virtual_prototypes_are_orthonormal_and_never_move(tiny_graph: Dataset, tiny: Tiny) -> None:
    before, after = trained(tiny, tiny_graph, virtual_classes=3, virtual_weight=1.0)
    for virtual in before["virtual"].movedim(-2, 0):
        torch.testing.assert_close(virtual @ virtual.mT, torch.eye(3))
    assert torch.equal(before["virtual"], after["virtual"])
    assert not torch.equal(before["encoder.first.weight"], after["encoder.first.weight"])


def test_sessions_learn_nothing_but_the_rows_of_new_classes(tiny_graph: Dataset, tiny: Tiny) -> None:
    context = prepare(tiny(method="fact"), [0, 5], tiny_graph, CPU)
    pack = pretrain(context)
    before = pack.snapshot()
    evaluate_streams(context, pack, [scenario.test for scenario in context.scenarios], "test")
    moved = {name for name, value in pack.snapshot().items() if not torch.equal(value, before[name])}
    assert moved == {"rows"}


def test_without_weight_it_trains_a_cosine_classifier(
    tiny_graph: Dataset, tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cosine_loss(
        method: Fact, shared: Shared, view: View, task: Task, target: Tensor, key: Tensor
    ) -> tuple[Tensor, Tensor]:
        embedded = method.encode(shared, view, key).at(task.query)
        logits = cosine_logits(embedded, method.rows[task.classes])
        return F.cross_entropy(logits, target), logits

    # Without dropout, because the two losses use the random key in different ways.
    _, off = trained(tiny, tiny_graph, virtual_weight=0.0, dropout=0.0)
    _, on = trained(tiny, tiny_graph, virtual_weight=1.0, dropout=0.0)
    monkeypatch.setattr(Fact, "loss", cosine_loss)
    _, plain = trained(tiny, tiny_graph, dropout=0.0)
    for name in ("rows", "encoder.first.weight", "encoder.second.weight"):
        torch.testing.assert_close(off[name], plain[name], rtol=1e-3, atol=1e-5)
        assert not torch.allclose(on[name], plain[name], rtol=1e-3, atol=1e-5)


def test_the_losses_are_those_of_the_paper_computed_by_hand() -> None:
    # Two known classes, then two virtual ones.
    logits, mixed = np.array([[3.0, 1.0, 0.0, 2.0]]), np.array([[1.0, 2.0, 5.0, 4.0]])
    growable = scipy.special.logsumexp([1.0, 0.0, 2.0]) - 2.0  # without class 0, the last is the best
    provident = scipy.special.logsumexp(mixed) - 5.0
    symmetric = scipy.special.logsumexp([1.0, 2.0, 4.0]) - 2.0  # without that one, class 1 is the best
    given = reserving_loss(torch.tensor(logits), torch.tensor(mixed), torch.tensor([0]), known=2)
    assert float(given) == pytest.approx(growable + provident + symmetric)


def test_mixing_weights_are_quantiles_of_beta() -> None:
    uniform = np.linspace(0, 1, 11)
    given = beta(torch.from_numpy(uniform)).numpy()
    np.testing.assert_allclose(given, scipy.stats.beta.ppf(uniform, 2, 2), atol=1e-7)


@pytest.mark.parametrize("classes", [2, 3, 7])
def test_each_node_is_mixed_with_one_of_another_class(classes: int) -> None:
    classes_of = torch.arange(classes).repeat_interleave(5)
    pairs = []
    for key in keys(list(range(60)), "mixtures"):
        mixed = mixtures(F.one_hot(classes_of).to(torch.float32), classes, key)
        assert ((mixed > 0).sum(-1) == 2).all() and (mixed.gather(1, classes_of.unsqueeze(-1)) > 0).all()
        torch.testing.assert_close(mixed.sum(-1), torch.ones(len(mixed)))
        pairs.append(mixed > 0)
    assert torch.stack(pairs).any(0).all()  # every pair of classes is drawn at some time


def test_answers_mix_in_the_path_through_virtual_prototypes() -> None:
    query, rows, virtual = drawn(5, 6), drawn(4, 6) + 1, drawn(3, 6) - 1

    def shares(one: Tensor, other: Tensor) -> np.ndarray:
        units = [
            x.double().numpy() / np.linalg.norm(x.double().numpy(), axis=1)[:, None] for x in (one, other)
        ]
        found: np.ndarray = scipy.special.softmax(16 * units[0] @ units[1].T, axis=1)
        return found

    path = np.stack(
        [
            sum(p * q for p, q in zip(row, shares(virtual, rows), strict=True))
            for row in shares(query, virtual)
        ]
    )
    expected = 0.9 * shares(query, rows) + 0.1 * path
    np.testing.assert_allclose(answers(query, rows, virtual, 0.1).exp().numpy(), expected, rtol=1e-4)
    alone = answers(query, rows, virtual, 0.0)
    assert torch.equal(alone.argmax(-1), cosine_logits(query, rows).argmax(-1))
