from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.special
import scipy.stats
import torch
from sklearn.neighbors import NearestCentroid
from sklearn.utils.class_weight import compute_sample_weight

from hagmeta.config.run_config import RunConfig
from hagmeta.datasets.base import Dataset
from hagmeta.engine.run import prepare, pretrain
from hagmeta.engine.sessions import evaluate_streams
from hagmeta.engine.training.meta_training import meta_train
from hagmeta.layers.losses import balanced_weights
from hagmeta.methods.prototypes.mecoin import symmetric_divergence, votes
from hagmeta.scenarios.scenario import TRAIN
from tests.hagmeta.conftest import watched

CPU = torch.device("cpu")
Small = Callable[..., RunConfig]


def drawn(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def test_one_codebook_without_projection_predicts_the_nearest_centroid() -> None:
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(4), 10)
    nodes = rng.normal(size=(40, 5)) + 2 * rng.normal(size=(4, 5))[labels]
    centroids = NearestCentroid().fit(nodes, labels)
    keys = torch.from_numpy(centroids.centroids_).unsqueeze(0)
    identity, own = torch.eye(5, dtype=keys.dtype).unsqueeze(0), torch.eye(4, dtype=keys.dtype).unsqueeze(0)
    queries = rng.normal(size=(200, 5)) * 2
    answers = votes(torch.from_numpy(queries), identity, keys, own, at_once=1)
    assert np.array_equal(answers.argmax(-1), centroids.predict(queries))
    assert (answers.sum(-1) == 1).all()  # a whole value, not a mixture


def test_codebooks_vote_with_the_values_of_their_nearest_keys() -> None:
    rows, projections, keys, values = drawn(6, 5), drawn(3, 5, 2), drawn(3, 4, 2), drawn(3, 4, 4)
    expected = np.zeros((6, 4))
    for node in range(6):
        for book in range(3):
            query = rows[node].numpy() @ projections[book].numpy()
            nearest = np.linalg.norm(keys[book].numpy() - query, axis=1).argmin()
            expected[node] += values[book, nearest].numpy() / 3
    for at_once in (1, 2, 3):
        found = votes(rows, projections, keys, values, at_once)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_only_retrieved_values_get_a_gradient() -> None:
    values = torch.zeros(1, 3, 3, requires_grad=True)
    keys = torch.tensor([[[0.0], [10.0], [20.0]]])
    votes(torch.tensor([[1.0], [9.0], [8.0]]), torch.ones(1, 1, 1), keys, values, 1)[:, 0].sum().backward()
    assert values.grad is not None
    assert values.grad[0].tolist() == [[1, 0, 0], [2, 0, 0], [0, 0, 0]]


def test_distillation_is_the_mean_of_both_divergences() -> None:
    one, other = drawn(5, 4), 2 * drawn(5, 4).flip(0)
    p, q = (scipy.special.softmax(logits.double().numpy(), axis=1) for logits in (one, other))
    expected = (scipy.stats.entropy(p, q, axis=1) + scipy.stats.entropy(q, p, axis=1)) / 2
    np.testing.assert_allclose(symmetric_divergence(one, other), expected, rtol=1e-5)
    np.testing.assert_allclose(symmetric_divergence(one, one + 3), 0, atol=1e-6)  # softmax ignores the shift


def test_classes_weigh_the_same_whatever_their_number_of_queries() -> None:
    target = np.array([0, 0, 0, 2, 2, 3])
    expected = compute_sample_weight("balanced", target) / len(target)
    np.testing.assert_allclose(balanced_weights(torch.from_numpy(target), 5), expected, rtol=1e-6)


@torch.no_grad()
def test_a_key_is_the_mean_to_which_moving_averages_converge(dataset: Dataset, small: Small) -> None:
    context = prepare(small(method="mecoin", pretrain_epochs=3), [0], dataset, CPU)
    pack = pretrain(context)
    (scenario,) = context.scenarios
    known = context.known.session([scenario.test], 1)
    shared = context.tasks.shared(known, scenario.test.sizes(1))
    task = context.tasks.session([scenario.test], 1)
    ((keys,),) = pack.run("class_statistics", (shared,), known.view, task)
    nodes = torch.arange(dataset.num_nodes).unsqueeze(0)
    (embedded,) = pack.run("embeddings", (shared,), known.view, nodes)
    supports = scenario.test.support[1]
    labelled = [scenario.nodes_of(np.array([c]), TRAIN) for c in scenario.test.known]
    for key, members in zip(keys, [*labelled, *supports], strict=True):
        average = np.zeros(keys.shape[1])
        for _ in range(2000):
            average = 0.95 * average + 0.05 * embedded[members].double().numpy().mean(0)
        np.testing.assert_allclose(key, average, rtol=1e-4, atol=1e-5)


def played(dataset: Dataset, config: RunConfig) -> list[dict[str, torch.Tensor]]:
    """Return the parameters after pre-training, after meta-training, and after each test session."""
    context = prepare(config, [0, 5], dataset, CPU)
    pack = pretrain(context)
    states = [pack.snapshot()]
    meta_train(context, pack)
    states.append(pack.snapshot())
    streams = [scenario.test for scenario in context.scenarios]
    evaluate_streams(watched(context, lambda *_: states.append(pack.snapshot())), pack, streams, "test")
    return states


def test_the_encoder_and_the_projections_never_move(dataset: Dataset, small: Small) -> None:
    states = played(dataset, small(method="mecoin", codebooks=5))
    fixed = [name for name in states[0] if name.startswith("encoder.") or name == "projections"]
    assert len(fixed) > 2
    for name in states[0]:
        same = torch.equal(states[0][name], states[-1][name])
        assert same is (name in fixed), name


def test_without_interaction_values_keep_their_start(dataset: Dataset, small: Small) -> None:
    states = played(dataset, small(method="mecoin", codebooks=5, interaction=0.0, value_start=2.0))
    values = states[-1]["values"]  # (key, class, pack, codebook)
    own = values.diagonal().permute(2, 0, 1)  # (class, pack, codebook)
    assert set(own.unique().tolist()) <= {0.0, 2.0}  # 0 for classes that never arrive
    assert (own == 2.0).sum() == (values != 0).sum() > 0
