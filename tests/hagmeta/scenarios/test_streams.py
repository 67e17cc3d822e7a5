from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hagmeta import datasets
from hagmeta.common.errors import UserError
from hagmeta.config.run_config import RunConfig, resolve
from hagmeta.datasets.base import Dataset
from hagmeta.engine.run import prepare
from hagmeta.engine.training.pretrain import _cache_key
from hagmeta.scenarios.scenario import TEST, TRAIN, VAL, Scenario, Stream
from hagmeta.scenarios.streams import check_ways, make_scenario

Small = Callable[..., RunConfig]
Changes = dict[str, Any]


def scenario_of(dataset: Dataset, config: RunConfig, seed: int = 0) -> Scenario:
    return make_scenario(dataset, resolve(config), seed)


def arrays(stream: Stream) -> list[np.ndarray]:
    return [
        *stream.arriving,
        *stream.support,
        stream.arrival,
        stream.labelled_from,
        *stream.queries,
    ]


def same_draws(one: Scenario, other: Scenario) -> bool:
    left, right = (
        [*arrays(w.validation), *arrays(w.test), w.split.role, w.meta_classes] for w in (one, other)
    )
    return all(np.array_equal(a, b) for a, b in zip(left, right, strict=True))


def assert_strict(stream: Stream, scenario: Scenario, role: int, k_shot: int, most: int) -> None:
    """Supports are train nodes of their classes, queries nodes of ``role`` of all classes met."""
    labels, roles = scenario.labels, scenario.split.role
    assert [rows.shape for rows in stream.support] == [
        (0, k_shot),
        *((size, k_shot) for size in stream.sizes(stream.sessions)[1:]),
    ]
    supports = np.concatenate(stream.support)
    assert len(np.unique(supports)) == supports.size
    assert (labels[supports] == np.concatenate(stream.arriving[1:])[:, None]).all()
    assert (roles[supports] == TRAIN).all()
    assert len(stream.queries) == stream.sessions + 1
    chosen: dict[int, list[int]] = {}
    for session, queries in enumerate(stream.queries):
        assert (roles[queries] == role).all()
        assert not np.isin(queries, supports).any()
        assert (np.diff(queries) > 0).all()
        assert set(labels[queries]) == set(stream.met(session))
        for c in stream.met(session):
            mine = queries[labels[queries] == c].tolist()
            there = int(((labels == c) & (roles == role)).sum())
            assert len(mine) == min(most or there, there)
            assert chosen.setdefault(c, mine) == mine, "a class keeps its queries"


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("most", [0, 4])  # 0: all
def test_strict_streams_keep_supports_and_queries_apart(
    dataset: Dataset, small: Small, seed: int, most: int
) -> None:
    scenario = scenario_of(dataset, small(queries_per_class=most), seed)
    assert_strict(scenario.test, scenario, TEST, 3, most)
    assert_strict(scenario.validation, scenario, VAL, 3, most)


def test_classes_arrive_in_the_split_s_order_without_the_remainder(dataset: Dataset, small: Small) -> None:
    scenario = scenario_of(dataset, small())  # 5 novel-test classes, 2 a session
    split = scenario.split
    assert scenario.test.known.tolist() == [*split.base, *split.novel_train]
    assert np.stack(scenario.test.arriving[1:]).tolist() == split.novel_test[:4].reshape(2, 2).tolist()
    assert scenario.test.met(1).tolist() == [*scenario.test.known, *split.novel_test[:2]]
    left_over = dataset.labels == split.novel_test[4]
    assert not scenario.test.arrived(2)[left_over].any()


@pytest.mark.parametrize("changes", [{}, {"val_classes": 2}, {"protocol": "released"}])
def test_a_session_makes_its_own_classes_visible_and_no_more(
    dataset: Dataset, small: Small, changes: Changes
) -> None:
    scenario = scenario_of(dataset, small(**changes))
    for session in range(scenario.test.sessions + 1):
        expected = np.isin(dataset.labels, scenario.test.met(session))
        assert np.array_equal(scenario.test.arrived(session), expected)


