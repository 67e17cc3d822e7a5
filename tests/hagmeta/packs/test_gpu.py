"""The same code on a GPU. Rounding differs there, so that numbers are compared within a tolerance."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from hagmeta import Learner, load_dataset
from hagmeta.config.run_config import RunConfig, may_differ, resolve
from hagmeta.datasets.base import Dataset
from hagmeta.engine.options import RunOptions, mode_of
from hagmeta.engine.run import Member, prepare, prepare_members, pretrain
from hagmeta.engine.scores.readout import ReadOut
from hagmeta.engine.training.meta_training import EPISODES
from hagmeta.methods import METHODS, MetaTraining
from hagmeta.packs.capture import Steps, ahead, stream_of
from hagmeta.packs.pack import Pack
from hagmeta.packs.randomness import fold, keys
from hagmeta.testing import records_of
from tests.hagmeta.test_feature_kinds import KINDS, with_features

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
Small = Callable[..., RunConfig]
CPU, GPU = torch.device("cpu"), torch.device("cuda")
TRAINED = [name for name, method in METHODS.items() if method.meta_training is not MetaTraining.NONE]
VARIANTS = [(name, "gcn", "raw") for name in TRAINED]
VARIANTS += [(name, "gat", "raw") for name in ("hag-meta", "meta-gnn", "cec")]
VARIANTS += [(name, encoder, "raw") for name in ("hag-meta", "meta-gnn") for encoder in ("sage", "sgc")]
VARIANTS += [("hag-meta", "sage", "svd"), ("hag-meta", "sgc", "svd")]
VARIANTS += [("hag-meta", "gcn", "tf-idf"), ("hag-meta", "gat", "tf-idf"), ("meta-gnn", "gat", "tf-idf")]
VARIANTS += [("hag-meta", "gcn", "svd"), ("hag-meta", "gat", "svd"), ("meta-gnn", "gcn", "svd")]
every_method = pytest.mark.parametrize(("method", "encoder", "inputs"), VARIANTS)
STEPS = 12  # enough that every shape of an episode is captured and replayed


def trained(
    config: RunConfig, seeds: list[int], dataset: Dataset, device: torch.device, *, eager: bool = False
) -> tuple[Pack, list[Tensor]]:
    """A pack after a dozen steps of meta-training from its initial parameters, and the logits on the way."""
    return trained_members([(config, seed) for seed in seeds], dataset, device, eager=eager)


def trained_members(
    members: list[Member], dataset: Dataset, device: torch.device, *, eager: bool = False
) -> tuple[Pack, list[Tensor]]:
    with stream_of(device):
        resolved = [(resolve(config), seed) for config, seed in members]
        options = RunOptions(device=device, mode=mode_of(eager=eager))
        context = prepare_members(resolved, dataset, options)
        pack = pretrain(context)
        key, answers = keys(context.seeds, "test"), []
        training = context.known.with_fixed_features(pack, context.known.training())
        episodes = ahead(EPISODES[context.meta_training](context, training), device)
        with context.runtime.capture() as capture:
            rate, decay = (context.runtime.values(name) for name in ("learning_rate", "weight_decay"))
            steps = Steps(pack, rate, decay, capture)
            for number, episode in zip(range(STEPS), episodes, strict=False):
                answers.append(episode.learn(steps, fold(key, number)).cpu())
    return pack, answers


def largest_difference(one: Pack, other: Pack, index: int = 0, at: int = 0) -> float:
    state, expected = one.states()[index], other.states()[at]
    return max(float((value.cpu() - expected[name].cpu()).abs().max()) for name, value in state.items())


def slow(small: Small, method: str, encoder: str, inputs: str = "raw") -> RunConfig:
    # Adam turns rounding into steps of its rate where gradients vanish: so a small rate.
    return small(method=method, encoder=encoder, inputs=inputs, pretrain_epochs=0, learning_rate=1e-4)


@every_method
def test_gpu_and_cpu_train_to_the_same_parameters(
    dataset: Dataset, small: Small, method: str, encoder: str, inputs: str
) -> None:
    # Dropout masks are the same on both.
    config = slow(small, method, encoder, inputs)
    on_gpu, on_cpu = (trained(config, [3], dataset, device)[0] for device in (GPU, CPU))
    assert largest_difference(on_gpu, on_cpu) < 1e-3


@every_method
def test_what_is_replayed_is_what_runs_eagerly(
    dataset: Dataset, small: Small, method: str, encoder: str, inputs: str
) -> None:
    config = slow(small, method, encoder, inputs)
    (replayed, given), (eager, expected) = (
        trained(config, [0, 3], dataset, GPU, eager=eager) for eager in (False, True)
    )
    assert max(largest_difference(replayed, eager, seed, seed) for seed in (0, 1)) < 1e-4
    for logits, wanted in zip(given, expected, strict=True):
        torch.testing.assert_close(logits, wanted, rtol=1e-3, atol=1e-3)


@every_method
def test_a_seed_trains_alike_alone_and_in_a_pack(
    dataset: Dataset, small: Small, method: str, encoder: str, inputs: str
) -> None:
    config = slow(small, method, encoder, inputs)
    pack, alone = (trained(config, seeds, dataset, GPU)[0] for seeds in ([0, 1, 3, 2], [3]))
    assert largest_difference(pack, alone, 2) < 1e-3


@every_method
def test_a_member_trains_alike_in_a_mixed_pack_and_alone(
    dataset: Dataset, small: Small, method: str, encoder: str, inputs: str
) -> None:
    config = slow(small, method, encoder, inputs)
    values = {"learning_rate": (1e-4, 3e-5, 2e-4), "weight_decay": (0.0, 0.1, 0.01)}
    values |= {"dropout": (0.5, 0.2, 0.9), "cosine_scale": (16.0, 2.0, 30.0), "inner_rate": (0.02, 0.1, 0.05)}
    differing = [name for name in may_differ(resolve(config)) if name in values]
    configs = [replace(config, **{name: values[name][place] for name in differing}) for place in range(3)]
    pack, _ = trained_members(list(zip(configs, (0, 3, 3), strict=True)), dataset, GPU)
    for place, seed in enumerate((0, 3, 3)):
        alone, _ = trained(configs[place], [seed], dataset, GPU)
        assert largest_difference(pack, alone, place) < 1e-3


@pytest.mark.parametrize("protocol", ["strict", "released"])
@pytest.mark.parametrize("method", METHODS)
def test_a_whole_run_agrees_with_the_cpu_on_average(
    dataset: Dataset, small: Small, method: str, protocol: str
) -> None:
    config = small(method=method, protocol=protocol, episodes=40, pretrain_epochs=60)
    accuracy = [
        np.mean([r["average_accuracy"] for r in records_of(config, range(8), dataset, device=device)])
        for device in (GPU, CPU)
    ]
    assert abs(accuracy[0] - accuracy[1]) < 0.03


@pytest.mark.parametrize("kind", KINDS[1:])
@pytest.mark.parametrize("method", ["sgc-lda", "posterior-means", "hag-meta", "er-gnn", "frozen"])
def test_run_on_other_features_agrees_with_the_cpu(method: str, kind: str, small: Small) -> None:
    dataset = with_features(kind)
    config = small(method=method, dataset=dataset, classes=(2, 2, 5), k_shot=2)
    accuracy = [
        np.mean([r["average_accuracy"] for r in records_of(config, range(8), dataset, device=device)])
        for device in (GPU, CPU)
    ]
    assert abs(accuracy[0] - accuracy[1]) < 0.03


@pytest.mark.parametrize("protocol", ["strict", "released"])
def test_a_whole_run_is_the_same_eagerly(dataset: Dataset, small: Small, protocol: str) -> None:
    config = small(protocol=protocol, episodes=40, pretrain_epochs=60)
    replayed, eager = (
        records_of(config, range(8), dataset, device=GPU, mode=mode_of(eager=eager))
        for eager in (False, True)
    )
    accuracies = [np.mean([record["average_accuracy"] for record in pack]) for pack in (replayed, eager)]
    assert abs(accuracies[0] - accuracies[1]) < 0.01


@pytest.mark.parametrize("rehearsal", ["2", "none"])
@pytest.mark.parametrize("method", [name for name, method in METHODS.items() if not method.traits.oracle])
def test_a_run_with_fewer_labels_is_the_same_eagerly(
    dataset: Dataset, small: Small, method: str, rehearsal: str
) -> None:
    # Prototypes that are kept pass from one captured validation session to the next.
    config = small(method=method, rehearsal=rehearsal, val_classes=2, episodes=40, pretrain_epochs=60)
    replayed, eager = (
        records_of(config, range(8), dataset, device=GPU, mode=mode_of(eager=eager))
        for eager in (False, True)
    )
    for key in ("gpil", "stream") if method in TRAINED else ("stream",):
        values = [np.mean([record["validation"][key] for record in pack]) for pack in (replayed, eager)]
        assert abs(values[0] - values[1]) < 0.02


@pytest.mark.parametrize("encoder", ["gcn", "gat"])
@pytest.mark.parametrize("method", METHODS)
def test_smoothed_answers_are_those_of_the_cpu(
    dataset: Dataset, small: Small, method: str, encoder: str
) -> None:
    smoothed: dict[str, Any] = {"smoothing": 0.5, "logit_adjustment": 1.0, "prior": "estimated"}
    config = small(method=method, encoder=encoder, pretrain_epochs=0, **smoothed)
    scores = []
    for device in (CPU, GPU):
        with stream_of(device):
            context = prepare(config, [0, 3, 1], dataset, device)
            pack = pretrain(context)
            streams = [scenario.test for scenario in context.scenarios]
            known = context.known.session(streams, 2)
            task = context.tasks.session(streams, 2, known.all_averaged)
            shared = context.tasks.shared(known, streams[0].sizes(2))
            scores.append(ReadOut(context).scores(pack, shared, known, task).cpu())
    torch.testing.assert_close(*scores, rtol=1e-3, atol=1e-3)


def test_a_run_leaves_no_memory_behind(dataset: Dataset, small: Small) -> None:
    """Workers of a study run one trial after the other."""
    taken = []
    gc.disable()  # what waits to be collected can wait for long
    try:
        for _ in range(3):
            records_of(small(), range(2), dataset, device=GPU)
            taken.append(torch.cuda.memory_allocated(GPU))
    finally:
        gc.enable()
    assert taken[0] == taken[1] == taken[2]


def test_a_failure_within_a_capture_leaves_the_gpu_usable(dataset: Dataset, small: Small) -> None:
    config = slow(small, "hag-meta", "gcn")
    with stream_of(GPU):
        context = prepare(config, [0], dataset, GPU)
        times = 0

        def fails_when_captured() -> Tensor:
            nonlocal times
            times += 1
            if times == 2:
                raise MemoryError("just now")
            return torch.ones(3, device=GPU).sum()

        with context.runtime.capture() as capture:
            assert capture.run("sum", fails_when_captured, ()).item() == 3
            with pytest.raises(MemoryError, match="just now"):
                capture.run("sum", fails_when_captured, ())
            assert capture.run("sum", fails_when_captured, ()).item() == 3
    pack, _ = trained(config, [0], dataset, GPU)
    assert all(value.isfinite().all() for value in pack.parameters.values())


@pytest.mark.parametrize(("first", "second"), [("cuda", "cpu"), ("cpu", "cuda")])
def test_a_learner_moves_between_devices(first: str, second: str, tmp_path: Path) -> None:
    graph = load_dataset("synthetic:nodes=401,edges=1500,features=60,classes=10,seed=1")
    labels = {int(node): graph.class_names[graph.labels[node]] for node in np.flatnonzero(graph.labels < 6)}
    learner = Learner("sgc-lda", device=first, hidden=8, embedding=8, pretrain_epochs=20).fit(graph, labels)
    learner.learn(graph, {"new": np.flatnonzero(graph.labels == 7)[:5]})
    moved = Learner.load(learner.save(tmp_path / "learner"), device=second)
    (_, one), (_, other) = learner.probabilities(graph), moved.probabilities(graph)
    assert (one.argmax(1) == other.argmax(1)).mean() > 0.99
    assert np.abs(one - other).max() < 1e-2
