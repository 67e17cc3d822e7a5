"""Draw the split of a seed: base, novel-train and novel-test classes; train, val and test nodes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from hagmeta.common.errors import UserError
from hagmeta.datasets.base import Dataset
from hagmeta.packs.randomness import stream
from hagmeta.scenarios import PROTOCOLS, ProtocolSettings, make_protocol
from hagmeta.scenarios.scenario import CONTEXT, LEAST_BASE, TEST, TRAIN, VAL, Split, held_out_size


def make_split(dataset: Dataset, settings: ProtocolSettings, seed: int) -> Split:
    """Draw the roles of classes and nodes for ``seed``, or read those of classes from the dataset."""
    rng = stream(seed, "split")
    fixed = settings.split == "fixed"
    base, novel_train, novel_test = (
        _fixed_classes(dataset, settings) if fixed else _drawn_classes(dataset, settings, seed, rng)
    )
    given = _given_supports(dataset, settings, novel_test) if fixed else {}
    role = np.full(dataset.num_nodes, CONTEXT, dtype=np.int8)
    for c, members in enumerate(class_members(dataset.labels, dataset.num_classes)):
        shuffled = rng.permutation(members)
        if c in given:  # the last ones are train nodes
            shuffled = np.concatenate([shuffled[~np.isin(shuffled, given[c])], given[c]])
        held_out = held_out_size(len(members))
        role[shuffled] = TEST
        role[shuffled[held_out:]] = VAL
        role[shuffled[2 * held_out :]] = TRAIN
    if not len(novel_train):
        base, novel_train = some_as_new(base, settings.groups[0], seed)
    return Split(base, novel_train, novel_test, role, given)


def _drawn_classes(
    dataset: Dataset, settings: ProtocolSettings, seed: int, rng: np.random.Generator
) -> list[np.ndarray]:
    """Return base, novel-train and novel-test classes. The largest are base, and the seed draws the rest."""
    usable = usable_classes(dataset, settings)
    assert settings.classes is not None
    num_base, num_train, num_test = settings.classes
    if sum(settings.classes) > len(usable):
        raise UserError(
            f"classes {num_base} + {num_train} + {num_test} is more than the {len(usable)} usable classes "
            f"of {dataset.name} (it has {dataset.num_classes}); use smaller counts in --classes B T E."
        )
    tie = stream(seed, "split/ties").permutation(len(usable))
    by_size = usable[np.lexsort((tie, -dataset.class_sizes[usable]))]
    rest = rng.permutation(by_size[num_base:])
    return [by_size[:num_base], rest[:num_train], rest[num_train : num_train + num_test]]


def _fixed_classes(dataset: Dataset, settings: ProtocolSettings) -> list[np.ndarray]:
    """Return base, novel-train and novel-test classes in the order that the dataset gives."""
    assert settings.classes is not None
    order = dataset.class_order
    if order is None:
        raise UserError(
            f"split is fixed, but {dataset.name} has no class_order; expected an .npz file with this array. "
            "Use split=drawn for other datasets."
        )
    if sum(settings.classes) > len(order):
        raise UserError(
            f"classes {' + '.join(map(str, settings.classes))} is more than the {len(order)} classes in the "
            f"class_order of {dataset.name}; use smaller counts in --classes B T E."
        )
    used = order[: sum(settings.classes)]
    protocol = make_protocol(settings)
    small = used[~protocol.large_enough(dataset.class_sizes[used])]
    if len(small):
        raise UserError(
            f"{_too_small(dataset, settings, small)} A fixed split needs all of them; use smaller values of "
            "--k-shot or query_shot."
        )
    num_base, num_train, _ = settings.classes
    return np.split(used, [num_base, num_base + num_train])


def _given_supports(
    dataset: Dataset, settings: ProtocolSettings, novel_test: np.ndarray
) -> dict[int, np.ndarray]:
    """Return the first K supports that the dataset gives for each class that arrives, if it gives any."""
    assert settings.n_way and settings.k_shot
    if dataset.supports is None:
        return {}
    if dataset.supports.shape[1] < settings.k_shot:
        raise UserError(
            f"k_shot is {settings.k_shot}, but the supports of {dataset.name} have "
            f"{dataset.supports.shape[1]} nodes per class; use a smaller --k-shot."
        )
    sessions = min(settings.sessions or len(novel_test), len(novel_test) // settings.n_way)
    rows = {int(dataset.labels[nodes[0]]): nodes[: settings.k_shot] for nodes in dataset.supports}
    arriving = novel_test[: sessions * settings.n_way].tolist()
    for c in arriving:
        if c not in rows:
            raise UserError(
                f"the supports of {dataset.name} have no row for class {dataset.class_names[c]!r}, which "
                "arrives in a session; expected a row for each class that arrives."
            )
    return {c: rows[c] for c in arriving}


def some_as_new(base: np.ndarray, stay: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw the base classes that play novel-train classes; return the ``stay`` others and these."""
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
        raise UserError(
            f"{_too_small(dataset, settings, small)} Leave them out with --drop-small, or use "
            f"smaller values of --k-shot or query_shot."
        )
    return np.flatnonzero(enough)