def test_validation_rehearses_the_novel_train_classes(dataset: Dataset, small: Small) -> None:
    scenario = scenario_of(dataset, small())
    stream, split = scenario.validation, scenario.split
    assert scenario.meta_classes.tolist() == split.novel_train.tolist()
    assert stream.known.tolist() == split.base.tolist()
    assert stream.sessions == 2 and set(np.concatenate(stream.arriving[1:])) < set(split.novel_train)
    assert all((split.role[asked] == VAL).all() for asked in stream.queries)
    # They were all met in training, so all are visible from the start.
    for session in range(3):
        expected = np.isin(dataset.labels, [*split.base, *split.novel_train])
        assert np.array_equal(stream.arrived(session), expected)


def test_validation_on_held_out_classes_is_a_stream_of_its_own(dataset: Dataset, small: Small) -> None:
    scenario = scenario_of(dataset, small(val_classes=3, n_way=1))
    stream, split = scenario.validation, scenario.split
    assert scenario.meta_classes.tolist() == split.novel_train[:2].tolist()
    assert stream.known.tolist() == [*split.base, *split.novel_train[:2]]
    assert np.concatenate(stream.arriving[1:]).tolist() == split.novel_train[2:].tolist()
    assert_strict(stream, scenario, VAL, 3, 50)
    for session in range(4):
        assert np.array_equal(stream.arrived(session), np.isin(dataset.labels, stream.met(session)))
    # The test stream still counts every novel-train class as met.
    assert scenario.test.known.tolist() == [*split.base, *split.novel_train]


def test_streams_can_be_scored_on_validation_nodes(dataset: Dataset, small: Small) -> None:
    usual, scored = scenario_of(dataset, small()), scenario_of(dataset, small(scored_on="validation"))
    assert np.array_equal(scored.test.arriving[1:], usual.test.arriving[1:])
    assert np.array_equal(scored.test.support[1:], usual.test.support[1:])
    for asked, queries in zip(usual.test.queries, scored.test.queries, strict=True):
        assert (usual.split.role[asked] == TEST).all()
        assert (scored.split.role[queries] == VAL).all()
        assert set(dataset.labels[queries]) == set(dataset.labels[asked])
    for ours, others in zip(scored.validation.queries, usual.validation.queries, strict=True):
        assert np.array_equal(ours, others)  # early stopping reads what it reads in a test run


def test_sessions_limits_the_test_stream(dataset: Dataset, small: Small) -> None:
    limited, whole = scenario_of(dataset, small(sessions=1)), scenario_of(dataset, small())
    assert (limited.test.sessions, whole.test.sessions) == (1, 2)
    assert len(limited.test.queries) == 2
    assert np.array_equal(limited.test.support[1:], whole.test.support[1:2])
    assert not limited.test.arrived(1)[np.isin(dataset.labels, whole.test.arriving[2])].any()


def test_one_shot_and_one_way(dataset: Dataset, small: Small) -> None:
    scenario = scenario_of(dataset, small(k_shot=1, n_way=1))
    assert np.shape(scenario.test.support[1:]) == (5, 1, 1)
    assert_strict(scenario.test, scenario, TEST, 1, 50)


@pytest.mark.parametrize(
    "changes",
    [
        {"nla": False},
        {"tla": False},
        {"gpil": False},
        {"loss": "binary"},
        {"encoder": "gat", "heads": 1},
        {"hidden": 8, "embedding": 4, "dropout": 0.1},
        {"learning_rate": 0.1, "weight_decay": 0.0, "finetune_rate": 0.1, "finetune_steps": 0},
        {"episodes": 3, "validate_every": 1, "patience": 1, "pretrain_epochs": 1, "pretrain_patience": 1},
    ],
    ids=lambda changes: "-".join(changes),
)
def test_how_a_model_learns_changes_no_draw(dataset: Dataset, small: Small, changes: Changes) -> None:
    # Methods and options are compared in pairs: with a seed they share split, supports, queries and order.
    assert same_draws(scenario_of(dataset, small()), scenario_of(dataset, small(**changes)))


# Results on disk are paired by these draws, and pre-trained encoders are found by these keys.
DRAWN: list[tuple[Changes, str, str]] = [
    ({}, "e2a2cb3d9057178f", "53d242c55f7c12f9a0ce182f"),
    (
        {"queries_per_class": 7, "rehearsal": "3", "val_classes": 6, "mislabelled": 1},
        "eb6795884807fb8a",
        "d54f75bc42ebfd8562b825bb",
    ),
    ({"protocol": "released"}, "2a205cda791c487d", "a443f995e465cbdbce3a9692"),
]


