from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hagmeta.common.errors import UserError
from hagmeta.datasets import Dataset, describe, fingerprint, load, synthetic

SMALL = "synthetic:nodes=2000,edges=8000,features=300,classes=20"


def load_synthetic(name: str) -> Dataset:
    return load(name, root=Path("unused"))


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("synthetic-amazon-clothing", (24_919, 91_680, 9_034, 77)),
        ("synthetic-dblp", (40_672, 288_270, 7_202, 137)),
        (SMALL, (2000, 8000, 300, 20)),
        (SMALL + ",dense=1,seed=3", (2000, 8000, 300, 20)),
        # Half of all pairs, the most that can be asked for: the heavy nodes fill up long before.
        ("synthetic:nodes=100,edges=2475,features=1,classes=50", (100, 2475, 1, 50)),
        ("synthetic:nodes=4,edges=1,features=1,classes=2", (4, 1, 1, 2)),
    ],
)
def test_counts_are_exact(name: str, counts: tuple[int, int, int, int]) -> None:
    dataset = load_synthetic(name)
    assert (dataset.num_nodes, len(dataset.edges), dataset.num_features, dataset.num_classes) == counts
    info = describe(name, root=Path("unused"))
    assert (info.nodes, info.edges, info.features, info.classes) == counts
    # Distinct pairs of two different nodes, smaller first.
    assert np.all(dataset.edges[:, 0] < dataset.edges[:, 1])
    assert len(np.unique(dataset.edges, axis=0)) == len(dataset.edges)


def test_presets_are_described_as_they_are_made() -> None:
    # synthetic-reddit is too large to make here; its description must still be its config.
    for name, config in synthetic.PRESETS.items():
        info = describe(name, root=Path("unused"))
        assert (info.nodes, info.edges) == (config.nodes, config.edges)
        assert (info.features, info.classes) == (config.features, config.classes)


def test_preset_classes_are_uneven_but_never_tiny() -> None:
    sizes = np.bincount(load_synthetic("synthetic-amazon-clothing").labels)
    assert sizes.min() >= 100
    assert sizes.max() > 10 * sizes.min()


def test_same_seed_gives_the_same_graph() -> None:
    prints = [fingerprint(load_synthetic(f"{SMALL},seed={seed}")) for seed in (1, 1, 2)]
    assert prints[0] == prints[1] != prints[2]


def test_neighbours_share_classes_far_above_chance() -> None:
    dataset = load_synthetic(SMALL)
    same = np.mean(dataset.labels[dataset.edges[:, 0]] == dataset.labels[dataset.edges[:, 1]])
    chance = np.sum((np.bincount(dataset.labels) / dataset.num_nodes) ** 2)
    assert 5 * chance < same < 0.7


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("nodes=10", "edges, features, classes missing"),
        ("nodse=10", "unknown key 'nodse'; expected nodes, edges, features, classes, seed, dense"),
        ("nodes=ten", "nodes='ten'; expected a whole number"),
        ("nodes=", "nodes=''; expected a whole number"),
        ("nodes=10,nodes=11", "nodes is given twice"),
        ("nodes=10,edges=23,features=3,classes=2", "edges=23; expected 1 to 22"),
        ("nodes=10,edges=0,features=3,classes=2", "edges=0; expected 1 to 22"),
        ("nodes=10,edges=9,features=0,classes=2", "features=0; expected 1 to 1000000"),
        ("nodes=10,edges=9,features=3,classes=6", "classes=6; expected 2 to 5"),
        ("nodes=-10,edges=9,features=3,classes=2", "nodes=-10; expected 4 to 100000000"),
        ("nodes=10,edges=9,features=3,classes=2,dense=2", "dense=2; expected 0 to 1"),
        ("nodes=10,edges=9,features=3,classes=2,seed=-1", "seed=-1; expected 0 to"),
        ("nodes=10,,edges=9", "unknown key ''"),
    ],
)
def test_bad_request_is_said_in_one_line(text: str, says: str) -> None:
    for ask in (load, describe):
        with pytest.raises(UserError) as error:
            ask(f"synthetic:{text}", Path("unused"))
        assert str(error.value).startswith("synthetic: ") and says in str(error.value)
        assert "\n" not in str(error.value)


def test_a_graph_that_memory_cannot_hold_is_refused_before_it_is_made() -> None:
    config = synthetic.SyntheticConfig(nodes=10**8, edges=10**9, features=10**6, classes=50, dense=1)
    with pytest.raises(UserError, match="generating 100,000,000 nodes and 1,000,000,000 edges takes about"):
        synthetic.generate("huge", config)
