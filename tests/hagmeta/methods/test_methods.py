"""What the methods have in common, and the ones that are HAG-Meta with parts of it changed."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice, product
from typing import Any

import numpy as np
import pytest
import torch

from hagmeta.config.remarks import remarks
from hagmeta.config.run_config import SETTINGS, RunConfig, resolve
from hagmeta.datasets.base import Dataset
from hagmeta.engine.context import Context
from hagmeta.engine.run import prepare, pretrain
from hagmeta.engine.sessions import evaluate_streams
from hagmeta.engine.training.meta_training import few_shot_episodes, meta_train, supervised_episodes
from hagmeta.methods import METHODS, MetaTraining, SessionLearning
from hagmeta.scenarios import PROTOCOLS
from hagmeta.scenarios.scenario import TRAIN
from hagmeta.testing import records_of

CPU = torch.device("cpu")
Small = Callable[..., RunConfig]
NAMES = {*SETTINGS}


def accuracies(config: RunConfig, dataset: Dataset) -> list[list[float]]:
    return [record["accuracy"] for record in records_of(config, [0, 5], dataset)]


def test_every_setting_is_for_some_method_or_tells_protocols_apart() -> None:
    configs = [
        RunConfig.of(method=method, protocol=protocol, gpil=gpil)
        for method, protocol, gpil in product(METHODS, PROTOCOLS, (True, False))
    ]
    for name in NAMES:
        chosen = any(config.applies(name) for config in configs)
        decided = {protocol.decides.get(name) for protocol in PROTOCOLS.values()}
        assert chosen or (None not in decided and len(decided) > 1), name


def test_settings_that_do_not_apply_are_those_that_a_method_has_no_use_for() -> None:
    for name, method in METHODS.items():
        config = RunConfig.of(method=name)
        assert config.applies("episodes") == (method.meta_training is not MetaTraining.NONE), name
        assert config.applies("finetune_steps") == (method.session_learning is not SessionLearning.NONE), name
        assert not any(config.applies(setting) for setting in method.decides), name


@pytest.mark.parametrize("method", METHODS)
def test_a_canonical_configuration_is_read_back_as_itself(method: str) -> None:
    config = resolve(RunConfig.of(method=method))
    assert config.canonical().keys() <= NAMES
    back = RunConfig.of(config.canonical())
    assert back.canonical() == config.canonical() and back.hash() == config.hash()
    assert resolve(back) == config


def test_methods_differ_in_their_hash_and_hag_meta_keeps_its_own() -> None:
    hashes = {resolve(RunConfig.of(method=name)).hash() for name in METHODS}
    assert len(hashes) == len(METHODS)
    # The canonical form as it was before there were other methods: results on disk are found by it.
    config = resolve(RunConfig.of())
    assert set(config.canonical()) - set(config.unhashed()) == {
        *("dataset", "method", "protocol", "classes", "drop_small", "n_way", "k_shot", "sessions"),
        *("gpil", "nla", "tla", "encoder", "hidden", "embedding", "heads", "dropout", "learning_rate"),
        *("weight_decay", "pretrain_epochs", "pretrain_patience", "episodes", "validate_every", "patience"),
        *("query_shot", "loss", "finetune_steps", "finetune_rate", "queries_per_class", "val_classes"),
    }


@pytest.mark.parametrize(
    ("encoder", "protocol"),
    [
        ("gcn", "strict"),
        pytest.param("gat", "released", marks=pytest.mark.slow),
        pytest.param("gcn", "released", marks=pytest.mark.slow),
        pytest.param("gat", "strict", marks=pytest.mark.slow),
    ],
)
def test_proto_is_hag_meta_with_all_parts_off(
    dataset: Dataset, small: Small, encoder: str, protocol: str
) -> None:
    labels = {} if protocol == "released" else {"pretrain_on": "known"}
    common: dict[str, Any] = {"protocol": protocol, "pretrain_epochs": 20}
    off = small(gpil=False, nla=False, tla=False, encoder=encoder, **common, **labels)
    assert accuracies(small(method=f"proto-{encoder}", **common), dataset) == accuracies(off, dataset)


def states_after(context: Context, sessions: bool) -> list[dict[str, torch.Tensor]]:
    """The parameters after pre-training, and after all that follows."""
    pack = pretrain(context)
    states = [pack.snapshot()]
    meta_train(context, pack)
    states.append(pack.snapshot())
    if sessions:
        evaluate_streams(context, pack, [scenario.test for scenario in context.scenarios], "test")
        states.append(pack.snapshot())
    return states


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(value, other[name]) for name, value in one.items())


def test_frozen_never_changes_after_pre_training(dataset: Dataset, small: Small) -> None:
    first, _, last = states_after(prepare(small(method="frozen"), [0, 5], dataset, CPU), sessions=True)
    assert same(first, last)
    for name in ("proto-gcn", "hag-meta"):  # as it would not if the phases did nothing
        first, _, last = states_after(prepare(small(method=name), [0, 5], dataset, CPU), sessions=True)
        assert not same(first, last)


def test_frozen_is_proto_gcn_without_steps(dataset: Dataset, small: Small) -> None:
    frozen = accuracies(small(method="frozen"), dataset)
    assert frozen == accuracies(small(method="proto-gcn", finetune_steps=0), dataset)
    assert frozen != accuracies(small(method="proto-gcn"), dataset)


def test_joint_learns_from_train_nodes_of_every_class_met(dataset: Dataset, small: Small) -> None:
    context = prepare(small(method="joint"), [0, 5], dataset, CPU)
    for scenario in context.scenarios:
        for session in range(3):
            nodes = scenario.train_nodes_met(scenario.test, session)
            assert set(scenario.labels[nodes]) == set(scenario.test.met(session))
            assert (scenario.split.role[nodes] == TRAIN).all()
    task = context.tasks.session([scenario.test for scenario in context.scenarios], 2, all_averaged=True)
    assert task.averaged.shape == (2, 13) and task.support.shape == (2, 0, 3)
    assert "oracle" in " ".join(remarks(context.settings))
    (record,) = records_of(small(method="joint"), [0], dataset)
    assert record["oracle"] is True


def test_ordinary_episodes_are_of_n_novel_train_classes(dataset: Dataset, small: Small) -> None:
    context = prepare(small(method="gpn", query_shot=4), [0, 5], dataset, CPU)
    for episode in islice(few_shot_episodes(context, context.known.training()), 10):
        assert episode.task.averaged.shape == (2, 0)
        for seed, scenario in enumerate(context.scenarios):
            classes = episode.task.classes[seed].numpy()
            assert len(set(classes)) == 2 and np.isin(classes, scenario.meta_classes).all()
            support, query = (nodes[seed].numpy() for nodes in (episode.task.support, episode.task.query))
            assert (scenario.labels[support] == classes[:, None]).all()
            assert (scenario.labels[query] == classes[episode.target[seed].numpy()]).all()
            drawn = np.concatenate([support.ravel(), query])
            assert len(set(drawn)) == 2 * (3 + 4) and (scenario.split.role[drawn] == TRAIN).all()


@pytest.mark.parametrize("settings", [{"method": "joint"}, {"gpil": False, "instead_of_gpil": "supervised"}])
def test_supervised_batches_are_of_every_class_that_training_may_know(
    dataset: Dataset, small: Small, settings: dict[str, Any]
) -> None:
    context = prepare(small(val_classes=2, **settings), [0, 5], dataset, CPU)
    assert context.meta_training is MetaTraining.SUPERVISED
    for episode in islice(supervised_episodes(context, context.known.training()), 5):
        for seed, scenario in enumerate(context.scenarios):
            assert list(episode.task.classes[seed]) == [*scenario.split.base, *scenario.meta_classes]
            query = episode.task.query[seed].numpy()
            assert (scenario.labels[query] == scenario.trained[episode.target[seed].numpy()]).all()
            assert (scenario.split.role[query] == TRAIN).all()
        assert episode.shared.task_sizes == (4, 2, 1) and episode.task.support.shape[1] == 0


def test_a_method_s_draws_do_not_depend_on_the_method(dataset: Dataset, small: Small) -> None:
    one, other = (prepare(small(method=name), [0], dataset, CPU).scenarios[0] for name in ("hag-meta", "gpn"))
    assert np.array_equal(one.test.support[1:], other.test.support[1:])
    assert all(np.array_equal(a, b) for a, b in zip(one.test.queries, other.test.queries, strict=True))


def test_gpn_has_hag_meta_s_prototypes(dataset: Dataset, small: Small) -> None:
    contexts = [
        prepare(small(method=name, tla=False, pretrain_epochs=2), [0, 5], dataset, CPU)
        for name in ("gpn", "hag-meta")
    ]
    logits = []
    for context in contexts:
        streams = [scenario.test for scenario in context.scenarios]
        known = context.known.session(streams, 2)
        shared = context.tasks.shared(known, streams[0].sizes(2))
        pack = pretrain(context)
        logits.append(pack.run("logits", (shared,), known.view, (context.tasks.session(streams, 2),))[0])
    assert torch.equal(*logits)
