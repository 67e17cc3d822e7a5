"""Compute metrics from the predictions of a run.

Built-in metrics are the functions below with the decorator `_built_in`. To add a metric outside this package,
subclass `Metric`::

    class WorstClass(Metric):
        name, title, by_session = "worst_class", "worst class", False

        def compute(self, predictions):
            last = predictions.counts()[-1]
            asked = last.asked > 0  # classes with queries
            return float((last.right[asked] / last.asked[asked]).min())
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from numbers import Real
from typing import Any, ClassVar, cast

import numpy as np

from hagmeta.common.errors import UserError, shown
from hagmeta.common.plugins.registry import Registry
from hagmeta.common.records.metrics import (
    DIAGNOSTICS,
    MetricDeclaration,
    declaration,
    drop,
    forgotten,
    harmonic_means,
    mean,
    of_base,
    of_new,
    relative_drop,
    to_record,
    transferred_back,
)
from hagmeta.common.records.record_schema import schema
from hagmeta.common.records.records import Record, opened
from hagmeta.scenarios.predictions import ClassCounts, Predictions

DIGITS = 6  # of accuracies by class; a record has thousands of them
NAME = re.compile(r"[a-z][a-z0-9_]*")

Value = list[float | None] | float | None


class Metric(ABC):
    """Base class of additional metrics. A metric computes one value per session or per run.

    Attributes:
        name: The key in records: lower-case letters, digits and underscores.
        title: The name in tables.
        by_session: Whether `compute` returns a list with one value per session.
        higher_is_better: Whether larger values are better.
        shown: Whether the report shows the metric in its table of other metrics.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    by_session: ClassVar[bool]
    higher_is_better: ClassVar[bool] = True
    shown: ClassVar[bool] = True

    @abstractmethod
    def compute(self, predictions: Predictions) -> Value:
        """Compute the metric.

        Args:
            predictions: The predictions of all sessions of a run.

        Returns:
            One number, or a list with one number per session. Use None where the metric is undefined.
        """

    @classmethod
    def declared(cls) -> MetricDeclaration:
        """Return the declaration of the metric.

        Raises:
            UserError: An attribute is missing or invalid.
        """
        for key, kind in {"name": str, "title": str, **dict.fromkeys(_SWITCHES, bool)}.items():
            value = getattr(cls, key, None)
            if not isinstance(value, kind) or (not value and kind is str):
                raise UserError(
                    f"metric {cls.__name__}: {key} is {shown(value)}; expected a {kind.__name__}."
                )
        if not NAME.fullmatch(cls.name):
            raise UserError(
                f"metric {cls.__name__}: name is {shown(cls.name)}; "
                "expected lower-case letters, digits and _."
            )
        return MetricDeclaration(cls.name, cls.title, cls.by_session, cls.higher_is_better, shown=cls.shown)


_SWITCHES = ("by_session", "higher_is_better", "shown")
_COMPUTED: dict[str, Callable[[Predictions], Any]] = {}  # built-in metrics, in the order of a record
METRICS: Registry[type[Metric]]  # defined below, after all built-in metrics
_BUILT_IN: dict[str, type[Metric]] = {}


def metrics_of(predictions: Predictions, metrics: Mapping[str, type[Metric]] | None = None) -> dict[str, Any]:
    """Return the values of all built-in metrics, and of additional ``metrics``, by name.

    Base classes are those known at session 0; novel classes arrive later. Values are None before the first
    novel class. Macro metrics are means over classes. They ignore classes without queries in a session.
    """
    built_in = {name: compute(predictions) for name, compute in _COMPUTED.items()}
    return built_in | _additional(predictions, metrics or {})


