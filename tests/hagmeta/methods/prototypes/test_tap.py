from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch
import torch.nn.functional as F
from scipy.special import softmax
from sklearn.metrics.pairwise import cosine_similarity

from hagmeta.config.run_config import RunConfig, resolve
from hagmeta.datasets.base import Dataset
from hagmeta.engine.run import prepare, pretrain
from hagmeta.engine.sessions import evaluate_streams
from hagmeta.engine.training.meta_training import supervised_episodes
from hagmeta.methods import METHODS
from hagmeta.methods.prototypes.tap import calibrated, chosen_classes, cosface_loss, drifted, view_of
from hagmeta.packs.randomness import fold
from hagmeta.sparse.graph import Graph

CPU = torch.device("cpu")
Small = Callable[..., RunConfig]


def test_the_margin_is_taken_from_the_true_class_only() -> None:
    # One node with cosines 0.8 and 0.2, s = 15, m = 0.1: the loss of logits 10.5 and 3.
    logits, target, ones = 15 * torch.tensor([[0.8, 0.2]]), torch.tensor([0]), torch.ones(1)
    expected = math.log1p(math.exp(3 - 10.5))
    assert cosface_loss(logits, target, 1.5, ones).item() == pytest.approx(expected, rel=1e-3)
    plain = F.cross_entropy(logits, target)
    torch.testing.assert_close(cosface_loss(logits, target, 0.0, ones), plain)


def test_nodes_outside_a_view_have_no_loss() -> None:
    logits, target = torch.tensor([[1.0, 2.0], [5.0, 0.0], [0.0, 7.0]]), torch.tensor([0, 1, 0])
    some = cosface_loss(logits, target, 0.5, torch.tensor([1.0, 0.0, 1.0]))
    torch.testing.assert_close(some, cosface_loss(logits[[0, 2]], target[[0, 2]], 0.5, torch.ones(2)))
    assert cosface_loss(logits, target, 0.5, torch.zeros(3)).item() == 0


def test_a_round_of_soft_assignment() -> None:
    rng = np.random.default_rng(0)
    prototypes, rows = rng.normal(size=(4, 3)), rng.normal(size=(6, 3))
    near = np.array([1, 1, 0, 1, 0, 1.0])
    shares = softmax(cosine_similarity(rows, prototypes) / 0.1, axis=1) * near[:, None]
    expected = prototypes.copy()
    for c in (2, 3):  # the classes known by supports; the others do not move
        expected[c] = 0.7 * np.average(rows, axis=0, weights=shares[:, c]) + 0.3 * prototypes[c]
    means, nodes, used = (torch.from_numpy(each) for each in (prototypes, rows, near[:, None]))
    np.testing.assert_allclose(calibrated(means, 2, nodes, used, 0.7).numpy(), expected)


def test_a_shift_of_all_embeddings_moves_prototypes_by_the_shift() -> None:
    rng = torch.Generator().manual_seed(0)
    prototypes, before = torch.randn(5, 3, generator=rng), torch.randn(7, 3, generator=rng)
    shift = torch.tensor([1.0, -2.0, 0.5])
    torch.testing.assert_close(drifted(prototypes, before, before + shift), prototypes + shift)


def test_prototypes_move_like_the_supports_near_them() -> None:
    before = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    now = torch.tensor([[3.0, 0.0], [0.0, 1.0]])
    moved = drifted(10 * before, before, now) - 10 * before
    share = 1 / (1 + math.exp(-10))  # cosines 1 and 0 at temperature 0.1
    torch.testing.assert_close(moved, torch.tensor([[2 * share, 0.0], [2 * (1 - share), 0.0]]))


def test_groups_are_random_and_every_class_is_in_its_share_of_them() -> None:
    key, counts = torch.tensor(7), np.zeros(6)
    for number in range(600):
        group = chosen_classes(torch.arange(6), 2, fold(key, number))
        assert len(set(group.tolist())) == 2
        counts[group] += 1
    # 200 expected, with a standard deviation of 11.5.
    assert abs(counts - 200).max() < 50
    assert len(chosen_classes(torch.arange(2), 5, key)) == 2