def _too_small(dataset: Dataset, settings: ProtocolSettings, small: np.ndarray) -> str:
    """Return a sentence that names the classes in ``small``."""
    counts = dataset.class_sizes
    named = ", ".join(f"{dataset.class_names[c]!r} ({counts[c]})" for c in small[:5])
    more = f" and {len(small) - 5} more" if len(small) > 5 else ""
    protocol = make_protocol(settings)
    return (
        f"{len(small)} classes of {dataset.name} have too few nodes for {settings.k_shot} supports and "
        f"{protocol.queries_needed} queries{protocol.drawn_from}: {named}{more}."
    )


class SplitFor(NamedTuple):
    """The settings that a proposed class split depends on."""

    n_way: int
    k_shot: int
    protocol: str = "strict"
    query_shot: int | None = None  # training queries per class; None means the default of the protocol


def common_classes(dataset: Dataset, tasks: Sequence[SplitFor]) -> tuple[int, int, int]:
    """Propose one split for one or more tasks, so that they differ in nothing else.

    The result is the setting ``classes``. About a quarter of the classes becomes novel-train and half becomes
    novel-test. The others, the largest, become base. Only classes that are large enough for every task count;
    leave the others out of a run with ``drop_small``. Novel classes fill whole sessions for every N, if
    a quarter of the classes can. Otherwise they fill whole sessions of the largest N.
    """
    counts = {task: _large_enough(dataset, task) for task in tasks}
    usable, k_shot = min((count, task.k_shot) for task, count in counts.items())
    n_way = max(task.n_way for task in tasks)
    needed = LEAST_BASE + 2 * n_way
    if usable < needed:
        raise UserError(
            f"{dataset.name} has {usable} classes with enough nodes for {k_shot}-shot (of "
            f"{dataset.num_classes}); {n_way}-way needs {needed}: {LEAST_BASE} base, {n_way} novel-train and "
            f"{n_way} novel-test. Use a smaller n_way or k_shot."
        )
    multiple = math.lcm(*(task.n_way for task in tasks))
    step = multiple if multiple <= usable // 4 else n_way
    novel_train = max(1, round(usable / 4 / step)) * step
    base = min(max(LEAST_BASE, usable // 4), usable - novel_train - step)
    novel_test = (usable - base - novel_train) // step * step
    return usable - novel_train - novel_test, novel_train, novel_test


def _large_enough(dataset: Dataset, task: SplitFor) -> int:
    """Return the number of classes with enough nodes for `task`."""
    queries = task.query_shot or PROTOCOLS[task.protocol].default_query_shot(task.k_shot)
    settings = ProtocolSettings(
        n_way=task.n_way, k_shot=task.k_shot, query_shot=queries, protocol=task.protocol
    )
    return int(make_protocol(settings).large_enough(dataset.class_sizes).sum())