def with_metrics(record: Record, predictions: Predictions, metrics: Mapping[str, type[Metric]]) -> Record:
    """Return a record with the values and declarations of additional metrics.

    Args:
        record: The record of a run. It may already have additional metrics.
        predictions: The predictions of all sessions of this run.
        metrics: Metric classes by the identity of their code, such as ``Mine@0123456789ab``.
    """
    if not metrics:
        return record
    said = {
        metric.name: to_record(metric.declared(), source=identity) for identity, metric in metrics.items()
    }
    taken = [name for name in said if name in record and name not in record.get("metrics", {})]
    if taken:
        raise UserError(f"metric {taken[0]}: records already have a value with this name. Rename the metric.")
    more = _additional(predictions, metrics) | {"metrics": record.get("metrics", {}) | said}
    return cast(Record, opened(record) | more)


def _additional(predictions: Predictions, metrics: Mapping[str, type[Metric]]) -> dict[str, Value]:
    found: dict[str, Value] = {}
    reserved = {*schema()["properties"], *(each.name for each in DIAGNOSTICS)}
    for identity, metric in metrics.items():
        declared = metric.declared()
        if declared.name in reserved or declared.name in found:
            whose = "a built-in value" if declared.name in reserved else "another metric"
            raise UserError(f"metric {declared.name}: {whose} already has this name. Rename the metric.")
        found[declared.name] = _checked(
            declared, _computed(identity, metric, predictions), len(predictions.true)
        )
    return found


def _computed(identity: str, metric: type[Metric], predictions: Predictions) -> Any:
    try:
        return metric().compute(predictions)
    except UserError:
        raise
    except Exception as error:  # plug-ins may raise anything
        reason = " ".join(str(error).split())
        raise UserError(f"metric {identity}: {type(error).__name__}: {reason}") from error


def _checked(declared: MetricDeclaration, value: Any, sessions: int) -> Value:
    """Return ``value`` as plain Python numbers, or raise an error that names the metric."""
    if not declared.by_session:
        return _number(declared.name, value)
    if not isinstance(value, list | tuple | np.ndarray):
        raise UserError(
            f"metric {declared.name}: compute returned {shown(value)}; expected a list of {sessions} values, "
            "one per session."
        )
    if len(value) != sessions:
        raise UserError(
            f"metric {declared.name}: compute returned {len(value)} values; expected {sessions}, "
            "one per session."
        )
    return [_number(declared.name, each) for each in value]


def _number(name: str, value: Any) -> float | None:
    if value is None:
        return None
    if not isinstance(value, Real | np.number) or isinstance(value, bool) or not math.isfinite(value):
        raise UserError(f"metric {name}: compute returned {shown(value)}; expected finite numbers or None.")
    return float(value)


def _built_in(compute: Callable[[Predictions], Any]) -> Callable[[Predictions], Any]:
    """Register ``compute`` as the built-in metric with the name of the function."""
    declared = declaration(compute.__name__)
    members = {**vars(declared), "__doc__": compute.__doc__, "compute": lambda self, given: compute(given)}
    _COMPUTED[declared.name] = compute
    _BUILT_IN[declared.name] = type(declared.name, (Metric,), members)
    return compute


@_built_in
def accuracy(predictions: Predictions) -> list[float]:
    """Return the share of correct predictions by session. Every query has the same weight."""
    return [float(correct.mean()) for correct in predictions.correct()]


@_built_in
def base_accuracy(predictions: Predictions) -> list[float | None]:
    """Return the accuracy on the classes known at session 0."""
    return of_base(matrix(predictions))


@_built_in
def novel_accuracy(predictions: Predictions) -> list[float | None]:
    """Return the accuracy after each session on all novel classes so far."""
    known = len(predictions.known)
    rest = predictions.counts()[1:]
    return [None, *(float(of.right[known:].sum() / of.asked[known:].sum()) for of in rest)]


@_built_in
def new_accuracy(predictions: Predictions) -> list[float | None]:
    """Return the accuracy after each session on the classes that arrived in it."""
    return of_new(matrix(predictions))


@_built_in
def harmonic(predictions: Predictions) -> list[float | None]:
    """Return the harmonic mean of base and novel accuracy."""
    return harmonic_means(base_accuracy(predictions), novel_accuracy(predictions))


