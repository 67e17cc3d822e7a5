"""From a seed to its classes and nodes: which are base, novel-train, novel-test; train, val, test."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hagmeta.common.errors import UserError
from hagmeta.config import RELEASED_QUERIES, RunConfig
from hagmeta.datasets.base import NodeDataset
from hagmeta.packs.randomness import stream

TRAIN, VAL, TEST = 0, 1, 2


@dataclass(frozen=True)
class Split:
    """One seed's split. Base classes are the largest; the seed shuffles the rest."""

    base: np.ndarray  # (B,) classes
    novel_train: np.ndarray  # (T,) classes, in the seed's order
    novel_test: np.ndarray  # (E,) classes, in the order in which they will arrive
    role: np.ndarray  # (nodes,) TRAIN, VAL or TEST

    @property
    def order(self) -> np.ndarray:
        """Every class in the order in which it is met."""
        return np.concatenate([self.base, self.novel_train, self.novel_test])


def make_split(dataset: NodeDataset, config: RunConfig, seed: int) -> Split:
    """Draw one seed's classes and roles."""
    usable = usable_classes(dataset, config)
    assert config.classes is not None
    num_base, num_train, num_test = config.classes
    if sum(config.classes) > len(usable):
        raise UserError(
            f"classes {num_base} + {num_train} + {num_test} is more than the {len(usable)} usable classes "
            f"of {dataset.name} (it has {dataset.num_classes}); give smaller counts with --classes B T E."
        )
    rng = stream(seed, "split")
    counts = np.bincount(dataset.labels, minlength=dataset.num_classes)
    by_size = usable[np.argsort(-counts[usable], kind="stable")]
    rest = rng.permutation(by_size[num_base:])
    role = np.full(dataset.num_nodes, TEST, dtype=np.int8)
    for members in class_members(dataset.labels, dataset.num_classes):
        shuffled = rng.permutation(members)
        held_out = held_out_size(len(members))
        role[shuffled[held_out:]] = VAL
        role[shuffled[2 * held_out :]] = TRAIN
    return Split(by_size[:num_base], rest[:num_train], rest[num_train : num_train + num_test], role)


def held_out_size(count: int) -> int:
    """Nodes of a class of ``count`` kept for validation, and as many for testing."""
    return count // 5


def class_members(labels: np.ndarray, num_classes: int) -> list[np.ndarray]:
    """The nodes of every class, ascending."""
    order = np.argsort(labels, kind="stable")
    return np.split(order, np.searchsorted(labels[order], np.arange(1, num_classes)))


def usable_classes(dataset: NodeDataset, config: RunConfig) -> np.ndarray:
    """Classes large enough for K supports and the queries; smaller ones stop or are dropped."""
    assert config.k_shot is not None and config.query_shot is not None
    queries = max(config.query_shot, RELEASED_QUERIES) if config.protocol == "released" else config.query_shot
    wanted = config.k_shot + queries
    counts = np.bincount(dataset.labels, minlength=dataset.num_classes)
    if config.protocol == "released":
        enough = counts >= wanted  # supports and queries come from all nodes of a class
    else:
        held_out = counts // 5
        enough = (held_out >= 1) & (counts - 2 * held_out >= wanted)
    small = np.flatnonzero(~enough)
    if len(small) and not config.drop_small:
        named = ", ".join(f"{dataset.class_names[c]!r} ({counts[c]})" for c in small[:5])
        more = f" and {len(small) - 5} more" if len(small) > 5 else ""
        raise UserError(
            f"{len(small)} classes of {dataset.name} have too few nodes for {config.k_shot} supports and "
            f"{queries} queries: {named}{more}. Leave them out with --drop-small, or lower "
            f"--k-shot or query_shot."
        )
    return np.flatnonzero(enough)
