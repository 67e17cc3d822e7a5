from __future__ import annotations

from collections.abc import Callable
from itertools import islice, product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hagmeta.config.run_config import RunConfig
from hagmeta.datasets.base import Dataset
from hagmeta.engine.context import Context
from hagmeta.engine.run import prepare
from hagmeta.engine.training.meta_training import few_shot_episodes, pseudo_episodes
from hagmeta.scenarios.episodes import ClassPools, EpisodeSampler, sample_distinct
from hagmeta.scenarios.scenario import TRAIN

CPU = torch.device("cpu")
Small = Callable[..., RunConfig]
BASE, NOVEL, N, K = 4, 5, 2, 3  # of the small settings


@given(st.data())
@settings(max_examples=100, deadline=None)
def test_draws_are_distinct_whatever_the_numbers(data: st.DataObject) -> None:
    sizes = np.array(data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=4)))
    draws = data.draw(st.integers(1, int(sizes.min())))
    number = st.floats(0, 1, exclude_max=True)
    uniform = np.array(data.draw(st.lists(number, min_size=len(sizes) * draws, max_size=len(sizes) * draws)))
    picks = sample_distinct(uniform.reshape(len(sizes), draws), sizes)
    for row, size in zip(picks, sizes, strict=True):
        assert len(set(row)) == draws
        assert row.min() >= 0 and row.max() < size


def test_every_ordered_draw_is_equally_likely() -> None:
    # One uniform number for each of the 4 * 3 * 2 equally likely choices: each ordered triple comes once.
    choices = list(product(range(4), range(3), range(2)))
    uniform = np.array([[(i + 0.5) / (4 - place) for place, i in enumerate(choice)] for choice in choices])
    picks = sample_distinct(uniform[:, None, :], np.array([4]))
    assert len({tuple(row) for row in picks[:, 0]}) == 24


def test_pools_of_unequal_size_give_their_own_nodes() -> None:
    pools = ClassPools([np.array([10, 11]), np.array([20]), np.array([30, 31, 32, 33])])
    uniform = np.random.default_rng(0).random((200, 2, 2))
    drawn = pools.distinct(np.array([2, 0]), uniform)
    assert set(drawn[:, 0].ravel()) == {30, 31, 32, 33}
    assert set(drawn[:, 1].ravel()) == {10, 11}
    assert (drawn[..., 0] != drawn[..., 1]).all()


@pytest.mark.parametrize("protocol", ["strict", "released"])
def test_a_pseudo_stream_draws_right_nodes_apart(dataset: Dataset, small: Small, protocol: str) -> None:
    context = prepare(small(protocol=protocol), [0], dataset, CPU)
    scenario, config = context.scenarios[0], context.settings
    sampler = EpisodeSampler(scenario, config)
    roles = set()
    for _ in range(20):
        drawn = sampler.draw()
        assert len(set(drawn.order)) == len(drawn.order) == NOVEL // N * N
        assert set(drawn.order) <= set(scenario.split.novel_train)
        assert drawn.support.shape == (4, K)
        assert drawn.query.shape == (2, BASE + 4, config.query_shot)
        classes = np.concatenate([scenario.split.base, drawn.order])
        assert (scenario.labels[drawn.support] == drawn.order[:, None]).all()
        assert (scenario.labels[drawn.query] == classes[:, None]).all()
        for session in drawn.query:
            assert all(len(set(row)) == len(row) for row in session)
            assert not np.isin(session, drawn.support).any()
        roles |= set(scenario.split.role[drawn.query].ravel()) | set(
            scenario.split.role[drawn.support].ravel()
        )
    assert roles == ({TRAIN} if protocol == "strict" else {0, 1, 2})


def test_every_novel_class_and_train_node_has_its_turn(dataset: Dataset, small: Small) -> None:
    context = prepare(small(), [0], dataset, CPU)
    scenario = context.scenarios[0]
    sampler = EpisodeSampler(scenario, context.settings)
    streams = [sampler.draw() for _ in range(600)]
    assert {c for s in streams for c in s.order} == set(scenario.split.novel_train)
    base = np.concatenate([s.query[:, :BASE].ravel() for s in streams])
    assert set(base) == set(scenario.nodes_of(scenario.split.base, TRAIN))