@_built_in
def matrix(predictions: Predictions) -> list[list[float]]:
    """Return M[t][j]: the accuracy after session t on the classes that arrived in session j."""
    known, n_way = len(predictions.known), predictions.arriving.shape[1]

    def by_task(counts: np.ndarray) -> np.ndarray:
        return np.array([counts[:known].sum(), *counts[known:].reshape(-1, n_way).sum(axis=1)])

    return [(by_task(of.right) / by_task(of.asked)).tolist() for of in predictions.counts()]


@_built_in
def pd(predictions: Predictions) -> float:
    """Return the performance drop (PD): accuracy at session 0 minus accuracy at the last session."""
    return drop(accuracy(predictions))


@_built_in
def rpd(predictions: Predictions) -> float | None:
    """Return PD divided by the accuracy at session 0; None if that accuracy is 0."""
    return relative_drop(accuracy(predictions))


@_built_in
def average_accuracy(predictions: Predictions) -> float:
    """Return the mean accuracy over sessions."""
    return mean(accuracy(predictions))


@_built_in
def forgetting(predictions: Predictions) -> list[float]:
    """Return the forgetting of each task except the last: its best earlier accuracy minus its final one.
    It is negative if the task ends above all earlier accuracies.
    """
    return forgotten(matrix(predictions))


@_built_in
def backward_transfer(predictions: Predictions) -> float | None:
    """Return the backward transfer (BWT); None if there is only one task."""
    return transferred_back(matrix(predictions))


@_built_in
def macro_accuracy(predictions: Predictions) -> list[float | None]:
    """Return the mean accuracy over all classes so far."""
    return [_mean(values) for values in _by_class(predictions)]


@_built_in
def macro_f1(predictions: Predictions) -> list[float | None]:
    """Return the mean of 2 TP / (2 TP + FP + FN) over all classes so far."""
    return [_mean(f1_scores(of)) for of in predictions.counts()]


@_built_in
def macro_base_accuracy(predictions: Predictions) -> list[float | None]:
    """Return the mean accuracy over the classes known at session 0."""
    return [_mean(values[: len(predictions.known)]) for values in _by_class(predictions)]


@_built_in
def macro_novel_accuracy(predictions: Predictions) -> list[float | None]:
    """Return the mean accuracy over all novel classes so far."""
    return [_mean(values[len(predictions.known) :]) for values in _by_class(predictions)]


@_built_in
def macro_harmonic(predictions: Predictions) -> list[float | None]:
    """Return the harmonic mean of macro base and macro novel accuracy."""
    return harmonic_means(macro_base_accuracy(predictions), macro_novel_accuracy(predictions))


@_built_in
def class_accuracy(predictions: Predictions) -> list[list[float | None]]:
    """Return the accuracy by session and class, in the order of `classes_met`; None without queries."""
    return [
        [None if np.isnan(value) else round(float(value), DIGITS) for value in values]
        for values in _by_class(predictions)
    ]


@_built_in
def classes_met(predictions: Predictions) -> list[int]:
    """Return the classes in the order in which they are met."""
    return [int(each) for each in predictions.met(len(predictions.true) - 1)]


def f1_scores(counts: ClassCounts) -> np.ndarray:
    """Return 2 TP / (2 TP + FP + FN) by class; NaN for classes without queries."""
    return _ratio(2 * counts.right, counts.asked + counts.given, counts.asked)


def _by_class(predictions: Predictions) -> list[np.ndarray]:
    """Return the accuracy of each class by session, in the order in which classes are met."""
    return [_ratio(of.right, of.asked, of.asked) for of in predictions.counts()]


def _ratio(part: np.ndarray, whole: np.ndarray, asked: np.ndarray) -> np.ndarray:
    return np.divide(part, whole, out=np.full(len(part), np.nan), where=asked > 0)


def _mean(values: np.ndarray) -> float | None:
    values = values[~np.isnan(values)]
    return float(values.mean()) if len(values) else None


def _check_declared(metric: type[Metric]) -> None:
    metric.declared()


METRICS = Registry("metric", _BUILT_IN, base=Metric, check=_check_declared)
