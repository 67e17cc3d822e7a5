"""Draw the split of a seed: base, novel-train and novel-test classes; train, val and test nodes."""

from __future__ import annotations

import numpy as np

from hagmeta.common.errors import UserError
from hagmeta.datasets.base import Dataset
from hagmeta.packs.randomness import stream
from hagmeta.protocol import PROTOCOLS, ProtocolSettings, make_protocol
from hagmeta.protocol.scenario import CONTEXT, LEAST_BASE, TEST, TRAIN, VAL, Split, held_out_size


def make_split(dataset: Dataset, settings: ProtocolSettings, seed: int) -> Split:
    """Draw the roles of classes and nodes for ``seed``."""
    usable = usable_classes(dataset, settings)
    assert settings.classes is not None
    num_base, num_train, num_test = settings.classes
    if sum(settings.classes) > len(usable):
        raise UserError(
            f"classes {num_base} + {num_train} + {num_test} is more than the {len(usable)} usable classes "
            f"of {dataset.name} (it has {dataset.num_classes}); use smaller counts in --classes B T E."
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
    base, novel_train = by_size[:num_base], rest[:num_train]
    if not num_train:
        base, novel_train = _some_as_new(base, settings, seed)
    return Split(base, novel_train, rest[num_train : num_train + num_test], role)


def _some_as_new(base: np.ndarray, settings: ProtocolSettings, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw the base classes that take the role of novel-train classes; return the others and these."""
    stay = settings.groups[0]
    drawn = stream(seed, "split/played").permutation(base)[stay:]
    return base[~np.isin(base, drawn)], drawn


def class_members(labels: np.ndarray, num_classes: int) -> list[np.ndarray]:
    """Return the nodes of every class in ascending order, without unlabelled nodes."""
    order = np.argsort(labels, kind="stable")
    return np.split(order, np.searchsorted(labels[order], np.arange(num_classes)))[1:]


def usable_classes(dataset: Dataset, settings: ProtocolSettings) -> np.ndarray:
    """Return the classes with enough nodes for K supports and the queries.

    Raises:
        UserError: Some classes are too small and ``drop_small`` is off.
    """
    protocol = make_protocol(settings)
    counts = dataset.class_sizes
    enough = protocol.large_enough(counts)
    small = np.flatnonzero(~enough)
    if len(small) and not settings.drop_small:
        named = ", ".join(f"{dataset.class_names[c]!r} ({counts[c]})" for c in small[:5])
        more = f" and {len(small) - 5} more" if len(small) > 5 else ""
        raise UserError(
            f"{len(small)} classes of {dataset.name} have too few nodes for {settings.k_shot} supports and "
            f"{protocol.queries_needed} queries: {named}{more}. Leave them out with --drop-small, or use "
            f"smaller values of --k-shot or query_shot."
        )
    return np.flatnonzero(enough)


def proposed_classes(
    dataset: Dataset, n_way: int, k_shot: int, protocol: str = "strict", query_shot: int | None = None
) -> tuple[int, int, int]:
    """Propose numbers of base, novel-train and novel-test classes, similar to the embedded datasets.

    About a quarter of the classes becomes novel-train and half becomes novel-test, in whole sessions of N.
    The other classes, the largest, become base. Classes with too few nodes do not count; leave them out of a
    run with ``drop_small``.

    Args:
        dataset: The graph.
        n_way: New classes per session.
        k_shot: Labelled nodes per new class.
        protocol: The name of the protocol, which decides how many nodes a class needs.
        query_shot: Training queries per class. The default is that of the protocol.

    Returns:
        The three counts, to use as the setting ``classes``.
    """
    queries = query_shot or PROTOCOLS[protocol].default_query_shot(k_shot)
    settings = ProtocolSettings(n_way=n_way, k_shot=k_shot, query_shot=queries, protocol=protocol)
    usable = int(make_protocol(settings).large_enough(dataset.class_sizes).sum())
    needed = LEAST_BASE + 2 * n_way
    if usable < needed:
        raise UserError(
            f"{dataset.name} has {usable} classes with enough nodes for {k_shot}-shot (of "
            f"{dataset.num_classes}); {n_way}-way needs {needed}: {LEAST_BASE} base, {n_way} novel-train and "
            f"{n_way} novel-test. Use a smaller n_way or k_shot."
        )
    novel_train = max(1, round(usable / 4 / n_way)) * n_way
    base = min(max(LEAST_BASE, usable // 4), usable - novel_train - n_way)
    novel_test = (usable - base - novel_train) // n_way * n_way
    return usable - novel_train - novel_test, novel_train, novel_test