def seen(graph: Graph, members: np.ndarray, loops: scipy.sparse.csr_matrix) -> None:
    """Compare propagation in a view of some nodes with that of a dense matrix cut to them."""
    whole = graph.view(np.ones((1, graph.num_nodes), dtype=bool))
    one = whole._replace(**{n: getattr(whole, n)[0] for n in ("visible", "scale", "log_degree")})
    hidden = torch.randn(graph.num_nodes, 3, generator=torch.Generator().manual_seed(0))
    view = view_of(graph, one, torch.from_numpy(members))
    cut = loops.toarray() * np.outer(members, members)
    root = np.sqrt(np.maximum(cut.sum(1), 1))
    expected = cut / np.outer(root, root) @ hidden.numpy()
    np.testing.assert_allclose(graph.aggregate(hidden, view).numpy(), expected, atol=1e-5)


def test_views_of_a_group_and_without_edges(dataset: Dataset) -> None:
    graph = Graph(dataset, CPU)
    members = np.random.default_rng(0).random(graph.num_nodes) < 0.3
    everyone = np.ones(graph.num_nodes, dtype=bool)
    seen(graph, members, dataset.adjacency)
    alone = graph.without_edges
    seen(alone, everyone, scipy.sparse.identity(graph.num_nodes, format="csr"))
    assert graph.loops is dataset.adjacency and alone is graph.without_edges


def test_weights_are_mixed_after_a_session(dataset: Dataset, small: Small) -> None:
    """Without new weights nothing moves; with only new ones, a session moves all."""

    def moved(share: float, sessions: int) -> dict[str, torch.Tensor]:
        config = small(method="tap", weight_share=share, sessions=sessions)
        context = prepare(config, [0, 5], dataset, CPU)
        pack = pretrain(context)
        before = pack.snapshot()
        evaluate_streams(context, pack, [scenario.test for scenario in context.scenarios], "test")
        return {name: value - before[name] for name, value in pack.snapshot().items()}

    assert all(not change.any() for change in moved(0.0, 2).values())
    whole, part = moved(1.0, 1), moved(0.25, 1)
    for name, change in whole.items():
        assert change.any(), name
        torch.testing.assert_close(part[name], 0.25 * change, atol=1e-6, rtol=1e-3)


@torch.no_grad()
def test_kept_prototypes_stay_if_the_encoder_does(dataset: Dataset, small: Small) -> None:
    def kept(share: float) -> Any:
        config = small(method="tap", rehearsal="none", weight_share=share)
        context = prepare(config, [0], dataset, CPU)
        pack = pretrain(context)
        streams = [scenario.test for scenario in context.scenarios]
        found, original = [], pack.run

        def noted(step: Any, *arguments: Any) -> Any:
            result = original(step, *arguments)
            if step == "class_statistics":
                found.append(result[0])
            return result

        pack.run = noted  # type: ignore[assignment]
        with torch.enable_grad():
            evaluate_streams(context, pack, streams, "test")
        return found

    first, second, third = kept(0.0)
    torch.testing.assert_close(second[:, : first.shape[1]], first)
    torch.testing.assert_close(third[:, : second.shape[1]], second)
    first, second, third = kept(1.0)
    assert not torch.allclose(second[:, : first.shape[1]], first)


def test_the_mark_of_unlabelled_nodes_goes_with_the_calibration() -> None:
    tap = METHODS["tap"]
    assert "queries" in tap.traits_of(resolve(RunConfig.of(method="tap"))).transductive
    assert not tap.traits_of(resolve(RunConfig.of(method="tap", neighbour_share=0))).transductive


@pytest.mark.parametrize("encoder", ["gcn", "sage"])
def test_other_views_do_not_use_inputs_propagated_for_the_graph(
    dataset: Dataset, small: Small, encoder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = small(method="tap", encoder=encoder, inputs="svd", learning_rate=1e-4)
    losses = []
    for once in (True, False):
        monkeypatch.setattr(Graph, "pays_once", lambda *_, pays=once: pays)
        context = prepare(config, [0, 5], dataset, CPU)
        pack = pretrain(context)
        training = context.known.training()
        assert bool(training.graph.fixed) is once
        episode = next(supervised_episodes(context, training))
        losses.append(episode.loss(pack, torch.tensor([1, 2]))[0])
    torch.testing.assert_close(*losses, rtol=1e-3, atol=1e-3)