@pytest.mark.parametrize(("changes", "draws", "key"), DRAWN, ids=["strict", "limited", "released"])
def test_draws_and_cache_keys_are_what_they_were(changes: Changes, draws: str, key: str) -> None:
    graph = datasets.load("foldoc", Path())
    context = prepare(RunConfig.of(dataset="foldoc", **changes), [3], graph, torch.device("cpu"))
    (scenario,) = context.scenarios
    digest = hashlib.sha256()
    for stream in (scenario.test, scenario.validation):
        again = [*stream.rehearsed.known, *stream.rehearsed.support] if stream.rehearsed else []
        for array in [*arrays(stream), *again]:
            digest.update(np.ascontiguousarray(array).tobytes())
    digest.update(scenario.split.role.tobytes())
    assert digest.hexdigest()[:16] == draws
    assert _cache_key(graph.fingerprint, 0, context) == key


def test_seeds_have_streams_of_their_own(dataset: Dataset, small: Small) -> None:
    assert same_draws(scenario_of(dataset, small(), 4), scenario_of(dataset, small(), 4))
    one, other = scenario_of(dataset, small(), 4), scenario_of(dataset, small(), 5)
    assert not np.array_equal(one.test.support[1:], other.test.support[1:])
    assert not np.array_equal(one.test.queries[0], other.test.queries[0])


def test_released_draws_twenty_queries_of_all_nodes_but_the_session_s_supports(
    dataset: Dataset, small: Small
) -> None:
    scenario = scenario_of(dataset, small(protocol="released"))
    labels, roles, stream = scenario.labels, scenario.split.role, scenario.test
    for session, queries in enumerate(stream.queries):
        assert len(np.unique(queries)) == len(queries) == 20 * len(stream.met(session))
        assert (np.bincount(labels[queries], minlength=14)[stream.met(session)] == 20).all()
        if session:
            assert not np.isin(queries, stream.support[session]).any()
    # What makes it leak: training nodes are asked for, earlier supports too, and anew in each session.
    assert (roles[stream.queries[0]] == TRAIN).any()
    assert np.isin(stream.queries[2], stream.support[1]).any()
    known = [set(q[np.isin(labels[q], stream.known)]) for q in stream.queries]
    assert known[0] != known[1]
    assert set(np.unique(roles[np.concatenate(stream.support)])) == {TRAIN, VAL, TEST}


def test_nodes_of_gives_one_role_of_what_is_readable_at_the_start(dataset: Dataset, small: Small) -> None:
    scenario = scenario_of(dataset, small())
    classes = np.array([scenario.split.base[0], scenario.split.novel_train[0]])
    for role in (TRAIN, VAL, TEST):
        expected = np.flatnonzero(np.isin(dataset.labels, classes) & (scenario.split.role == role))
        assert np.array_equal(scenario.nodes_of(classes, role), expected)
    assert len(scenario.nodes_of(scenario.split.novel_test, TRAIN)) == 0
    # Asked with the labels of others in their place, it answers by what may be read all the same.
    swapped = replace(scenario, labels=np.full_like(scenario.labels, classes[0]))
    assert scenario.test.labelled_by(0)[swapped.nodes_of(classes, TRAIN)].all()


BAD_WAYS: list[tuple[Changes, str]] = [
    ({"n_way": 6}, "n_way is 6, but only 5 classes are novel-test"),
    ({"n_way": 4, "classes": (4, 3, 7)}, "n_way is 4, but only 3 classes are left"),
    (
        {"n_way": 2, "val_classes": 4},
        r"only 1 classes are left to train on as new ones \(5 novel-train minus 4 val_classes\)",
    ),
    ({"n_way": 2, "val_classes": 9}, "n_way is 2, but only -4 classes are left"),
    ({"n_way": 2, "val_classes": 1}, "val_classes is 1; expected 0 or at least n_way = 2"),
    ({"val_classes": 2, "scored_on": "validation"}, "scored_on is validation and val_classes is 2; expected"),
    ({"protocol": "released", "scored_on": "validation"}, "released has no validation nodes"),
    ({"n_way": 2, "sessions": 3}, "3 sessions of 2 classes need 6 novel-test classes, but there are 5"),
]


@pytest.mark.parametrize(("changes", "message"), BAD_WAYS)
def test_an_n_that_the_classes_cannot_feed_is_refused(
    small: Small, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        check_ways(small(**changes))