def test_held_out_classes_are_never_drawn(dataset: Dataset, small: Small) -> None:
    context = prepare(small(val_classes=2), [0], dataset, CPU)
    scenario = context.scenarios[0]
    sampler = EpisodeSampler(scenario, context.settings)
    held_out = scenario.split.novel_train[-2:]
    for _ in range(20):
        drawn = sampler.draw()
        assert not np.isin(drawn.order, held_out).any()
        assert not np.isin(scenario.labels[[*drawn.support.ravel(), *drawn.query.ravel()]], held_out).any()


@pytest.mark.parametrize(("n_way", "ways"), [(1, 2), (2, 2), (3, 3)])
def test_a_task_is_among_two_classes_at_least(dataset: Dataset, small: Small, n_way: int, ways: int) -> None:
    context = prepare(small(method="gpn", n_way=n_way), [0, 5], dataset, CPU)
    episode = next(few_shot_episodes(context, context.known.training()))
    assert episode.shared.task_sizes == (ways,)
    assert episode.task.support.shape[1:] == (ways, K)
    assert set(episode.target[0].tolist()) == set(range(ways))


def tasks(context: Context, count: int) -> list[tuple[list[int], list[list[int]], list[list[int]]]]:
    """Of the second seed: known classes, supports, and for every episode its queries by target."""
    seen = []
    for episode in islice(pseudo_episodes(context, context.known.training()), count):
        classes = sum(episode.shared.task_sizes)
        query, target = episode.task.query[1], episode.target[1]
        by_target = [query[target == c].tolist() for c in range(classes)]
        assert episode.task.averaged.shape[1] + episode.task.support.shape[1] == classes
        seen.append((episode.task.averaged[1].tolist(), episode.task.support[1].tolist(), by_target))
    return seen


def test_merged_classes_keep_their_supports_until_the_stream_starts_anew(
    dataset: Dataset, small: Small
) -> None:
    context = prepare(small(), [0, 5], dataset, CPU)
    scenario = context.scenarios[1]
    first, second, third, fourth = tasks(context, 4)
    for many, supports, queries in (first, second, third, fourth):
        assert many == scenario.split.base.tolist()
        order = [*many, *scenario.labels[np.array(supports)][:, 0]]
        assert all(
            len(q) == K and set(scenario.labels[q]) == {c} for q, c in zip(queries, order, strict=True)
        )
    # Five novel-train classes, two a session: after two sessions one is left, too few for a third.
    assert [len(supports) for _, supports, _ in (first, second, third, fourth)] == [2, 4, 2, 4]
    assert second[1][:2] == first[1]
    assert fourth[1][:2] == third[1]
    assert third[1] != first[1]
    assert second[2][:BASE] != first[2][:BASE], "queries are drawn anew"


def test_under_released_a_merged_class_is_known_by_all_its_nodes(dataset: Dataset, small: Small) -> None:
    context = prepare(small(protocol="released"), [0, 5], dataset, CPU)
    (base, merged, _), (many, new, _) = tasks(context, 2)
    labels = context.scenarios[1].labels
    assert (len(base), len(merged), len(new)) == (BASE, N, N)
    assert many == [*base, *labels[np.array(merged)][:, 0]]


def test_task_sizes_name_the_tasks_as_they_came(dataset: Dataset, small: Small) -> None:
    context = prepare(small(), [0], dataset, CPU)
    episodes = islice(pseudo_episodes(context, context.known.training()), 3)
    assert [episode.shared.task_sizes for episode in episodes] == [(4, 2), (4, 2, 2), (4, 2)]
    # In the test stream five novel-train classes are two tasks and a smaller one, then come the sessions.
    assert context.tasks.shared(context.known.training(), sizes=(9, 2, 2)).task_sizes == (
        4,
        2,
        2,
        1,
        2,
        2,
    )
