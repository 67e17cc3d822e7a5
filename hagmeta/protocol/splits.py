"""From a seed to its classes and nodes: which are base, novel-train, novel-test; train, val, test."""

from __future__ import annotations

import numpy as np

from hagmeta.common.errors import UserError
from hagmeta.datasets.base import Dataset
from hagmeta.packs.randomness import stream
from hagmeta.protocol import PROTOCOLS, ProtocolSettings, make_protocol
from hagmeta.protocol.scenario import CONTEXT, TEST, TRAIN, VAL, Split, held_out_size

LEAST_BASE = 2  # classes: with one there is nothing to pre-train


def make_split(dataset: Dataset, settings: ProtocolSettings, seed: int) -> Split:
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
    counts = dataset.class_sizes
    tie = stream(seed, "split/ties").permutation(len(usable))
    by_size = usable[np.lexsort((tie, -counts[usable]))]
    rest = rng.permutation(by_size[num_base:])
    role = np.full(dataset.num_nodes, CONTEXT, dtype=np.int8)
    for members in class_members(dataset.labels, dataset.num_classes):
        shuffled = rng.permutation(members)
        held_out = held_out_size(len(members))
        role[shuffled] = TEST
        role[shuffled[held_out:]] = VAL
        role[shuffled[2 * held_out :]] = TRAIN
    return Split(by_size[:num_base], rest[:num_train], rest[num_train : num_train + num_test], role)


def class_members(labels: np.ndarray, num_classes: int) -> list[np.ndarray]:
    """The nodes of every class, ascending; those without a label are in none."""
    order = np.argsort(labels, kind="stable")
    return np.split(order, np.searchsorted(labels[order], np.arange(num_classes)))[1:]


def usable_classes(dataset: Dataset, settings: ProtocolSettings) -> np.ndarray:
    """Classes large enough for K supports and the queries; smaller ones stop or are dropped."""
    protocol = make_protocol(settings)
    counts = dataset.class_sizes
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


def proposed_classes(
    dataset: Dataset, n_way: int, k_shot: int, protocol: str = "strict", query_shot: int | None = None
) -> tuple[int, int, int]:
    """Propose how many classes are base, novel-train and novel-test, as the embedded datasets have them.

    About a quarter of the classes is novel-train and half is novel-test, in whole sessions of N. The others
    are base, which are the largest. Classes too small for the shots and queries do not count; a run has to
    leave them out (``drop_small``).

    Args:
        dataset: the graph.
        n_way: new classes per session.
        k_shot: labelled nodes per new class.
        protocol: the name of the protocol, which decides how many nodes a class needs.
        query_shot: training queries per class; without it, the protocol's default.

    Returns:
        The three counts: what ``classes`` is in a configuration.
    """
    queries = query_shot or PROTOCOLS[protocol].default_query_shot(k_shot)
    settings = ProtocolSettings(n_way=n_way, k_shot=k_shot, query_shot=queries, protocol=protocol)
    usable = int(make_protocol(settings).large_enough(dataset.class_sizes).sum())
    needed = LEAST_BASE + 2 * n_way
    if usable < needed:
        raise UserError(
            f"{dataset.name} has {usable} classes with enough nodes for {k_shot}-shot (of "
            f"{dataset.num_classes}); {n_way}-way needs {needed}: {LEAST_BASE} base, {n_way} novel-train and "
            f"{n_way} novel-test. Lower n_way or k_shot."
        )
    novel_train = max(1, round(usable / 4 / n_way)) * n_way
    base = min(max(LEAST_BASE, usable // 4), usable - novel_train - n_way)
    novel_test = (usable - base - novel_train) // n_way * n_way
    return usable - novel_train - novel_test, novel_train, novel_test
