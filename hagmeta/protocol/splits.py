"""From a seed to its classes and nodes: which are base, novel-train, novel-test; train, val, test."""

from __future__ import annotations

import numpy as np

from hagmeta.common.errors import UserError
from hagmeta.datasets.base import NodeDataset
from hagmeta.packs.randomness import stream
from hagmeta.protocol import ProtocolSettings, make_protocol
from hagmeta.protocol.scenario import TEST, TRAIN, VAL, Split, held_out_size


def make_split(dataset: NodeDataset, settings: ProtocolSettings, seed: int) -> Split:
    """Draw one seed's classes and roles."""
    usable = usable_classes(dataset, settings)
    assert settings.classes is not None
    num_base, num_train, num_test = settings.classes
    if sum(settings.classes) > len(usable):
        raise UserError(
            f"classes {num_base} + {num_train} + {num_test} is more than the {len(usable)} usable classes "
            f"of {dataset.name} (it has {dataset.num_classes}); give smaller counts with --classes B T E."
        )
    rng = stream(seed, "split")
    counts = np.bincount(dataset.labels, minlength=dataset.num_classes)
    tie = stream(seed, "split/ties").permutation(len(usable))
    by_size = usable[np.lexsort((tie, -counts[usable]))]
    rest = rng.permutation(by_size[num_base:])
    role = np.full(dataset.num_nodes, TEST, dtype=np.int8)
    for members in class_members(dataset.labels, dataset.num_classes):
        shuffled = rng.permutation(members)
        held_out = held_out_size(len(members))
        role[shuffled[held_out:]] = VAL
        role[shuffled[2 * held_out :]] = TRAIN
    return Split(by_size[:num_base], rest[:num_train], rest[num_train : num_train + num_test], role)


def class_members(labels: np.ndarray, num_classes: int) -> list[np.ndarray]:
    """The nodes of every class, ascending."""
    order = np.argsort(labels, kind="stable")
    return np.split(order, np.searchsorted(labels[order], np.arange(1, num_classes)))


def usable_classes(dataset: NodeDataset, settings: ProtocolSettings) -> np.ndarray:
    """Classes large enough for K supports and the queries; smaller ones stop or are dropped."""
    protocol = make_protocol(settings)
    counts = np.bincount(dataset.labels, minlength=dataset.num_classes)
    enough = protocol.large_enough(counts)
    small = np.flatnonzero(~enough)
    if len(small) and not settings.drop_small:
        named = ", ".join(f"{dataset.class_names[c]!r} ({counts[c]})" for c in small[:5])
        more = f" and {len(small) - 5} more" if len(small) > 5 else ""
        raise UserError(
            f"{len(small)} classes of {dataset.name} have too few nodes for {settings.k_shot} supports and "
            f"{protocol.queries_needed} queries: {named}{more}. Leave them out with --drop-small, or lower "
            f"--k-shot or query_shot."
        )
    return np.flatnonzero(enough)
