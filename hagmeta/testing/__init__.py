"""Checks for new methods: no leaks, reproducible, and equal results in packs and in plain mode.

Use them in a test file::

    from hagmeta.testing import parametrize_with_checks

    @parametrize_with_checks(["my_method.py:Mine"])
    def test_my_method(method, check):
        check(method)

You can also call each check as a function: ``check_no_leak("my_method.py:Mine", my_setting=3)``. A check that
fails raises an AssertionError that names the difference. By default, checks use a small random graph and take
seconds. A method that draws unseeded random numbers fails every check, so look at ``check_deterministic``
first.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hagmeta import datasets
from hagmeta.common.records.records import Record
from hagmeta.config.run_config import RunConfig, may_differ, pack_key, resolve, runs_in_packs
from hagmeta.datasets.base import Dataset
from hagmeta.engine.context import Context
from hagmeta.engine.options import Mode, RunOptions
from hagmeta.engine.run import ValidationScores, prepare, pretrain, run, run_members, train_and_evaluate
from hagmeta.engine.training.meta_training import meta_train
from hagmeta.methods import METHODS, Method
from hagmeta.packs.pack import Pack
from hagmeta.scenarios.evaluator import DIGITS, Evaluator
from hagmeta.scenarios.metrics import metrics_of
from hagmeta.testing.hidden import labels_in_place, with_noise_at, with_other_labels

__all__ = [
    "CHECKS",
    "check_deterministic",
    "check_method",
    "check_no_leak",
    "check_packs",
    "check_plain",
    "parametrize_with_checks",
]

CPU = torch.device("cpu")
SEED = 3
PACK = [7, 1, SEED, 0]
GRAPH = "synthetic:nodes=401,edges=1500,features=60,classes=10,seed=1"
SMALL: dict[str, Any] = {  # keeps a run below one second
    "hidden": 8,
    "embedding": 4,
    "heads": 2,
    "pretrain_epochs": 2,
    "episodes": 2,
    "validate_every": 1,
    "finetune_steps": 2,
    "inner_steps": 1,
    "memory": 3,
    "projection": 40,
    "lift": 40,
    "centres": 40,
    "codebooks": 6,
}
TASK: dict[str, Any] = {"classes": (2, 2, 5), "n_way": 2, "k_shot": 2}  # for the small random graph
TIME_AND_PLACE = ("seconds", "environment")  # keys of a record that differ from run to run
ROUNDING = 1e-5  # allowed difference between parameters of plain and packed runs
# This share may differ more: where a gradient is only rounding noise, Adam still takes full steps.
FEW = 0.05
ADAM = 0.02  # allowed difference for that share
ACCURACY = 0.005  # allowed share of different predictions
# Allowed difference between numbers of a record alone and in a pack. On x86, torch rounds the last elements
# of an array differently, and a pack has other last elements. So the last digit of a diagnostic may differ.
PACKED = 1.01 * 10.0**-DIGITS if platform.machine() == "x86_64" else 0.0

Reference = str | type[Method]
Answers = list[list[np.ndarray]]  # by seed and session


def check_no_leak(
    method: Reference, *, dataset: Dataset | None = None, base: Base | None = None, **settings: Any
) -> None:
    """Check that hidden information does not change parameters or predictions, bit for bit.

    The check replaces labels of test nodes and of unlabelled nodes of new classes. Then it replaces features
    and edges of nodes that have not arrived. Labels are also replaced inside ``dataset`` during the run, to
    catch methods that keep a reference to them. The check cannot catch a method that loads labels from
    another place.

    The arguments are those of `check_method`; ``base`` has runs that the checks of a method share.

    Raises:
        AssertionError: The method leaks. The message names the difference.
    """
    base = base or Base(method, dataset, settings)
    dataset, context, (pack, answers) = base.dataset, base.context, base.lived

    others = with_other_labels(context, "permuted")
    with labels_in_place(dataset, others.scenarios[0].labels):
        other_pack, other_answers = run_context(others)
    found = _difference(pack, other_pack) or _changed(answers, other_answers)
    _report(method, found, "when hidden labels are replaced")

    hidden = np.flatnonzero(~context.scenarios[0].validation.arrived(0))
    noisy = replace(context, graph=type(context.graph)(with_noise_at(dataset, hidden), CPU))
    # A new context: one that has run before may still hold inputs that were propagated once.
    found = _difference(trained(replace(context)), trained(noisy))
    _report(method, found, "when features and edges of nodes hidden from training are replaced")

    late = np.flatnonzero(context.scenarios[0].test.arrival > 1)
    assert len(late), "no class arrives after session 1, so nothing is hidden; use more novel-test classes"
    _, other_answers = run_context(
        replace(context, graph=type(context.graph)(with_noise_at(dataset, late), CPU))
    )
    found = _changed([seed[:2] for seed in answers], [seed[:2] for seed in other_answers])
    _report(method, found, "when features and edges of nodes that arrive later are replaced")


def check_deterministic(
    method: Reference, *, dataset: Dataset | None = None, base: Base | None = None, **settings: Any
) -> None:
    """Check that two runs with the same seed give the same record, bit for bit.

    The arguments are those of `check_method`; ``base`` has runs that the checks of a method share.

    Raises:
        AssertionError: The records differ. The message names the keys.
    """
    base = base or Base(method, dataset, settings)
    found = _unequal(base.record, results(base.config, [SEED], base.dataset)[SEED])
    _report(method, found, "when the same seed runs again; seed every random number that it draws")


def check_packs(
    method: Reference, *, dataset: Dataset | None = None, base: Base | None = None, **settings: Any
) -> None:
    """Check that the record of a seed does not depend on the other members of its pack.

    These are other seeds, and other values of the settings that the method lists in `differs`. Records are
    compared bit for bit. On x86, numbers may differ by 0.0001, because torch rounds differently in a pack.

    The arguments are those of `check_method`; ``base`` has runs that the checks of a method share.

    Raises:
        AssertionError: The records differ. The message names the keys.
    """
    base = base or Base(method, dataset, settings)
    config, alone = resolve(base.config), base.record
    seeds = [(config, seed) for seed in PACK]
    changed = {
        name: 0.9 * getattr(config, name)
        for name in may_differ(config)
        if isinstance(getattr(config, name), float)
    }
    other = resolve(config.replace(**changed))
    # The other comes first, because a number that is no scalar buffer is that of the first member.
    others = [(other, SEED)] if changed and pack_key(other) == pack_key(config) else []
    if not _changed_in_pack(alone, [*others, *seeds], base.dataset):
        return
    why = (
        f"when seed {SEED} runs in a pack with others; predict each query from its own row, "
        "because other rows of queries may be padding"
    )
    _report(method, _changed_in_pack(alone, seeds, base.dataset), why)
    why = (
        f"when another member of its pack has other values of {', '.join(changed)}; read each as an "
        "attribute of the method, not from its settings, or take it out of `differs`"
    )
    _report(method, _changed_in_pack(alone, [*others, *seeds], base.dataset), why)


def _changed_in_pack(
    alone: dict[str, Any], members: Sequence[tuple[RunConfig, int]], dataset: Dataset
) -> str | None:
    """Return which values of the record of the last configuration and `SEED` change in a pack."""
    outputs = run_members(members, dataset, RunOptions(device=CPU))
    place = max(place for place, (_, seed) in enumerate(members) if seed == SEED)
    return _unequal(alone, _timeless(outputs[place].record), PACKED)


def check_plain(
    method: Reference, *, dataset: Dataset | None = None, base: Base | None = None, **settings: Any
) -> None:
    """Check that plain mode works and matches the packed run up to rounding.

    The arguments are those of `check_method`; ``base`` has runs that the checks of a method share.

    Raises:
        AssertionError: Plain mode fails, or its parameters or predictions differ.
    """
    base = base or Base(method, dataset, settings)
    packed, answers = base.lived
    try:
        plain, plain_answers = run_context(prepare(base.config, [SEED], base.dataset, CPU, mode="plain"))
    except Exception as error:
        raise AssertionError(f"{_shown(method)} fails in plain mode: {error!r}") from error
    found = _beyond_rounding(packed, plain) or _changed(answers, plain_answers, share=ACCURACY)
    _report(method, found, "in plain mode")


CHECKS = (check_deterministic, check_packs, check_plain, check_no_leak)


def check_method(method: Reference, *, dataset: Dataset | None = None, **settings: Any) -> None:
    """Run all checks on a method, the fastest first.

    Args:
        method: The method: a class, a name, ``package.module:Class`` or ``file.py:Class``.
        dataset: The graph to run on. The default is a small random graph.
        **settings: Settings of the run, such as ``classes`` and ``n_way`` for your graph.

    Raises:
        AssertionError: A check fails. The message names the difference.
    """
    base = Base(method, dataset, settings)
    for check in CHECKS:
        check(method, base=base)


def parametrize_with_checks(methods: Sequence[Reference]) -> Any:
    """Return a pytest decorator that runs a test with each ``method`` and each ``check``.

    Args:
        methods: The methods: classes, names, ``package.module:Class`` or ``file.py:Class``.

    Returns:
        A ``pytest.mark.parametrize`` decorator for a test with the arguments ``method`` and ``check``.
    """
    import pytest  # not needed by the commands, so it is not a dependency of the package

    pairs = [
        pytest.param(method, partial(_checked, check, base), id=f"{_shown(method)}-{check.__name__}")
        for method in methods
        for base in [Base(method, None, {})]
        for check in CHECKS
    ]
    return pytest.mark.parametrize(("method", "check"), pairs)


def _checked(check: Callable[..., None], base: Base, method: Reference, **changes: Any) -> None:
    """Run a check on shared runs, unless the test asks for another graph or other settings."""
    check(method, **(changes or {"base": base}))


class Base:
    """The runs of a method alone, with one seed, on which its checks are based. They start when needed."""

    def __init__(self, method: Reference, dataset: Dataset | None, settings: dict[str, Any]) -> None:
        """Name the method, its graph and its settings."""
        self._given = method, dataset, settings

    @cached_property
    def _prepared(self) -> tuple[Dataset, RunConfig]:
        return _prepared(*self._given)

    @property
    def dataset(self) -> Dataset:
        return self._prepared[0]

    @property
    def config(self) -> RunConfig:
        return self._prepared[1]

    @cached_property
    def record(self) -> dict[str, Any]:
        """What a record says of the run itself."""
        if not runs_in_packs(self.config):
            return results(self.config, [SEED], self.dataset)[SEED]
        _, (evaluator,), (validation,) = self._ran
        return {
            **metrics_of(evaluator.predictions),
            **evaluator.diagnostics(),
            "validation": validation,
        }

    @cached_property
    def context(self) -> Context:
        mode: Mode = "captured" if runs_in_packs(resolve(self.config)) else "plain"
        return prepare(self.config, [SEED], self.dataset, CPU, mode=mode)

    @cached_property
    def lived(self) -> tuple[Pack, Answers]:
        pack, evaluators, _ = self._ran
        return pack, [evaluator.answers for evaluator in evaluators]

    @cached_property
    def _ran(self) -> tuple[Pack, list[Evaluator], list[ValidationScores]]:
        pack = pretrain(self.context)
        return pack, *train_and_evaluate(self.context, pack)


def run_context(context: Context) -> tuple[Pack, Answers]:
    """Run everything in ``context``; return the final parameters and all predictions by seed and session."""
    pack = pretrain(context)
    evaluators, _ = train_and_evaluate(context, pack)
    return pack, [evaluator.answers for evaluator in evaluators]


def trained(context: Context) -> Pack:
    """Pre-train and meta-train in ``context``; return the parameters before the first session."""
    pack = pretrain(context)
    meta_train(context, pack)
    return pack


def results(config: RunConfig, seeds: list[int], dataset: Dataset) -> dict[int, dict[str, Any]]:
    """Run ``seeds``; return the records by seed, without the keys in ``TIME_AND_PLACE``."""
    return {record["seed"]: _timeless(record) for record in records_of(config, seeds, dataset)}


def records_of(
    config: RunConfig, seeds: Sequence[int], dataset: Dataset, device: torch.device = CPU, **options: Any
) -> list[Record]:
    """Run ``seeds`` with these `RunOptions`; return the records."""
    outputs = run(config, seeds, dataset, RunOptions(device=device, **options))
    return [output.record for output in outputs]


def _timeless(record: Record) -> dict[str, Any]:
    return {key: value for key, value in record.items() if key not in TIME_AND_PLACE}


def same_parameters(one: Pack, other: Pack) -> bool:
    """Return whether two packs have the same parameters, bit for bit."""
    return _difference(one, other) is None


def same_answers(one: Answers, other: Answers) -> bool:
    """Return whether all predictions are equal."""
    return _changed(one, other) is None


def _prepared(
    method: Reference, dataset: Dataset | None, settings: dict[str, Any]
) -> tuple[Dataset, RunConfig]:
    """Return the graph and a small configuration of the method."""
    task = {} if dataset else TASK
    dataset = dataset or datasets.load(GRAPH, Path())
    given = {"dataset": dataset, **SMALL, **task, "method": METHODS.name_of(method), **settings}
    return dataset, RunConfig.of(**given)


def _shown(method: Reference) -> str:
    return method if isinstance(method, str) else method.__name__


def _report(method: Reference, found: str | None, when: str) -> None:
    if found:
        raise AssertionError(f"{_shown(method)}: {found} {when}")


def _difference(one: Pack, other: Pack) -> str | None:
    """Return a message that names the first parameter that differs, or None."""
    for name, value in one.parameters.items():
        if not torch.equal(value, other.parameters[name]):
            return f"the parameter {name} changes"
    return None


def _beyond_rounding(one: Pack, other: Pack) -> str | None:
    """Return a message if parameters of the first seed differ by more than rounding, otherwise None."""
    pairs = {name: (value, other.states()[0][name]) for name, value in one.states()[0].items()}
    differences = {name: (left - right).abs() for name, (left, right) in pairs.items()}
    for name, difference in differences.items():
        if difference.numel() and not float(difference.max()) < ADAM:
            return f"the parameter {name} changes by {float(difference.max()):.2g}"
    rest = [values.flatten() for name, values in differences.items() if not name.endswith("bias")]
    share = float((torch.cat(rest) > ROUNDING).float().mean()) if rest else 0.0
    return f"{share:.0%} of the parameters change by more than {ROUNDING}" if share > FEW else None


def _changed(one: Answers, other: Answers, share: float = 0.0) -> str | None:
    """Return a message that names the first session in which more than ``share`` differs, or None."""
    for left, right in zip(one, other, strict=True):
        for session, (a, b) in enumerate(zip(left, right, strict=True)):
            differ = int((a != b).sum())
            if differ > share * len(a):
                return f"{differ} of {len(a)} predictions of session {session} change"
    return None


def _unequal(one: dict[str, Any], other: dict[str, Any], allowed: float = 0.0) -> str | None:
    keys = [key for key in one if not _equal(one[key], other.get(key), allowed)]
    return f"values in its record change ({', '.join(keys)})" if keys else None


def _equal(one: Any, other: Any, allowed: float) -> bool:
    """Return whether two values of records are equal, if numbers in them may differ by ``allowed``."""
    if isinstance(one, float) and isinstance(other, float):
        return abs(one - other) <= allowed
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(_equal(a, b, allowed) for a, b in zip(one, other, strict=True))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_equal(one[key], other[key], allowed) for key in one)
    return bool(one == other)
