from __future__ import annotations

from dataclasses import replace

import numpy as np

from hagmeta.config.run_config import RunConfig, resolve
from hagmeta.scenarios.scenario import TEST
from hagmeta.scenarios.streams import make_scenario
from study.planning import data
from study.search.overlap import Overlap, overlap

NAME = "synthetic:nodes=1200,edges=5000,features=150,classes=14,seed=1"
CONFIG = RunConfig.of(dataset=NAME, classes=(4, 5, 5), n_way=2, k_shot=3, val_classes="half")


def test_under_one_seed_nothing_that_is_asked_was_known_and_under_many_almost_all() -> None:
    graph = data.load(NAME)
    assert overlap(graph, CONFIG, [0], [0]) == Overlap(0.0, 0.0)
    many = overlap(graph, CONFIG, range(1, 40), [0])
    assert many.nodes == 1.0 and many.classes == 1.0


def test_shares_are_those_of_a_count_by_hand() -> None:
    graph = data.load(NAME)
    search = [make_scenario(graph, resolve(CONFIG), seed) for seed in (0, 1)]
    shares = []
    for seed in (2, 3):
        test = make_scenario(graph, resolve(CONFIG), seed).test
        known = [
            any(
                scenario.split.role[node] != TEST and graph.labels[node] in scenario.test.known
                for scenario in search
            )
            for node in test.queries[-1]
        ]
        met = [
            any(c in scenario.test.known for scenario in search) for c in np.concatenate(test.arriving[1:])
        ]
        shares.append((sum(known) / len(known), sum(met) / len(met)))
    found = overlap(graph, CONFIG, [0, 1], [2, 3])
    assert found.nodes == sum(nodes for nodes, _ in shares) / 2
    assert found.classes == sum(classes for _, classes in shares) / 2
    assert 0 < found.nodes < 1 and f"{100 * found.nodes:.0f} % of the test nodes" in str(found)


def test_a_search_on_validation_nodes_of_all_classes_has_met_them_all() -> None:
    graph = data.load(NAME)
    config = replace(CONFIG, val_classes=0, scored_on="validation")
    found = overlap(graph, config, [0], [0])
    assert found.nodes == 0.0 and found.classes == 1.0  # its own test nodes stay unread
    assert "novel-test classes were met there" in str(found)
    assert overlap(graph, config, [1], [0]).nodes > overlap(graph, CONFIG, [1], [0]).nodes
